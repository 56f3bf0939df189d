// SPDX-License-Identifier: Apache-2.0
// FC2 of a block of output columns for all experts of a chunk, as every instruction-set path
// compiles it. Included inside a path's namespace, after fc1.h.

inline void prefetch_fc2_rows(const Bound& bound, const Block& block, const float* rows) {
  const int32_t* slot_route = slice_data<int32_t>(bound, SliceId::slot_route);
  for (int r = 0; r < block.count; ++r) {
    const float* to = rows + int64_t{slot_route[block.first_slot + r]} * kPanelRows;
    prefetch_for_write(to);
    prefetch_for_write(to + kLanes);
  }
}

inline void finish_fc2_panel(const Bound& bound, const uint8_t* record, int64_t panel,
                             const Block& block, const float (*acc)[kPanelRows], float* rows) {
  const PackedLayout& layout = bound.weights.layout;
  const int32_t* slot_route = slice_data<int32_t>(bound, SliceId::slot_route);
  const float global = record_globals(layout, record)[2];
  const float* bias = record_bias(layout, layout.fc2, record);
  F32 first_bias = {}, second_bias = {};
  if (bias != nullptr) {
    first_bias = load<F32>(bias + panel * kPanelRows);
    second_bias = load<F32>(bias + panel * kPanelRows + kLanes);
  }
  for (int r = 0; r < block.count; ++r) {
    float* to = rows + int64_t{slot_route[block.first_slot + r]} * kPanelRows;
    F32 first = load<F32>(acc[r]) * global, second = load<F32>(acc[r] + kLanes) * global;
    if (bias != nullptr) {
      first += first_bias;
      second += second_bias;
    }
    store(to, first);
    store(to + kLanes, second);
  }
}

inline void fc2(const Bound& bound, const Sync& sync, Range panels, int32_t worker) {
  const PackedLayout& layout = bound.weights.layout;
  const int32_t* active = slice_data<int32_t>(bound, SliceId::active_experts);
  const int32_t* offsets = slice_data<int32_t>(bound, SliceId::expert_offsets);
  const bf16* activated = slice_data<bf16>(bound, SliceId::activated);
  const int64_t stride = activated_stride(layout.intermediate);
  const Scratch scratch = scratch_of(bound, worker, Kernel::kUsesTiles);
  const int64_t most =
      block_slots(layout.fc2.padded_k, bound.schedule.chunk_routes, Kernel::kUsesTiles);
  float* rows = worker_rows(bound, worker);
  Kernel kernel(bound, scratch);
  Block block;
  for (int32_t i = 0; i < sync.num_active; ++i) {
    const uint8_t* record = expert_record(bound, active[i]);
    const int64_t last = offsets[active[i] + 1];
    const int32_t following = active[i + 1 < sync.num_active ? i + 1 : i];
    const uint8_t* next_record = expert_record(bound, following);
    const bf16* next_rows = activated + offsets[following] * stride;
    const int64_t next_slots = min_of<int64_t>(most, offsets[following + 1] - offsets[following]);
    const int64_t share = ceil_div(next_slots * stride * 2, 64 * panels.size());
    for (int64_t first = offsets[active[i]]; first < last; first += most) {
      block.first_slot = first;
      block.count = static_cast<int>(min_of(most, last - first));
      for (int r = 0; r < block.count; ++r) block.rows[r] = activated + (first + r) * stride;
      kernel.prepare(layout.fc2, block.rows, block.count, stride);
      for (int64_t panel = panels.first; panel < panels.last; ++panel) {
        const bool ends = panel + 1 == panels.last;
        const int64_t done = (panel - panels.first) * share;
        const Next next = {panel_codes(layout, layout.fc2, ends ? next_record : record,
                                       ends ? panels.first : panel + 1),
                           reinterpret_cast<const uint8_t*>(next_rows) + done * 64,
                           max_of<int64_t>(0, min_of(share, next_slots * stride * 2 / 64 - done))};
        float* to = rows + (panel - panels.first) * bound.schedule.chunk_routes * kPanelRows;
        prefetch_fc2_rows(bound, block, to);
        kernel.multiply(record, panel, next, scratch.acc);
        finish_fc2_panel(bound, record, panel, block, scratch.acc, to);
      }
    }
  }
}
