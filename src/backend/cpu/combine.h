// SPDX-License-Identifier: Apache-2.0
// Combine of a block of output columns: the worker that computed the rows sums them. Included
// inside a path's namespace, after isa/vectors.h.

/// Up to 16 output elements of a token, rounded once.
SNUG_INLINE void store_columns(const Bound& bound, int64_t token, int64_t column, F32 sum) {
  const int64_t left = bound.caps.shape.hidden - column;
  const int64_t at = token * bound.io.output_stride + column;
  const U16 rounded = f32_to_bf16(sum);
  if (left >= kLanes) {
    if (bound.caps.output_dtype == DType::f32) {
      store(static_cast<float*>(bound.io.output) + at, sum);
    } else {
      store(static_cast<bf16*>(bound.io.output) + at, rounded);
    }
    return;
  }
  for (int64_t i = 0; i < left; ++i) {
    if (bound.caps.output_dtype == DType::f32) {
      static_cast<float*>(bound.io.output)[at + i] = sum[i];
    } else {
      static_cast<bf16*>(bound.io.output)[at + i].bits = rounded[i];
    }
  }
}

inline void combine(const Bound& bound, Range tokens, Range panels, int32_t worker) {
  const int32_t top_k = bound.caps.shape.top_k;
  const int32_t* local_expert = slice_data<int32_t>(bound, SliceId::local_expert);
  for (int64_t panel = panels.first; panel < panels.last; ++panel) {
    const float* rows = worker_rows(bound, worker) +
                        (panel - panels.first) * bound.schedule.chunk_routes * kPanelRows;
    int64_t at = 0;
    for (int64_t token = tokens.first; token < tokens.last; ++token) {
      F32 first = {}, second = {};
      for (int32_t slot = 0; slot < top_k; ++slot, ++at) {
        if (local_expert[at] < 0) continue;
        const float weight =
            bound.caps.router_weight_on_input ? 1.0f : router_weight_at(bound, token, slot);
        first += weight * load<F32>(rows + at * kPanelRows);
        second += weight * load<F32>(rows + at * kPanelRows + kLanes);
      }
      store_columns(bound, token, panel * kPanelRows, first);
      store_columns(bound, token, panel * kPanelRows + kLanes, second);
    }
  }
}
