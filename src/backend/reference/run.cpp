// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/run.h"

#include "backend/reference/combine.h"
#include "backend/reference/fc1.h"
#include "backend/reference/fc2.h"
#include "backend/reference/route.h"

namespace snug::reference {

namespace {

template <class T>
void run_token(const Bound& bound, int64_t token) {
  T* activated = slice_data<T>(bound, SliceId::activated);
  T* sum = slice_data<T>(bound, SliceId::fc2_rows);
  clear_sum(bound, sum);
  for (int32_t slot = 0; slot < bound.caps.shape.top_k; ++slot) {
    const Route route = route_at(bound, token, slot);
    if (route.expert < 0) continue;
    fc1(bound, route, activated);
    fc2_add(bound, route, activated, sum);
  }
  store_sum(bound, token, sum);
}

}  // namespace

Status run(const Bound& bound, void* /*stream*/) {
  for (int64_t token = 0; token < bound.io.num_tokens; ++token) {
    if (bound.caps.numerics == Numerics::contract) {
      run_token<float>(bound, token);
    } else {
      run_token<double>(bound, token);
    }
  }
  return {};
}

}  // namespace snug::reference
