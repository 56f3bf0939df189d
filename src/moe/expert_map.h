// SPDX-License-Identifier: Apache-2.0
// Global expert id -> local expert id: the one place where an id is judged.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "base/status.h"

namespace snug {

/// The local expert of a routed id, or -1 when the route contributes nothing: an id below 0 or at
/// or above num_experts, or one that the map sends to -1.
///   map   [num_experts]  s32; null = identity (every expert is local)
SNUG_HD constexpr int32_t local_expert_of(int64_t id, int32_t num_experts, const int32_t* map) {
  if (id < 0 || id >= num_experts) return -1;
  return map != nullptr ? map[id] : static_cast<int32_t>(id);
}

/// Checks a map once, at bind: every value is -1 or in 0..num_local_experts-1, and every local
/// expert appears exactly once (at least once when `allow_replicas`).
/// Errors name the global id, its value and, for a duplicate or a gap, the local id.
Status check_expert_map(const int32_t* map, int32_t num_experts, int32_t num_local_experts,
                        bool allow_replicas);

}  // namespace snug
