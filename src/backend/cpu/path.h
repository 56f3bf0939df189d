// SPDX-License-Identifier: Apache-2.0
// The steps of a layer as each instruction-set path compiles them. A path is one translation unit
// in a namespace of its own: snug::cpu::portable, avx2, avx512, vnni, bf16dot, amx.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/workers.h"
#include "base/cpu_path.h"
#include "geometry/cpu_blocks.h"
#include "geometry/schedule.h"

namespace snug::cpu {

struct Path {
  CpuPath id;

  /// Takes (expert, panels) tasks until none is left. Writes
  ///   activated  [slots, intermediate]  bf16  arena; rows in expert order, activated_stride apart
  void (*fc1)(const Bound& bound, Range tokens, Sync& sync, int32_t worker);

  /// rows[panel][route][lane] = W2[32 * panel + lane] . a * global + b2 for the panels of one
  /// block and every route that has a slot, into the worker's own rows.
  void (*fc2)(const Bound& bound, const Sync& sync, Range panels, int32_t worker);

  /// y[t][n] = sum over j < top_k, in order, of topk_weights[t][j] * rows[route(t, j)][n] for the
  /// panels' columns; routes that contribute nothing are neither read nor added. One rounding.
  void (*combine)(const Bound& bound, Range tokens, Range panels, int32_t worker);
};

/// The steps of a path; a path that this build has no code for gives the portable one.
const Path& path_of(CpuPath path);

/// What a kernel may fetch while it works on a panel.
struct Next {
  const uint8_t* codes;           // of the panel that follows
  const uint8_t* rows = nullptr;  // a share of the rows that the next expert's panels will meet
  int64_t row_lines = 0;          // its cache lines
};

/// A worker's private scratch, by its parts.
struct Scratch {
  uint8_t* rows;
  uint8_t* strip;
  float (*acc)[kPanelRows];
};

inline Scratch scratch_of(const Bound& bound, int32_t worker, bool tiles) {
  const MoeShape& shape = bound.caps.shape;
  const WorkerScratch parts =
      worker_scratch(shape.hidden, shape.intermediate, bound.schedule.chunk_routes, tiles);
  uint8_t* base = slice_data<uint8_t>(bound, SliceId::worker_scratch) + worker * parts.nbytes;
  return {base + parts.rows_offset, base + parts.strip_offset,
          reinterpret_cast<float(*)[kPanelRows]>(base + parts.acc_offset)};
}

/// A worker's private block of FC2 rows: f32[panels of a block][chunk routes][32].
inline float* worker_rows(const Bound& bound, int32_t worker) {
  return slice_data<float>(bound, SliceId::fc2_rows) +
         worker * bound.schedule.chunk_routes * bound.schedule.policy.column_block;
}

}  // namespace snug::cpu
