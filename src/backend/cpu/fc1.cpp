// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/fc1.h"

#include "backend/cpu/panel.h"

namespace snug::cpu {

namespace {

/// One expert's panel and where its results go.
struct Task {
  const uint8_t* record;
  int64_t panel;
  Range slots;
};

/// acc -> activated for one slot: h = acc * global (* router weight, on input) + bias.
void store_slot(const Bound& bound, const Task& task, const float* acc, float on_input,
                bf16* activated) {
  const PackedLayout& layout = bound.weights.layout;
  const float* globals = record_globals(layout, task.record);
  const float* bias = record_bias(layout, layout.fc1, task.record);
  if (bias != nullptr) bias += task.panel * kPanelRows;
  const int columns = fc1_columns_per_panel(layout.gated);
  const Range range = piece_of(layout.intermediate, columns, task.panel);
  for (int n = 0; n < range.size(); ++n) {
    float gate = acc[n] * globals[0] * on_input;
    float up = layout.gated ? acc[kTileRows + n] * globals[1] * on_input : 0.0f;
    if (bias != nullptr) {
      gate += bias[n];
      if (layout.gated) up += bias[kTileRows + n];
    }
    activated[range.first + n] = f32_to_bf16(activate(bound.caps.activation, gate, up));
  }
}

void run_task(const Bound& bound, Range tokens, const Task& task) {
  const PackedLayout& layout = bound.weights.layout;
  const int32_t top_k = bound.caps.shape.top_k;
  const int32_t* slot_route = slice_data<int32_t>(bound, SliceId::slot_route);
  bf16* activated = slice_data<bf16>(bound, SliceId::activated);
  float acc[kMaxPanelRows][kPanelRows];
  const bf16* rows[kMaxPanelRows];
  for (int64_t first = task.slots.first; first < task.slots.last; first += kMaxPanelRows) {
    const int count = static_cast<int>(min_of<int64_t>(kMaxPanelRows, task.slots.last - first));
    for (int r = 0; r < count; ++r) {
      rows[r] = x_row(bound, tokens.first + slot_route[first + r] / top_k);
    }
    multiply_panel(layout, layout.fc1, task.record, task.panel, rows, count, acc);
    for (int r = 0; r < count; ++r) {
      const int32_t at = slot_route[first + r];
      const float on_input = bound.caps.router_weight_on_input
                                 ? router_weight_at(bound, tokens.first + at / top_k, at % top_k)
                                 : 1.0f;
      store_slot(bound, task, acc[r], on_input, activated + (first + r) * layout.intermediate);
    }
  }
}

}  // namespace

void fc1(const Bound& bound, Range tokens, Sync& sync) {
  const int32_t* active = slice_data<int32_t>(bound, SliceId::active_experts);
  const int32_t* offsets = slice_data<int32_t>(bound, SliceId::expert_offsets);
  const int64_t panels = fc1_panels(bound.weights.layout);
  const int64_t tasks = sync.num_active * panels;
  for (int64_t t; (t = sync.fc1_task.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
    const int32_t expert = active[t / panels];
    run_task(bound, tokens,
             {expert_record(bound, expert), t % panels, {offsets[expert], offsets[expert + 1]}});
  }
}

}  // namespace snug::cpu
