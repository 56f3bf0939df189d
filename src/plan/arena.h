// SPDX-License-Identifier: Apache-2.0
// The arena: named slices, each live from its first writer to its last reader. One function prices
// and places them; nobody else does arithmetic on arena bytes.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "plan/caps.h"
#include "plan/kernel_family.h"

namespace snug {

/// Alignment that bind demands of the arena's base, and that every slice's offset has.
inline constexpr uint64_t kArenaAlignment = 128;

/// The parts of a run, in order.
enum class Step : int32_t { route = 0, fc1 = 1, fc2 = 2, combine = 3 };
inline constexpr int kNumSteps = 4;

constexpr const char* step_name(Step step) {
  constexpr const char* kNames[kNumSteps] = {"route", "fc1", "fc2", "combine"};
  return kNames[static_cast<int>(step)];
}

/// What a slice holds. The order is the order of placement: what every step needs comes first, then
/// what grows with the tokens, then what may share its bytes. So no end moves back when tokens are
/// added, and a regime is priced at its last count.
enum class SliceId : int32_t {
  sync = 0,          // s32[64 + column blocks]  task counters and barrier words
  local_expert = 1,  // s32[routes]             local expert of each route, -1 = contributes nothing
  expert_offsets = 2,  // s32[experts + 1]        first slot of each expert
  slot_route = 3,      // s32[routes]             route of each slot, grouped by expert
  tile_expert = 4,     // s32[tiles]              expert of each route tile
  active_experts = 5,  // s32[experts]            the experts that have slots, ascending
  activated = 6,  // [routes, intermediate]  FC1's output after activation (bf16; f64 reference)
  fc2_rows = 7,   // [.., routes, column_block]  FC2's rows of a block (f32; f64 reference)
  worker_scratch = 8,  // u8[workers, ..]         CPU: prepared rows, decoded weights, sums
  expert_cursor = 9,   // s32[experts]            next free slot of each expert while grouping
};
inline constexpr int kNumSlices = 10;

constexpr const char* slice_name(SliceId id) {
  constexpr const char* kNames[kNumSlices] = {
      "sync",           "local_expert", "expert_offsets", "slot_route",     "tile_expert",
      "active_experts", "activated",    "fc2_rows",       "worker_scratch", "expert_cursor"};
  return kNames[static_cast<int>(id)];
}

struct Slice {
  uint64_t offset = 0;  // bytes from the arena's base
  uint64_t nbytes = 0;  // 0 = this schedule has no such slice
  DType dtype = DType::u8;
  Step first = Step::route;  // live from the first step to the last, inclusive
  Step last = Step::route;
};

struct ArenaLayout {
  Slice slices[kNumSlices];
  uint64_t required_nbytes = 0;  // end of the furthest slice: not rounded up

  const Slice& operator[](SliceId id) const { return slices[static_cast<int>(id)]; }
};

/// Column blocks that exist at once where blocks follow one another: one is summed while the next
/// is computed.
inline constexpr int64_t kColumnBlocksInFlight = 2;

/// How a regime does its work; with a token count it fixes every size.
struct Policy {
  int32_t family = 0;        // index into the plan's families
  int32_t route_tile = 8;    // slots a tile holds, or the widest tile
  int32_t column_block = 0;  // columns of FC2 in memory at a time; 0 = none
  int64_t chunk_tokens = 0;  // tokens processed together
};

/// Prices and places the slices of one chunk of `chunk_tokens` tokens (the live count if smaller).
/// Exact and pure; offsets never decrease when chunk_tokens grows at a fixed policy.
ArenaLayout lay_out_arena(const Caps& caps, const KernelFamily& family, const Policy& policy,
                          int64_t chunk_tokens);

}  // namespace snug
