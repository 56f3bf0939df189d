// SPDX-License-Identifier: Apache-2.0
#include "moe/expert_map.h"

#include <bitset>

#include "moe/shape.h"

namespace snug {

Status check_expert_map(const int32_t* map, int32_t num_experts, int32_t num_local_experts,
                        bool allow_replicas) {
  std::bitset<kMaxExperts> seen;
  for (int32_t e = 0; e < num_experts; ++e) {
    const int32_t local = map[e];
    if (local < -1 || local >= num_local_experts) {
      return make_error(Code::invalid_argument, "expert_map: expert %d maps to %d, need -1..%d", e,
                        local, num_local_experts - 1);
    }
    if (local < 0) continue;
    if (seen[local] && !allow_replicas) {
      return make_error(Code::invalid_argument,
                        "expert_map: expert %d maps to %d, which is already taken (replicas must "
                        "be declared)",
                        e, local);
    }
    seen[local] = true;
  }
  for (int32_t local = 0; local < num_local_experts; ++local) {
    if (!seen[local]) {
      return make_error(Code::invalid_argument,
                        "expert_map: no expert maps to local expert %d, need each of 0..%d", local,
                        num_local_experts - 1);
    }
  }
  return {};
}

}  // namespace snug
