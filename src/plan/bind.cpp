// SPDX-License-Identifier: Apache-2.0
#include "plan/bind.h"

#include <type_traits>

#include "moe/expert_map.h"

namespace snug {

static_assert(std::is_trivially_copyable_v<Bound>);

namespace {

/// Bytes that a strided matrix touches, from its first element.
struct Extent {
  const char* name;
  uintptr_t first;
  uint64_t nbytes;
};

Extent extent_of(const char* name, const void* data, int64_t rows, int64_t columns, int64_t stride,
                 int element_nbytes) {
  const int64_t elements = rows > 0 ? (rows - 1) * stride + columns : 0;
  return {name, reinterpret_cast<uintptr_t>(data),
          static_cast<uint64_t>(elements * element_nbytes)};
}

Status check_apart(const Extent& written, const Extent& other) {
  const bool apart = written.nbytes == 0 || other.nbytes == 0 ||
                     written.first + written.nbytes <= other.first ||
                     other.first + other.nbytes <= written.first;
  if (apart) return {};
  return make_error(Code::invalid_argument, "%s: overlaps %s, must lie apart", written.name,
                    other.name);
}

Status check_matrix(const char* name, const void* data, int64_t stride, int64_t columns,
                    int64_t alignment) {
  if (data == nullptr) return make_error(Code::invalid_argument, "%s: is null", name);
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment) != 0) {
    return make_error(Code::misaligned, "%s: have address %p, need a multiple of %lld", name, data,
                      static_cast<long long>(alignment));
  }
  // The upper bound keeps every row offset far below 2^63.
  if (stride < columns || stride > (int64_t{1} << 32)) {
    return make_error(Code::invalid_argument, "%s: have row stride %lld, need %lld..2^32", name,
                      static_cast<long long>(stride), static_cast<long long>(columns));
  }
  return {};
}

Status check_dtype(const char* name, DType have, DType one, DType other) {
  if (have == one || have == other) return {};
  return make_error(Code::invalid_argument, "%s: have dtype %s, need %s or %s", name,
                    dtype_name(have), dtype_name(one), dtype_name(other));
}

bool same_matrix(const MatrixLayout& a, const MatrixLayout& b) {
  return a.rows.value == b.rows.value && a.padded_rows.value == b.padded_rows.value && a.k == b.k &&
         a.padded_k == b.padded_k && a.codes_offset == b.codes_offset &&
         a.scales_offset == b.scales_offset && a.bias_offset == b.bias_offset;
}

Status check_weights(const Plan& plan, const WeightsView& weights) {
  const PackedLayout need = packed_layout(plan);
  const PackedLayout& have = weights.layout;
  if (have.tag != need.tag) {
    return make_error(Code::invalid_argument, "weights: have layout %s, the plan needs %s",
                      layout_name(have.tag), layout_name(need.tag));
  }
  const bool same = have.format == need.format && have.gated == need.gated &&
                    have.has_bias == need.has_bias &&
                    have.num_local_experts == need.num_local_experts &&
                    have.expert_nbytes == need.expert_nbytes && same_matrix(have.fc1, need.fc1) &&
                    same_matrix(have.fc2, need.fc2);
  if (!same) {
    return make_error(Code::invalid_argument,
                      "weights: have %s, %d experts, hidden %d, intermediate %d, %sgated, %s bias; "
                      "the plan is for %s, %d, %d, %d, %sgated, %s bias",
                      format_info(have.format).name, have.num_local_experts, have.hidden,
                      have.intermediate, have.gated ? "" : "un", have.has_bias ? "with" : "no",
                      format_info(need.format).name, need.num_local_experts, need.hidden,
                      need.intermediate, need.gated ? "" : "un", need.has_bias ? "with" : "no");
  }
  return {};
}

Status check_weight_data(const WeightsView& weights) {
  if (weights.layout.total_nbytes() == 0) return {};
  if (weights.data == nullptr) return make_error(Code::invalid_argument, "weights: data is null");
  if (reinterpret_cast<uintptr_t>(weights.data) % kRecordAlignment != 0) {
    return make_error(Code::misaligned, "weights: have address %p, need a multiple of %lld",
                      static_cast<const void*>(weights.data),
                      static_cast<long long>(kRecordAlignment));
  }
  return {};
}

