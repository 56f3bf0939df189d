// SPDX-License-Identifier: Apache-2.0
// The CPU backend: one parallel region a layer, tasks taken from a counter in the arena, results
// that do not depend on who took which.
#pragma once

#include "backend/backend.h"

namespace snug::cpu {

/// Performs the layer on bound.schedule.num_workers workers (fewer if the executor has fewer).
Status run(const Bound& bound, void* stream);

/// Runs `body` on OpenMP's threads: the executor used when the caller brings none.
void parallel_openmp(void* context, int32_t num_workers, Executor::Body body, void* argument);

}  // namespace snug::cpu
