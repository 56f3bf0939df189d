// SPDX-License-Identifier: Apache-2.0
// The table that each machine fills in, and the accessors that all of them read their inputs with.
#pragma once

#include <cstdint>
#include <span>

#include "base/bf16.h"
#include "moe/expert_map.h"
#include "plan/bind.h"

namespace snug {

/// One machine's backend. The api hands a table's families to the planner and calls its run.
struct Backend {
  Machine machine;
  std::span<const KernelFamily> families;
  /// Enqueues (CUDA) or performs (CPU) the layer; null when this build has no kernels for it.
  Status (*run)(const Bound& bound, void* stream);
};

/// The local expert of route `slot` of token `token`, or -1 when it contributes nothing.
inline int32_t local_expert_at(const Bound& bound, int64_t token, int32_t slot) {
  const IoView& io = bound.io;
  const int64_t at = token * io.ids_stride + slot;
  const int64_t id = io.ids_dtype == DType::s64 ? static_cast<const int64_t*>(io.topk_ids)[at]
                                                : static_cast<const int32_t*>(io.topk_ids)[at];
  return local_expert_of(id, bound.caps.shape.num_experts, io.expert_map);
}

/// The router weight of route `slot` of token `token`.
inline float router_weight_at(const Bound& bound, int64_t token, int32_t slot) {
  const IoView& io = bound.io;
  const int64_t at = token * io.weights_stride + slot;
  return io.weights_dtype == DType::bf16
             ? bf16_to_f32(static_cast<const bf16*>(io.topk_weights)[at])
             : static_cast<const float*>(io.topk_weights)[at];
}

/// Row `token` of x: bf16[hidden].
inline const bf16* x_row(const Bound& bound, int64_t token) {
  return static_cast<const bf16*>(bound.io.x) + token * bound.io.x_stride;
}

/// Stores one output element, rounded once. T is float or double.
template <class T>
void store_output(const Bound& bound, int64_t token, int64_t column, T value) {
  const int64_t at = token * bound.io.output_stride + column;
  if (bound.caps.output_dtype == DType::f32) {
    static_cast<float*>(bound.io.output)[at] = static_cast<float>(value);
  } else if constexpr (sizeof(T) == sizeof(double)) {
    static_cast<bf16*>(bound.io.output)[at] = f64_to_bf16(value);
  } else {
    static_cast<bf16*>(bound.io.output)[at] = f32_to_bf16(value);
  }
}

/// A slice of the arena as elements of T; null when the schedule has none.
template <class T>
T* slice_data(const Bound& bound, SliceId id) {
  const Slice& slice = bound.schedule.layout[id];
  if (slice.nbytes == 0) return nullptr;
  return reinterpret_cast<T*>(static_cast<uint8_t*>(bound.io.arena) + slice.offset);
}

/// The record of one local expert.
inline const uint8_t* expert_record(const Bound& bound, int32_t expert) {
  return bound.weights.data + expert * bound.weights.layout.expert_nbytes;
}

/// Typed views into a record.
inline const float* record_globals(const PackedLayout& layout, const uint8_t* record) {
  return reinterpret_cast<const float*>(record + layout.globals_offset);
}
/// RecordFlag bits.
inline uint32_t record_flags(const PackedLayout& layout, const uint8_t* record) {
  return reinterpret_cast<const uint32_t*>(record + layout.globals_offset)[3];
}
inline const float* record_bias(const PackedLayout& layout, const MatrixLayout& matrix,
                                const uint8_t* record) {
  return layout.has_bias ? reinterpret_cast<const float*>(record + matrix.bias_offset) : nullptr;
}

}  // namespace snug
