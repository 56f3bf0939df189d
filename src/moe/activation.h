// SPDX-License-Identifier: Apache-2.0
// The activations between FC1 and FC2, as scalar functions that every backend calls.
// T is float in kernels and double in the oracle. A NaN input gives a NaN output.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/macros.h"
#include "base/status.h"

namespace snug {

/// Values are part of the C ABI (snug_activation_kind); append only.
enum class ActivationKind : int32_t {
  silu = 0,          // g * sigmoid(g) * u
  gelu_tanh = 1,     // gelu(g), tanh form, * u
  gelu = 2,          // gelu(g), erf form, * u
  relu2 = 3,         // max(x, 0)^2, not gated
  swiglu_oai = 4,    // g' * sigmoid(alpha * g') * (u' + beta); g' = min(g, limit), u' in +-limit
  silu_clamped = 5,  // silu(g') * u'; g' = min(g, limit), u' in +-limit
  situ = 6,          // 4 * tanh(g / 4) * sigmoid(g) * 25 * tanh(u / 25)
};
inline constexpr int kNumActivations = 7;

/// An activation with its parameters. alpha, beta and limit are read by swiglu_oai, limit also by
/// silu_clamped; elsewhere they must keep their neutral values 1, 0, 0.
struct Activation {
  ActivationKind kind = ActivationKind::silu;
  float alpha = 1;
  float beta = 0;
  float limit = 0;  // 0 = none
};

/// gpt-oss and MiniMax-M3: alpha 1.702, beta 1, limit 7.
constexpr Activation swiglu_oai_default() { return {ActivationKind::swiglu_oai, 1.702f, 1, 7}; }

constexpr bool is_gated(ActivationKind kind) { return kind != ActivationKind::relu2; }

/// Rows of W13 per intermediate element: 2 (gate and up) or 1.
constexpr int fc1_rows_per_element(ActivationKind kind) { return is_gated(kind) ? 2 : 1; }

const char* activation_name(ActivationKind kind);

/// Refuses unknown kinds, parameters on activations that have none, and a limit that is missing,
/// not finite or not positive where one is needed.
Status check_activation(const Activation& activation);

template <class T>
SNUG_HD T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

/// Comparisons are ordered so that NaN passes through.
template <class T>
SNUG_HD T clamp_above(T x, T limit) {
  return x > limit ? limit : x;
}
template <class T>
SNUG_HD T clamp_both(T x, T limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}

/// The activated value of one intermediate element, not yet rounded.
///   gate, up   FC1's two rows after scale and bias; ungated activations ignore `up`
template <class T>
SNUG_HD T activate(const Activation& a, T gate, T up) {
  const T limit = static_cast<T>(a.limit);
  switch (a.kind) {
    case ActivationKind::silu:
      return gate * sigmoid(gate) * up;
    case ActivationKind::gelu_tanh: {
      const T inner = T(0.7978845608028654) * (gate + T(0.044715) * gate * gate * gate);
      return T(0.5) * gate * (T(1) + std::tanh(inner)) * up;
    }
    case ActivationKind::gelu:
      return T(0.5) * gate * (T(1) + std::erf(gate * T(0.7071067811865476))) * up;
    case ActivationKind::relu2:
      return gate < T(0) ? T(0) : gate * gate;
    case ActivationKind::swiglu_oai: {
      const T g = clamp_above(gate, limit);
      const T u = clamp_both(up, limit);
      return g * sigmoid(static_cast<T>(a.alpha) * g) * (u + static_cast<T>(a.beta));
    }
    case ActivationKind::silu_clamped: {
      const T g = clamp_above(gate, limit);
      return g * sigmoid(g) * clamp_both(up, limit);
    }
    case ActivationKind::situ:
      return T(4) * std::tanh(gate / T(4)) * sigmoid(gate) * T(25) * std::tanh(up / T(25));
  }
  return gate;
}

}  // namespace snug
