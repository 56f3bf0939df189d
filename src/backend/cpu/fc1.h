// SPDX-License-Identifier: Apache-2.0
// FC1 with scale, bias and activation in its epilogue, as every instruction-set path compiles it.
// Included inside a path's namespace, after isa/vectors.h and the path's Kernel:
//   Kernel(bound, worker's scratch)
//   static F32 activate(const Activation&, F32 gate, F32 up)
//   void prepare(const MatrixLayout&, const bf16* const* rows, int count, int64_t row_stride)
//     reads the rows of a block; row_stride > 0: they lie that many elements apart
//   void multiply(const uint8_t* record, int64_t panel, const Next& next, float (*acc)[32])
//     acc[r][lane] = sum over k of rows[r][k] * code * scale of packed row 32 * panel + lane

/// The slots of one expert that are prepared together.
struct Block {
  int64_t first_slot;
  int count;
  const bf16* rows[kMaxBlockSlots];
};

/// One row of FC1's epilogue: h = acc * global (* router weight, on input) + bias, activated and
/// rounded. Writes whole tiles: what lies past the intermediate size is zero, as its weights are.
SNUG_INLINE void store_activated(const Activation& activation, bool gated, const float* globals,
                                 const float* bias, float on_input, const float* acc, bf16* to) {
  F32 first = load<F32>(acc) * globals[0] * on_input;
  F32 second = load<F32>(acc + kLanes) * (gated ? globals[1] : globals[0]) * on_input;
  if (bias != nullptr) {
    first += load<F32>(bias);
    second += load<F32>(bias + kLanes);
  }
  if (gated) {
    store(to, f32_to_bf16(Kernel::activate(activation, first, second)));
  } else {
    store(to, f32_to_bf16(Kernel::activate(activation, first, first)));
    store(to + kLanes, f32_to_bf16(Kernel::activate(activation, second, second)));
  }
}

/// Where a panel's results of a block go: the first slot's elements.
inline bf16* fc1_results(const Bound& bound, int64_t panel, const Block& block) {
  const PackedLayout& layout = bound.weights.layout;
  return slice_data<bf16>(bound, SliceId::activated) +
         block.first_slot * activated_stride(layout.intermediate) +
         panel * fc1_columns_per_panel(layout.gated);
}

inline void prefetch_fc1_results(const Bound& bound, int64_t panel, const Block& block) {
  const int64_t stride = activated_stride(bound.weights.layout.intermediate);
  const bf16* to = fc1_results(bound, panel, block);
  for (int r = 0; r < block.count; ++r) prefetch_for_write(to + r * stride);
}

inline void finish_fc1_panel(const Bound& bound, Range tokens, const uint8_t* record, int64_t panel,
                             const Block& block, const float (*acc)[kPanelRows]) {
  const PackedLayout& layout = bound.weights.layout;
  const int32_t top_k = bound.caps.shape.top_k;
  const int32_t* slot_route = slice_data<int32_t>(bound, SliceId::slot_route);
  const float* globals = record_globals(layout, record);
  const float* bias = record_bias(layout, layout.fc1, record);
  if (bias != nullptr) bias += panel * kPanelRows;
  const int64_t stride = activated_stride(layout.intermediate);
  bf16* to = fc1_results(bound, panel, block);
  // FC2 reads whole k tiles; a gated FC1 with an odd number of panels leaves half of the last one.
  const bool fill = layout.gated && panel + 1 == fc1_panels(layout) && panel % 2 == 0;
  for (int r = 0; r < block.count; ++r, to += stride) {
    float on_input = 1;
    if (bound.caps.router_weight_on_input) {
      const int32_t at = slot_route[block.first_slot + r];
      on_input = router_weight_at(bound, tokens.first + at / top_k, at % top_k);
    }
    store_activated(bound.caps.activation, layout.gated, globals, bias, on_input, acc[r], to);
    if (fill) store(to + kLanes, U16{});
  }
}

inline void fc1(const Bound& bound, Range tokens, Sync& sync, int32_t worker) {
  const PackedLayout& layout = bound.weights.layout;
  const int32_t top_k = bound.caps.shape.top_k;
  const int32_t* active = slice_data<int32_t>(bound, SliceId::active_experts);
  const int32_t* offsets = slice_data<int32_t>(bound, SliceId::expert_offsets);
  const int32_t* slot_route = slice_data<int32_t>(bound, SliceId::slot_route);
  const Scratch scratch = scratch_of(bound, worker, Kernel::kUsesTiles);
  const int64_t most =
      block_slots(layout.fc1.padded_k, bound.schedule.chunk_routes, Kernel::kUsesTiles);
  const int64_t panels = fc1_panels(layout);
  const int64_t together = fc1_panels_together(panels, sync.num_active, bound.schedule.num_workers);
  const int64_t groups = ceil_div(panels, together);
  Kernel kernel(bound, scratch);
  Block block;
  int32_t prepared = -1;  // expert whose only block is prepared
  const int64_t tasks = sync.num_active * groups;
  for (int64_t t; (t = sync.fc1_task.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
    const int32_t expert = active[t / groups];
    const Range slots = {offsets[expert], offsets[expert + 1]};
    const Range share = piece_of(panels, together, t % groups);
    const uint8_t* record = expert_record(bound, expert);
    for (int64_t first = slots.first; first < slots.last; first += most) {
      if (prepared != expert) {
        block.first_slot = first;
        block.count = static_cast<int>(min_of(most, slots.last - first));
        for (int r = 0; r < block.count; ++r) {
          block.rows[r] = x_row(bound, tokens.first + slot_route[first + r] / top_k);
        }
        kernel.prepare(layout.fc1, block.rows, block.count, 0);
        if (slots.size() <= most) prepared = expert;
      }
      for (int64_t panel = share.first; panel < share.last; ++panel) {
        const int64_t after = panel + 1 < panels ? panel + 1 : share.first;
        const Next next = {panel_codes(layout, layout.fc1, record, after)};
        prefetch_fc1_results(bound, panel, block);
        kernel.multiply(record, panel, next, scratch.acc);
        finish_fc1_panel(bound, tokens, record, panel, block, scratch.acc);
      }
    }
    if (slots.size() > most) prepared = -1;
  }
}
