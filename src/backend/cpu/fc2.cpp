// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/fc2.h"

#include "backend/cpu/panel.h"

namespace snug::cpu {

namespace {

void run_expert(const Bound& bound, int32_t expert, Range slots, int64_t panel, float* out) {
  const PackedLayout& layout = bound.weights.layout;
  const uint8_t* record = expert_record(bound, expert);
  const int32_t* slot_route = slice_data<int32_t>(bound, SliceId::slot_route);
  const bf16* activated = slice_data<bf16>(bound, SliceId::activated);
  const float global = record_globals(layout, record)[2];
  const float* bias = record_bias(layout, layout.fc2, record);
  if (bias != nullptr) bias += panel * kPanelRows;
  float acc[kMaxPanelRows][kPanelRows];
  const bf16* rows[kMaxPanelRows];
  for (int64_t first = slots.first; first < slots.last; first += kMaxPanelRows) {
    const int count = static_cast<int>(min_of<int64_t>(kMaxPanelRows, slots.last - first));
    for (int r = 0; r < count; ++r) rows[r] = activated + (first + r) * layout.intermediate;
    multiply_panel(layout, layout.fc2, record, panel, rows, count, acc);
    for (int r = 0; r < count; ++r) {
      float* to = out + int64_t{slot_route[first + r]} * kPanelRows;
      for (int n = 0; n < kPanelRows; ++n) {
        const float y = acc[r][n] * global;
        to[n] = bias != nullptr ? y + bias[n] : y;
      }
    }
  }
}

}  // namespace

void fc2(const Bound& bound, const Sync& sync, int64_t panel, int32_t worker) {
  const int32_t* active = slice_data<int32_t>(bound, SliceId::active_experts);
  const int32_t* offsets = slice_data<int32_t>(bound, SliceId::expert_offsets);
  float* out = worker_rows(bound, worker);
  for (int32_t i = 0; i < sync.num_active; ++i) {
    run_expert(bound, active[i], {offsets[active[i]], offsets[active[i] + 1]}, panel, out);
  }
}

}  // namespace snug::cpu
