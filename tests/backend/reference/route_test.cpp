// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/route.h"

#include <gtest/gtest.h>

#include "support/layer.h"

namespace snug::reference {
namespace {

TEST(ReferenceRoute, LooksUpExpertAndWeight) {
  test::RandomLayer layer(test::LayerOptions{});
  layer.ids = {3, -1, 0, 4, 2, 1};
  layer.weights = {0.5f, 1, 2, 3, 4, 5};
  test::LayerCall call(layer, Machine::reference, 3);
  const int32_t experts[] = {3, -1, 0, -1, 2, 1};
  for (int r = 0; r < 6; ++r) {
    const Route route = route_at(call.bound, r / 2, r % 2);
    EXPECT_EQ(route.token, r / 2);
    EXPECT_EQ(route.expert, experts[r]);
    EXPECT_EQ(route.weight, layer.weights[static_cast<size_t>(r)]);
  }
  const int32_t map[] = {-1, 1, -1, 0};
  call.bound.io.expert_map = map;
  EXPECT_EQ(route_at(call.bound, 0, 0).expert, 0);
  EXPECT_EQ(route_at(call.bound, 1, 0).expert, -1);
  EXPECT_EQ(route_at(call.bound, 2, 1).expert, 1);
}

}  // namespace
}  // namespace snug::reference
