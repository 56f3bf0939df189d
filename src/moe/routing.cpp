// SPDX-License-Identifier: Apache-2.0
#include "moe/routing.h"

#include <cmath>

#include "moe/shape.h"

namespace snug {

Status check_routing(const Routing& r, int32_t num_experts, int32_t top_k) {
  const int score = static_cast<int>(r.score);
  if (score < 0 || score >= kNumScores) {
    return make_error(Code::invalid_argument, "routing.score: have %d, need 0..%d", score,
                      kNumScores - 1);
  }
  if (num_experts < 1 || num_experts > kMaxExperts) {
    return make_error(Code::invalid_argument, "num_experts: have %d, need 1..%d", num_experts,
                      kMaxExperts);
  }
  if (top_k < 1 || top_k > kMaxTopK || top_k > num_experts) {
    return make_error(Code::invalid_argument, "top_k: have %d, need 1..%d and at most %d experts",
                      top_k, kMaxTopK, num_experts);
  }
  if (r.num_groups < 1 || r.num_groups > kMaxGroups || num_experts % r.num_groups != 0) {
    return make_error(Code::invalid_argument,
                      "routing.num_groups: have %d, need 1..%d and a divisor of %d experts",
                      r.num_groups, kMaxGroups, num_experts);
  }
  if (r.topk_groups < 1 || r.topk_groups > r.num_groups) {
    return make_error(Code::invalid_argument, "routing.topk_groups: have %d, need 1..%d",
                      r.topk_groups, r.num_groups);
  }
  if (top_k > num_experts / r.num_groups * r.topk_groups) {
    return make_error(Code::invalid_argument,
                      "top_k: have %d, the %d groups that stay hold %d experts", top_k,
                      r.topk_groups, num_experts / r.num_groups * r.topk_groups);
  }
  const int rank = static_cast<int>(r.group_rank);
  if (rank < 0 || rank > 1) {
    return make_error(Code::invalid_argument, "routing.group_rank: have %d, need 0..1", rank);
  }
  if (!(std::fabs(r.scale) <= kMaxRoutingScale)) {
    return make_error(Code::invalid_argument,
                      "routing.scale: have %g, need at most %g in magnitude",
                      static_cast<double>(r.scale), static_cast<double>(kMaxRoutingScale));
  }
  return {};
}

}  // namespace snug
