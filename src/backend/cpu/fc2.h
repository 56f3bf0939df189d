// SPDX-License-Identifier: Apache-2.0
// FC2 of one panel of output columns, for all experts of a chunk.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/workers.h"
#include "geometry/schedule.h"

namespace snug::cpu {

/// A worker's private block of FC2 rows: f32[chunk routes, 32], indexed by route.
inline float* worker_rows(const Bound& bound, int32_t worker) {
  return slice_data<float>(bound, SliceId::fc2_rows) +
         worker * bound.schedule.chunk_routes * kPanelRows;
}

/// rows[route][lane] = W2[32 * panel + lane] . a * global + b2, for every route that has a slot.
void fc2(const Bound& bound, const Sync& sync, int64_t panel, int32_t worker);

}  // namespace snug::cpu
