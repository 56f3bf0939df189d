// SPDX-License-Identifier: Apache-2.0
// Combine of one panel of output columns: the worker that computed the rows sums them.
#pragma once

#include "backend/backend.h"
#include "geometry/schedule.h"

namespace snug::cpu {

/// y[t][n] = sum over j < top_k, in order, of topk_weights[t][j] * rows[route(t, j)][n], for the
/// panel's columns; routes that contribute nothing are neither read nor added. One rounding.
void combine(const Bound& bound, Range tokens, int64_t panel, int32_t worker);

}  // namespace snug::cpu
