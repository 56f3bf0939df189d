// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/combine.h"

#include "backend/cpu/fc2.h"

namespace snug::cpu {

void combine(const Bound& bound, Range tokens, int64_t panel, int32_t worker) {
  const int32_t top_k = bound.caps.shape.top_k;
  const int32_t* local_expert = slice_data<int32_t>(bound, SliceId::local_expert);
  const float* rows = worker_rows(bound, worker);
  const Range columns = piece_of(bound.caps.shape.hidden, kPanelRows, panel);
  int64_t at = 0;
  for (int64_t token = tokens.first; token < tokens.last; ++token) {
    float sum[kPanelRows] = {};
    for (int32_t slot = 0; slot < top_k; ++slot, ++at) {
      if (local_expert[at] < 0) continue;
      const float weight =
          bound.caps.router_weight_on_input ? 1.0f : router_weight_at(bound, token, slot);
      const float* row = rows + at * kPanelRows;
      for (int n = 0; n < kPanelRows; ++n) sum[n] += weight * row[n];
    }
    for (int64_t n = 0; n < columns.size(); ++n) {
      store_output(bound, token, columns.first + n, sum[n]);
    }
  }
}

}  // namespace snug::cpu
