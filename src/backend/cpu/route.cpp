// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/route.h"

#include <algorithm>

namespace snug::cpu {

void route(const Bound& bound, Range tokens, Sync& sync) {
  const int32_t top_k = bound.caps.shape.top_k;
  const int32_t experts = bound.caps.shape.num_local_experts;
  int32_t* local_expert = slice_data<int32_t>(bound, SliceId::local_expert);
  int32_t* offsets = slice_data<int32_t>(bound, SliceId::expert_offsets);
  int32_t* slot_route = slice_data<int32_t>(bound, SliceId::slot_route);
  int32_t* active = slice_data<int32_t>(bound, SliceId::active_experts);
  int32_t* cursor = slice_data<int32_t>(bound, SliceId::expert_cursor);

  std::fill(offsets, offsets + experts + 1, 0);
  int32_t at = 0;
  for (int64_t token = tokens.first; token < tokens.last; ++token) {
    for (int32_t slot = 0; slot < top_k; ++slot, ++at) {
      local_expert[at] = local_expert_at(bound, token, slot);
      if (local_expert[at] >= 0) ++offsets[local_expert[at] + 1];
    }
  }
  int32_t num_active = 0;
  for (int32_t e = 0; e < experts; ++e) {
    if (offsets[e + 1] > 0) active[num_active++] = e;
    offsets[e + 1] += offsets[e];
    cursor[e] = offsets[e];
  }
  for (int32_t r = 0; r < at; ++r) {
    if (local_expert[r] >= 0) slot_route[cursor[local_expert[r]]++] = r;
  }
  sync.num_active = num_active;
  sync.fc1_task.store(0, std::memory_order_relaxed);
  sync.fc2_task.store(0, std::memory_order_relaxed);
}

}  // namespace snug::cpu
