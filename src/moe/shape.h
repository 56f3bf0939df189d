// SPDX-License-Identifier: Apache-2.0
// The sizes of one routed-expert layer, as one rank sees them.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace snug {

inline constexpr int32_t kMaxExperts = 4096;
inline constexpr int32_t kMaxTopK = 32;
inline constexpr int32_t kMaxWidth = 1 << 17;  // hidden and intermediate
inline constexpr int64_t kMaxTokens = int64_t{1} << 24;

/// Sizes of the layer. `intermediate` is this rank's share under tensor parallelism.
struct MoeShape {
  int32_t hidden = 0;
  int32_t intermediate = 0;
  int32_t num_experts = 0;        // global: what topk_ids count
  int32_t num_local_experts = 0;  // whose weights this rank holds; 0 is an empty rank
  int32_t top_k = 0;
};

/// Checks the ranges that hold for every format: 1 <= hidden, intermediate <= 2^17,
/// 1 <= num_experts <= 4096, 0 <= num_local_experts <= num_experts, 1 <= top_k <= 32.
/// top_k may exceed num_experts: an id may repeat within a token.
Status check_shape(const MoeShape& shape);

}  // namespace snug
