// SPDX-License-Identifier: Apache-2.0
// How the CPU backend cuts a chunk into blocks, and the scratch that a worker needs for one.
#pragma once

#include <cstdint>

#include "base/integers.h"
#include "geometry/packed_weights.h"
#include "geometry/schedule.h"

namespace snug::cpu {

inline constexpr int kTileSlots = 16;            // slots of an AMX tile
inline constexpr int64_t kRingNbytes = 8 << 10;  // decoded weights of a few steps of K
inline constexpr int kMaxBlockSlots = 256;       // slots of a block, at most
inline constexpr int64_t kRowsNbytes = 1 << 20;  // what a block's prepared rows may take of the L2

/// bf16 elements from one activated slot to the next: whole k tiles, and never a multiple of
/// 256 bytes, so that the rows of a tile fall into different cache sets.
constexpr int64_t activated_stride(int64_t intermediate) {
  const int64_t padded = align_up(intermediate, kTileK);
  return padded % 128 == 0 ? padded + kTileK : padded;
}

/// Bytes of a prepared row: bf16 tiles, or two planes of s16 with an f32 scale a k tile each.
constexpr int64_t prepared_row_nbytes(int64_t padded_k, bool tiles) {
  return tiles ? padded_k * 2 : padded_k * 4 + padded_k / kTileK * 8;
}

/// Slots of one expert that are prepared together for a matrix of padded_k columns, in a chunk of
/// `routes` routes: what fits kRowsNbytes, in whole pairs of tiles, and no more than there can be.
constexpr int64_t block_slots(int64_t padded_k, int64_t routes, bool tiles) {
  const int64_t pair = 2 * kTileSlots;
  const int64_t fit = kRowsNbytes / prepared_row_nbytes(padded_k, tiles) / pair * pair;
  return min_of(min_of<int64_t>(max_of(fit, pair), kMaxBlockSlots),
                tiles ? align_up(routes, int64_t{kTileSlots}) : routes);
}

constexpr int64_t strip_nbytes(int64_t padded_k, int64_t routes, bool tiles) {
  if (!tiles) return 0;
  return routes > 2 * kTileSlots ? max_of(padded_k * kPanelRows * 2, kRingNbytes) : kRingNbytes;
}

/// A worker's private scratch, in bytes from its start; each part is 64-byte aligned.
///   rows   a block's prepared rows; with tiles a few slots' integer planes take less
///   strip  a panel's weights as bf16 tiles (tiles only): all, or a ring where two tiles of slots
///   are
///          the most
///   acc    f32[block slots, 32]
struct WorkerScratch {
  int64_t rows_offset = 0;
  int64_t strip_offset = 0;
  int64_t acc_offset = 0;
  int64_t nbytes = 0;
};

/// Grows with `routes`, part by part.
constexpr WorkerScratch worker_scratch(int64_t hidden, int64_t intermediate, int64_t routes,
                                       bool tiles) {
  const int64_t k1 = align_up(hidden, kTileK), k2 = align_up(intermediate, kTileK);
  const int64_t slots1 = block_slots(k1, routes, tiles), slots2 = block_slots(k2, routes, tiles);
  WorkerScratch s;
  s.strip_offset = align_up(
      max_of(slots1 * prepared_row_nbytes(k1, tiles), slots2 * prepared_row_nbytes(k2, tiles)), 64);
  s.acc_offset = s.strip_offset + strip_nbytes(max_of(k1, k2), routes, tiles);
  const int64_t sums = max_of(slots1, slots2);
  s.nbytes = s.acc_offset + (tiles ? align_up(sums, 2 * kTileSlots) : sums) * kPanelRows * 4;
  return s;
}

/// FC2 panels of one task: the column block's, or fewer for an even end.
constexpr int64_t fc2_panels_together(int64_t panels, int64_t column_block, int64_t workers) {
  return max_of<int64_t>(1, min_of(column_block / kPanelRows, panels / (4 * workers)));
}

/// FC1 panels of one task: enough tasks for an even end, few enough to share prepared rows.
constexpr int64_t fc1_panels_together(int64_t panels, int64_t active_experts, int64_t workers) {
  const int64_t even = panels * active_experts / (16 * workers);
  return max_of<int64_t>(1, min_of(even, panels));
}

}  // namespace snug::cpu
