// SPDX-License-Identifier: Apache-2.0
// Route, the plain way: look the route up.
#pragma once

#include "backend/backend.h"

namespace snug::reference {

/// One (token, chosen expert) pair.
struct Route {
  int64_t token;
  int32_t expert;  // local, or -1: contributes nothing
  float weight;
};

inline Route route_at(const Bound& bound, int64_t token, int32_t slot) {
  return {token, local_expert_at(bound, token, slot), router_weight_at(bound, token, slot)};
}

}  // namespace snug::reference
