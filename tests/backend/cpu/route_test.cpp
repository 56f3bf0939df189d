// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/route.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "support/layer.h"

namespace snug::cpu {
namespace {

using test::LayerCall;
using test::LayerOptions;
using test::RandomLayer;

LayerOptions options_of(int32_t experts, int32_t top_k, int64_t tokens) {
  LayerOptions options;
  options.hidden = 16;
  options.intermediate = 16;
  options.num_experts = experts;
  options.top_k = top_k;
  options.max_tokens = tokens;
  return options;
}

/// What route() must leave behind, the plain way.
struct Grouped {
  std::vector<int32_t> local, offsets, slots, active;
};

Grouped group(const std::vector<int32_t>& local, int32_t experts) {
  Grouped g;
  g.local = local;
  for (int32_t e = 0; e < experts; ++e) {
    g.offsets.push_back(static_cast<int32_t>(g.slots.size()));
    for (size_t r = 0; r < local.size(); ++r) {
      if (local[r] == e) g.slots.push_back(static_cast<int32_t>(r));
    }
    if (static_cast<int32_t>(g.slots.size()) > g.offsets.back()) g.active.push_back(e);
  }
  g.offsets.push_back(static_cast<int32_t>(g.slots.size()));
  return g;
}

template <class T>
std::vector<T> slice(const Bound& bound, SliceId id, size_t count) {
  const T* data = slice_data<T>(bound, id);
  return std::vector<T>(data, data + count);
}

/// Routes `tokens` of a call and compares every array and counter.
bool routes_as(LayerCall& call, Range tokens, const std::vector<int32_t>& local) {
  const int32_t experts = call.bound.caps.shape.num_local_experts;
  Sync& sync = *make_sync(slice_data<uint8_t>(call.bound, SliceId::sync));
  sync.fc1_task.store(77);
  sync.fc2_task.store(78);
  sync.num_active = -5;
  route(call.bound, tokens, sync);
  const Grouped want = group(local, experts);
  return slice<int32_t>(call.bound, SliceId::local_expert, local.size()) == want.local &&
         slice<int32_t>(call.bound, SliceId::expert_offsets, static_cast<size_t>(experts) + 1) ==
             want.offsets &&
         slice<int32_t>(call.bound, SliceId::slot_route, want.slots.size()) == want.slots &&
         slice<int32_t>(call.bound, SliceId::active_experts, want.active.size()) == want.active &&
         sync.num_active == static_cast<int32_t>(want.active.size()) && sync.fc1_task.load() == 0 &&
         sync.fc2_task.load() == 0;
}

TEST(CpuRoute, GroupsByExpertInRouteOrder) {
  RandomLayer layer(options_of(5, 3, 4));
  layer.ids = {4, 0, 4, 2, 2, 0, 0, 4, 2, 4, 4, 4};
  LayerCall call(layer, Machine::cpu, 4);
  EXPECT_TRUE(routes_as(call, {0, 4}, layer.ids));
  EXPECT_EQ(slice<int32_t>(call.bound, SliceId::expert_offsets, 6),
            (std::vector<int32_t>{0, 3, 3, 6, 6, 12}));
  EXPECT_EQ(slice<int32_t>(call.bound, SliceId::slot_route, 12),
            (std::vector<int32_t>{1, 5, 6, 3, 4, 8, 0, 2, 7, 9, 10, 11}));
  EXPECT_EQ(slice<int32_t>(call.bound, SliceId::active_experts, 3),
            (std::vector<int32_t>{0, 2, 4}));
}

TEST(CpuRoute, IdsOutOfRangeHaveNoSlot) {
  RandomLayer layer(options_of(3, 2, 4));
  layer.ids = {-1, 2, 3, 2, 1 << 30, -7, 0, 3};
  LayerCall call(layer, Machine::cpu, 4);
  EXPECT_TRUE(routes_as(call, {0, 4}, {-1, 2, -1, 2, -1, -1, 0, -1}));
  layer.ids.assign(8, -1);
  EXPECT_TRUE(routes_as(call, {0, 4}, layer.ids));
}

TEST(CpuRoute, AChunkIsRoutedByItsOwnTokens) {
  RandomLayer layer(options_of(4, 2, 8));
  LayerCall call(layer, Machine::cpu, 8);
  const std::vector<int32_t> middle(layer.ids.begin() + 3 * 2, layer.ids.begin() + 7 * 2);
  EXPECT_TRUE(routes_as(call, {3, 7}, middle));
}

TEST(CpuRoute, AMapKeepsTheRanksRoutes) {
  RandomLayer layer(options_of(4, 2, 3));
  layer.ids = {3, 0, 1, 3, 2, 4};
  const int32_t map[] = {1, -1, -1, 0};
  const int32_t kept[] = {3, 0};
  Caps caps = layer.caps();
  caps.shape.num_local_experts = 2;
  LayerCall call(layer, Machine::cpu, 3, caps, map, kept);
  EXPECT_TRUE(routes_as(call, {0, 3}, {0, 1, -1, 0, -1, -1}));
}

TEST(CpuRoute, ARankWithoutExpertsHasNoRoutes) {
  RandomLayer layer(options_of(4, 2, 3));
  const int32_t map[] = {-1, -1, -1, -1};
  Caps caps = layer.caps();
  caps.shape.num_local_experts = 0;
  LayerCall call(layer, Machine::cpu, 3, caps, map);
  EXPECT_TRUE(routes_as(call, {0, 3}, std::vector<int32_t>(6, -1)));
}

RC_GTEST_PROP(CpuRouteProperty, EqualsTheStableSort, ()) {
  const int32_t experts = *rc::gen::inRange(1, 40), top_k = *rc::gen::inRange(1, 9);
  const int64_t tokens = *rc::gen::inRange<int64_t>(1, 30);
  RandomLayer layer(options_of(experts, top_k, tokens));
  std::vector<int32_t> local;
  for (int32_t& id : layer.ids) {
    id = *rc::gen::inRange(-2, experts + 2);
    local.push_back(id < experts ? std::max(id, -1) : -1);
  }
  LayerCall call(layer, Machine::cpu, tokens);
  RC_ASSERT(routes_as(call, {0, tokens}, local));
}

}  // namespace
}  // namespace snug::cpu
