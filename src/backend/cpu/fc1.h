// SPDX-License-Identifier: Apache-2.0
// FC1 with scale, bias and activation in its epilogue.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/workers.h"
#include "geometry/schedule.h"

namespace snug::cpu {

/// Takes (expert, panel) tasks until none is left. Writes
///   activated  [slots, intermediate]  bf16  arena; rows in expert order
void fc1(const Bound& bound, Range tokens, Sync& sync);

}  // namespace snug::cpu
