// SPDX-License-Identifier: Apache-2.0
// The reference backend: the computation as plain loops, one token and one route at a time. Slow,
// obvious, and the judge of every other backend. Caps::numerics chooses f32 or f64.
#pragma once

#include "backend/backend.h"

namespace snug::reference {

/// Performs the layer; single-threaded; cannot fail.
Status run(const Bound& bound, void* stream);

}  // namespace snug::reference
