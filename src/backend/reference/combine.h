// SPDX-License-Identifier: Apache-2.0
// Combine, the plain way: a sum that starts at zero and is stored once, rounded once.
#pragma once

#include "backend/backend.h"

namespace snug::reference {

template <class T>
void clear_sum(const Bound& bound, T* sum) {
  for (int64_t n = 0; n < bound.caps.shape.hidden; ++n) sum[n] = 0;
}

template <class T>
void store_sum(const Bound& bound, int64_t token, const T* sum) {
  for (int64_t n = 0; n < bound.caps.shape.hidden; ++n) store_output(bound, token, n, sum[n]);
}

}  // namespace snug::reference
