// SPDX-License-Identifier: Apache-2.0
#include "plan/arena.h"

#include "base/integers.h"
#include "geometry/cpu_blocks.h"
#include "geometry/route_tiles.h"

namespace snug {

namespace {

bool live_together(const Slice& a, const Slice& b) {
  return a.first <= b.last && b.first <= a.last;
}

/// Puts `slice` at the lowest aligned offset where no slice that lives with it lies.
void place(ArenaLayout& layout, Slice& slice) {
  if (slice.nbytes == 0) {
    slice.offset = 0;
    return;
  }
  uint64_t offset = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (const Slice& other : layout.slices) {
      if (&other == &slice || other.nbytes == 0 || other.offset == ~uint64_t{0}) continue;
      const bool apart = offset + slice.nbytes <= other.offset ||
                         other.offset + other.nbytes <= offset || !live_together(slice, other);
      if (apart) continue;
      offset = static_cast<uint64_t>(
          align_up(static_cast<int64_t>(other.offset + other.nbytes), kArenaAlignment));
      moved = true;
    }
  }
  slice.offset = offset;
  layout.required_nbytes = max_of(layout.required_nbytes, offset + slice.nbytes);
}

void set(ArenaLayout& layout, SliceId id, int64_t count, DType dtype, Step first, Step last) {
  Slice& slice = layout.slices[static_cast<int>(id)];
  slice.offset = ~uint64_t{0};  // not placed yet
  slice.nbytes = static_cast<uint64_t>(count) * dtype_nbytes(dtype);
  slice.dtype = dtype;
  slice.first = first;
  slice.last = last;
}

}  // namespace

ArenaLayout lay_out_arena(const Caps& caps, const KernelFamily& family, const Policy& policy,
                          int64_t chunk_tokens) {
  ArenaLayout layout;
  const int64_t routes = chunk_tokens * caps.shape.top_k;
  const int64_t experts = caps.shape.num_local_experts;
  const int64_t workers = family.machine == Machine::cpu ? caps.num_threads : 0;
  const bool reference = family.combine == Combine::token;

  if (!reference) {
    const int64_t counters = family.combine == Combine::column_block
                                 ? ceil_div(caps.shape.hidden, policy.column_block)
                                 : 0;
    set(layout, SliceId::sync, 64 + counters, DType::s32, Step::route, Step::combine);
  }
  if (family.groups_routes) {
    set(layout, SliceId::local_expert, routes, DType::s32, Step::route, Step::combine);
    set(layout, SliceId::expert_offsets, experts + 1, DType::s32, Step::route, Step::fc2);
    set(layout, SliceId::slot_route, routes, DType::s32, Step::route, Step::fc2);
    set(layout, SliceId::active_experts, experts, DType::s32, Step::route, Step::fc2);
    set(layout, SliceId::expert_cursor, experts, DType::s32, Step::route, Step::route);
    if (family.machine == Machine::cuda) {
      set(layout, SliceId::tile_expert,
          max_packed_slots(routes, policy.route_tile, experts) / policy.route_tile, DType::s32,
          Step::route, Step::fc2);
    }
  }
  if (reference) {  // one route and one token at a time
    set(layout, SliceId::activated, caps.shape.intermediate, DType::f64, Step::fc1, Step::fc2);
    set(layout, SliceId::fc2_rows, caps.shape.hidden, DType::f64, Step::fc2, Step::combine);
  } else if (family.machine == Machine::cpu) {
    const int64_t slots = routes + (family.uses_tiles ? cpu::kTileSlots - 1 : 0);
    set(layout, SliceId::activated, slots * cpu::activated_stride(caps.shape.intermediate),
        DType::bf16, Step::fc1, Step::fc2);
    set(layout, SliceId::fc2_rows, workers * routes * policy.column_block, DType::f32, Step::fc2,
        Step::combine);
    const cpu::WorkerScratch scratch =
        cpu::worker_scratch(caps.shape.hidden, caps.shape.intermediate, routes, family.uses_tiles);
    set(layout, SliceId::worker_scratch, workers * scratch.nbytes, DType::u8, Step::fc1, Step::fc2);
  } else {
    set(layout, SliceId::activated, routes * caps.shape.intermediate, DType::bf16, Step::fc1,
        Step::fc2);
  }
  if (family.combine == Combine::column_block) {
    const int64_t blocks = ceil_div(caps.shape.hidden, policy.column_block);
    set(layout, SliceId::fc2_rows,
        min_of(blocks, kColumnBlocksInFlight) * routes * policy.column_block, DType::f32, Step::fc2,
        Step::combine);
  }
  for (Slice& slice : layout.slices) place(layout, slice);
  return layout;
}

}  // namespace snug
