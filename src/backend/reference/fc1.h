// SPDX-License-Identifier: Apache-2.0
// FC1 and the activation of one route.
#pragma once

#include "backend/reference/route.h"
#include "backend/reference/weight.h"

namespace snug::reference {

/// h = W13[row] . x * global (* router weight, on input) + bias, accumulated in T.
template <class T>
T fc1_row(const Bound& bound, const Route& route, int64_t packed, T global) {
  const PackedLayout& layout = bound.weights.layout;
  const uint8_t* record = expert_record(bound, route.expert);
  const bf16* x = x_row(bound, route.token);
  T h = 0;
  for (int64_t k = 0; k < layout.fc1.k; ++k) {
    h += static_cast<T>(bf16_to_f32(x[k])) *
         static_cast<T>(weight_at(layout, layout.fc1, record, packed, k));
  }
  h *= global;
  if (bound.caps.router_weight_on_input) h *= static_cast<T>(route.weight);
  const float* bias = record_bias(layout, layout.fc1, record);
  return bias != nullptr ? h + static_cast<T>(bias[packed]) : h;
}

/// activated[i] = act(gate_i, up_i), rounded to bf16 unless the numerics say otherwise.
///   activated  [intermediate]  T  arena
template <class T>
void fc1(const Bound& bound, const Route& route, T* activated) {
  const PackedLayout& layout = bound.weights.layout;
  const float* globals = record_globals(layout, expert_record(bound, route.expert));
  for (int64_t i = 0; i < layout.intermediate; ++i) {
    const T gate =
        fc1_row<T>(bound, route, packed_row(layout, true, false, i), static_cast<T>(globals[0]));
    const T up = layout.gated ? fc1_row<T>(bound, route, packed_row(layout, true, true, i),
                                           static_cast<T>(globals[1]))
                              : T(0);
    const T a = activate(bound.caps.activation, gate, up);
    switch (bound.caps.numerics) {
      case Numerics::contract:
        activated[i] = static_cast<T>(bf16_to_f32(f32_to_bf16(static_cast<float>(a))));
        break;
      case Numerics::float64:
        activated[i] = static_cast<T>(bf16_to_f32(f64_to_bf16(static_cast<double>(a))));
        break;
      case Numerics::float64_unrounded:
        activated[i] = a;
        break;
    }
  }
}

}  // namespace snug::reference
