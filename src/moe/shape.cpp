// SPDX-License-Identifier: Apache-2.0
#include "moe/shape.h"

namespace snug {

namespace {

Status check_range(const char* name, int32_t have, int32_t low, int32_t high) {
  if (have >= low && have <= high) return {};
  return make_error(Code::invalid_argument, "%s: have %d, need %d..%d", name, have, low, high);
}

}  // namespace

Status check_shape(const MoeShape& shape) {
  SNUG_RETURN_IF_ERROR(check_range("hidden", shape.hidden, 1, kMaxWidth));
  SNUG_RETURN_IF_ERROR(check_range("intermediate", shape.intermediate, 1, kMaxWidth));
  SNUG_RETURN_IF_ERROR(check_range("num_experts", shape.num_experts, 1, kMaxExperts));
  SNUG_RETURN_IF_ERROR(
      check_range("num_local_experts", shape.num_local_experts, 0, shape.num_experts));
  return check_range("top_k", shape.top_k, 1, kMaxTopK);
}

}  // namespace snug