Status check_arena(const Plan& plan, const IoView& io) {
  if (io.arena_nbytes < plan.required_nbytes) {
    return make_error(Code::arena_too_small, "arena_nbytes: have %llu, plan needs %llu",
                      static_cast<unsigned long long>(io.arena_nbytes),
                      static_cast<unsigned long long>(plan.required_nbytes));
  }
  if (plan.required_nbytes == 0) return {};
  if (io.arena == nullptr) return make_error(Code::invalid_argument, "arena: is null");
  if (reinterpret_cast<uintptr_t>(io.arena) % kArenaAlignment != 0) {
    return make_error(Code::misaligned, "arena: have address %p, need a multiple of %llu", io.arena,
                      static_cast<unsigned long long>(kArenaAlignment));
  }
  return {};
}

Status check_map(const Caps& caps, const IoView& io) {
  const MoeShape& shape = caps.shape;
  if (io.expert_map != nullptr) {
    return check_expert_map(io.expert_map, shape.num_experts, shape.num_local_experts,
                            io.allow_replicas);
  }
  if (shape.num_local_experts == shape.num_experts) return {};
  return make_error(Code::invalid_argument,
                    "expert_map: is null, but %d of %d experts are local (a map is needed)",
                    shape.num_local_experts, shape.num_experts);
}

Status check_overlaps(const Caps& caps, uint64_t arena_nbytes, const WeightsView& weights,
                      const IoView& io) {
  const int64_t hidden = caps.shape.hidden, top_k = caps.shape.top_k, rows = io.num_tokens;
  const Extent inputs[] = {
      extent_of("x", io.x, rows, hidden, io.x_stride, 2),
      extent_of("topk_ids", io.topk_ids, rows, top_k, io.ids_stride, dtype_nbytes(io.ids_dtype)),
      extent_of("topk_weights", io.topk_weights, rows, top_k, io.weights_stride,
                dtype_nbytes(io.weights_dtype)),
      extent_of("expert_map", io.expert_map, io.expert_map != nullptr ? 1 : 0,
                caps.shape.num_experts, 0, 4),
      {"weights", reinterpret_cast<uintptr_t>(weights.data),
       static_cast<uint64_t>(weights.layout.total_nbytes())},
  };
  const Extent output = extent_of("output", io.output, rows, hidden, io.output_stride,
                                  dtype_nbytes(caps.output_dtype));
  const Extent arena = {"arena", reinterpret_cast<uintptr_t>(io.arena), arena_nbytes};
  SNUG_RETURN_IF_ERROR(check_apart(output, arena));
  for (const Extent& input : inputs) {
    SNUG_RETURN_IF_ERROR(check_apart(output, input));
    SNUG_RETURN_IF_ERROR(check_apart(arena, input));
  }
  return {};
}

Status check_io(const Caps& caps, const IoView& io) {
  const int64_t hidden = caps.shape.hidden, top_k = caps.shape.top_k;
  SNUG_RETURN_IF_ERROR(check_dtype("topk_ids", io.ids_dtype, DType::s32, DType::s64));
  SNUG_RETURN_IF_ERROR(check_dtype("topk_weights", io.weights_dtype, DType::f32, DType::bf16));
  SNUG_RETURN_IF_ERROR(check_matrix("x", io.x, io.x_stride, hidden, 2));
  SNUG_RETURN_IF_ERROR(
      check_matrix("topk_ids", io.topk_ids, io.ids_stride, top_k, dtype_nbytes(io.ids_dtype)));
  SNUG_RETURN_IF_ERROR(check_matrix("topk_weights", io.topk_weights, io.weights_stride, top_k,
                                    dtype_nbytes(io.weights_dtype)));
  return check_matrix("output", io.output, io.output_stride, hidden,
                      dtype_nbytes(caps.output_dtype));
}

}  // namespace

Status bind(const Plan& plan, const WeightsView& weights, const IoView& io,
            const Executor& executor, Bound* bound) {
  if (io.num_tokens < 0 || io.num_tokens > plan.caps.max_tokens) {
    return make_error(Code::invalid_argument, "num_tokens: have %lld, the plan is for 0..%lld",
                      static_cast<long long>(io.num_tokens),
                      static_cast<long long>(plan.caps.max_tokens));
  }
  SNUG_RETURN_IF_ERROR(check_weights(plan, weights));
  if (io.num_tokens > 0) {
    SNUG_RETURN_IF_ERROR(check_weight_data(weights));
    SNUG_RETURN_IF_ERROR(check_io(plan.caps, io));
    SNUG_RETURN_IF_ERROR(check_arena(plan, io));
    SNUG_RETURN_IF_ERROR(check_map(plan.caps, io));
    SNUG_RETURN_IF_ERROR(check_overlaps(plan.caps, plan.required_nbytes, weights, io));
  }
  *bound = {plan.caps, make_schedule(plan, io.num_tokens), weights, io, executor};
  return {};
}

}  // namespace snug
