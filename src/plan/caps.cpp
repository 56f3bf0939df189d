// SPDX-License-Identifier: Apache-2.0
#include "plan/caps.h"

namespace snug {

namespace {

Status check_multiple(const char* name, int32_t have, const FormatInfo& info) {
  if (have % info.group_size == 0) return {};
  return make_error(Code::unsupported, "%s: have %d, %s needs a multiple of %d", name, have,
                    info.name, info.group_size);
}

Status check_capacity(const Caps& caps) {
  if (caps.max_tokens < 1 || caps.max_tokens > kMaxTokens) {
    return make_error(Code::invalid_argument, "max_tokens: have %lld, need 1..%lld",
                      static_cast<long long>(caps.max_tokens), static_cast<long long>(kMaxTokens));
  }
  if (caps.expected_tokens < 0 || caps.expected_tokens > caps.max_tokens) {
    return make_error(Code::invalid_argument, "expected_tokens: have %lld, need 0..%lld",
                      static_cast<long long>(caps.expected_tokens),
                      static_cast<long long>(caps.max_tokens));
  }
  const int path = static_cast<int>(caps.cpu_path);
  if (path < 0 || path >= kNumCpuPaths) {
    return make_error(Code::invalid_argument, "cpu_path: have %d, need 0..%d", path,
                      kNumCpuPaths - 1);
  }
  if (caps.num_threads < 1 || caps.num_threads > kMaxThreads) {
    return make_error(Code::invalid_argument, "num_threads: have %d, need 1..%d", caps.num_threads,
                      kMaxThreads);
  }
  return {};
}

}  // namespace

Status check_caps(const Caps& caps) {
  SNUG_RETURN_IF_ERROR(check_shape(caps.shape));
  const int format = static_cast<int>(caps.format);
  if (format < 0 || format >= kNumFormats) {
    return make_error(Code::invalid_argument, "format: have %d, need 0..%d", format,
                      kNumFormats - 1);
  }
  const FormatInfo info = format_info(caps.format);
  SNUG_RETURN_IF_ERROR(check_multiple("hidden", caps.shape.hidden, info));
  SNUG_RETURN_IF_ERROR(check_multiple("intermediate", caps.shape.intermediate, info));
  SNUG_RETURN_IF_ERROR(check_activation(caps.activation));
  if (caps.output_dtype != DType::bf16 && caps.output_dtype != DType::f32) {
    return make_error(Code::invalid_argument, "output_dtype: have %s, need bf16 or f32",
                      dtype_name(caps.output_dtype));
  }
  const int numerics = static_cast<int>(caps.numerics);
  if (numerics < 0 || numerics >= kNumNumerics) {
    return make_error(Code::invalid_argument, "numerics: have %d, need 0..%d", numerics,
                      kNumNumerics - 1);
  }
  if (caps.router_weight_on_input && caps.shape.top_k != 1) {
    return make_error(Code::unsupported,
                      "router_weight_on_input: have top_k %d, need 1 (the weight would have to "
                      "multiply each route's own input)",
                      caps.shape.top_k);
  }
  return check_capacity(caps);
}

}  // namespace snug
