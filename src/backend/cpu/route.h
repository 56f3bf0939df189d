// SPDX-License-Identifier: Apache-2.0
// Route: resolves the ids of a chunk and groups its routes by expert, in route order.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/workers.h"
#include "geometry/schedule.h"

namespace snug::cpu {

/// Fills local_expert, expert_offsets, slot_route and active_experts, and resets the task counters.
/// Run by one worker between barriers. A counting sort: an expert's slots keep their routes' order.
void route(const Bound& bound, Range tokens, Sync& sync);

}  // namespace snug::cpu
