// SPDX-License-Identifier: Apache-2.0
// FC2 of one route, added to its token's sum.
#pragma once

#include "backend/reference/route.h"
#include "backend/reference/weight.h"

namespace snug::reference {

/// sum[n] += r * (W2[n] . a * global + b2[n]); r is 1 when the router weight was applied on input.
///   activated  [intermediate]  T  arena
///   sum        [hidden]        T  arena
template <class T>
void fc2_add(const Bound& bound, const Route& route, const T* activated, T* sum) {
  const PackedLayout& layout = bound.weights.layout;
  const uint8_t* record = expert_record(bound, route.expert);
  const T global = static_cast<T>(record_globals(layout, record)[2]);
  const float* bias = record_bias(layout, layout.fc2, record);
  const T weight = bound.caps.router_weight_on_input ? T(1) : static_cast<T>(route.weight);
  for (int64_t n = 0; n < layout.hidden; ++n) {
    T y = 0;
    for (int64_t k = 0; k < layout.fc2.k; ++k) {
      y += activated[k] * static_cast<T>(weight_at(layout, layout.fc2, record, n, k));
    }
    y *= global;
    if (bias != nullptr) y += static_cast<T>(bias[n]);
    sum[n] += weight * y;
  }
}

}  // namespace snug::reference
