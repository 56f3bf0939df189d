// SPDX-License-Identifier: Apache-2.0
#include "moe/activation.h"

namespace snug {

const char* activation_name(ActivationKind kind) {
  static constexpr const char* kNames[kNumActivations] = {
      "silu", "gelu_tanh", "gelu", "relu2", "swiglu_oai", "silu_clamped", "situ"};
  const int i = static_cast<int>(kind);
  return i >= 0 && i < kNumActivations ? kNames[i] : "unknown";
}

Status check_activation(const Activation& a) {
  const int kind = static_cast<int>(a.kind);
  if (kind < 0 || kind >= kNumActivations) {
    return make_error(Code::invalid_argument, "activation.kind: have %d, need 0..%d", kind,
                      kNumActivations - 1);
  }
  const char* name = activation_name(a.kind);
  const bool oai = a.kind == ActivationKind::swiglu_oai;
  if (oai || a.kind == ActivationKind::silu_clamped) {
    if (!std::isfinite(a.limit) || a.limit <= 0) {
      return make_error(Code::invalid_argument,
                        "activation.limit: have %g, %s needs a positive finite value",
                        static_cast<double>(a.limit), name);
    }
  } else if (!(a.limit == 0)) {
    return make_error(Code::invalid_argument, "activation.limit: have %g, %s takes none (0)",
                      static_cast<double>(a.limit), name);
  }
  if (oai ? !(std::isfinite(a.alpha) && std::isfinite(a.beta)) : !(a.alpha == 1 && a.beta == 0)) {
    return make_error(Code::invalid_argument, "activation.alpha, beta: have %g, %g; %s needs %s",
                      static_cast<double>(a.alpha), static_cast<double>(a.beta), name,
                      oai ? "finite values" : "1, 0");
  }
  return {};
}

}  // namespace snug
