// SPDX-License-Identifier: Apache-2.0
// snug.h: routing on the host.
#include <cmath>

#include "api/convert.h"
#include "moe/routing.h"

using namespace snug;
using namespace snug::api;

namespace {

struct Logits {
  const void* data;
  DType dtype;
  int64_t stride;

  float at(int64_t token, int32_t expert) const {
    const int64_t i = token * stride + expert;
    return dtype == DType::bf16 ? bf16_to_f32(static_cast<const bf16*>(data)[i])
                                : static_cast<const float*>(data)[i];
  }
};

Status check_arguments(const Logits& logits, int64_t num_tokens, int32_t num_experts,
                       const int32_t* ids, const float* weights) {
  if (num_tokens < 0 || num_tokens > kMaxTokens) {
    return make_error(Code::invalid_argument, "num_tokens: have %lld, need 0..%lld",
                      static_cast<long long>(num_tokens), static_cast<long long>(kMaxTokens));
  }
  if (logits.dtype != DType::f32 && logits.dtype != DType::bf16) {
    return make_error(Code::invalid_argument, "logits: have dtype %s, need f32 or bf16",
                      dtype_name(logits.dtype));
  }
  if (num_tokens == 0) return {};
  if (logits.data == nullptr) return null_argument("logits");
  if (ids == nullptr) return null_argument("topk_ids");
  if (weights == nullptr) return null_argument("topk_weights");
  if (logits.stride < num_experts || logits.stride > (int64_t{1} << 32)) {
    return make_error(Code::invalid_argument, "logits_stride: have %lld, need %d..2^32",
                      static_cast<long long>(logits.stride), num_experts);
  }
  return {};
}

Status route_all(const snug_routing* routing, const Logits& logits, const float* bias,
                 int64_t num_tokens, int32_t num_experts, int32_t top_k, int32_t* ids,
                 float* weights) {
  SNUG_ASSIGN_OR_RETURN(const Routing rule, read_routing(routing));
  SNUG_RETURN_IF_ERROR(check_routing(rule, num_experts, top_k));
  SNUG_RETURN_IF_ERROR(check_arguments(logits, num_tokens, num_experts, ids, weights));
  float row[kMaxExperts];
  float choice[kMaxExperts];
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int32_t e = 0; e < num_experts; ++e) row[e] = logits.at(t, e);
    route_token(rule, num_experts, top_k, row, bias, choice, ids + t * top_k, weights + t * top_k);
  }
  return {};
}

}  // namespace

extern "C" {

void snug_routing_init(snug_routing* routing) {
  if (routing != nullptr) *routing = write_routing({});
}

snug_status snug_route(const snug_routing* routing, const void* logits, int32_t logits_dtype,
                       int64_t logits_stride, const float* bias, int64_t num_tokens,
                       int32_t num_experts, int32_t top_k, int32_t* topk_ids, float* topk_weights,
                       snug_error* error) {
  const Logits view = {logits, static_cast<DType>(logits_dtype), logits_stride};
  return finish(
      route_all(routing, view, bias, num_tokens, num_experts, top_k, topk_ids, topk_weights),
      error);
}

}  // extern "C"
