// SPDX-License-Identifier: Apache-2.0
#include "plan/compare.h"

namespace snug {

namespace {

ActivationKind reference_activation(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::relu2:
    case ActivationKind::situ:
    case ActivationKind::swiglu_oai:
      return kind;
    default:
      return ActivationKind::silu;
  }
}

}  // namespace

ReferenceCaps reference_caps(const Caps& caps, const Device& device, bool unbounded) {
  ReferenceCaps reference;
  reference.max_tokens = caps.max_tokens;
  reference.top_k = caps.shape.top_k;
  reference.num_experts = caps.shape.num_experts;
  reference.hidden = caps.shape.hidden;
  reference.intermediate = caps.shape.intermediate;
  reference.num_sms = device.machine == Machine::cuda ? device.num_units : 1;
  reference.activation = reference_activation(caps.activation.kind);
  reference.router_weight_on_input = caps.router_weight_on_input;
  reference.unbounded = unbounded;
  reference.expert_parallel = caps.shape.num_local_experts < caps.shape.num_experts;
  if (caps.format == Format::mxfp4) {
    reference.scales = ReferenceScales::e8m0_k32;
    const bool packed = caps.shape.intermediate % 128 == 0 && !reference.expert_parallel;
    if (packed) reference.layout = ReferenceLayout::packed;
  }
  const bool takes_limit = reference.activation == ActivationKind::silu ||
                           reference.activation == ActivationKind::swiglu_oai;
  if (caps.activation.limit > 0 && takes_limit && !reference.expert_parallel) {
    reference.swiglu_limit = caps.activation.limit;
  }
  return reference;
}

Result<uint64_t> reference_nbytes(const Caps& caps, const Device& device, bool unbounded) {
  SNUG_RETURN_IF_ERROR(check_caps(caps));
  SNUG_RETURN_IF_ERROR(check_device(device));
  SNUG_ASSIGN_OR_RETURN(const ReferencePlan plan,
                        plan_reference(reference_caps(caps, device, unbounded)));
  return static_cast<uint64_t>(plan.total);
}

}  // namespace snug
