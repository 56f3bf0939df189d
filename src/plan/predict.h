// SPDX-License-Identifier: Apache-2.0
// The cost model: bytes, FLOPs and time of a policy at a token count. It ranks candidates and is
// printed by explain; it never looks at a clock, so every rank and every boot gets the same plan.
#pragma once

#include <cstdint>

#include "plan/arena.h"

namespace snug {

struct StepCost {
  double nbytes = 0;  // read and written in device memory
  double flops = 0;   // over real routes, not padding
  double us = 0;
};

struct Prediction {
  StepCost steps[kNumSteps];
  double us = 0;        // the layer
  double floor_us = 0;  // max(touched weight bytes / read rate, FLOPs / matrix rate)
};

/// Expected number of local experts that at least one of `num_tokens` tokens chooses, for uniform
/// routing: E_local * (1 - (1 - 1/E)^(num_tokens * top_k)).
double expected_touched_experts(const MoeShape& shape, int64_t num_tokens);

/// Predicts `num_tokens` tokens done in chunks of policy.chunk_tokens. `weights` is the layout of
/// the family's prepared weights for these caps: the planner computes it once for many policies.
Prediction predict(const Caps& caps, const Device& device, const KernelFamily& family,
                   const PackedLayout& weights, const Policy& policy, int64_t num_tokens);

/// The same for one policy.
Prediction predict(const Caps& caps, const Device& device, const KernelFamily& family,
                   const Policy& policy, int64_t num_tokens);

}  // namespace snug
