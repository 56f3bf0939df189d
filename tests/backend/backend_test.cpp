// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.h"

#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <vector>

#include "support/layer.h"

namespace snug {
namespace {

using test::LayerCall;
using test::LayerOptions;
using test::RandomLayer;

TEST(Backend, IdsOfBothWidthsStridesAndMaps) {
  const LayerOptions options;
  const RandomLayer layer(options);
  LayerCall call(layer, Machine::cpu, 3);
  const int32_t narrow[] = {3, -1, 99, 0, 4, 99, INT_MAX, INT_MIN, 99};
  call.bound.io.topk_ids = narrow;
  call.bound.io.ids_stride = 3;  // 99 lies between the rows
  const int32_t want[] = {3, -1, 0, -1, -1, -1};
  for (int route = 0; route < 6; ++route) {
    EXPECT_EQ(local_expert_at(call.bound, route / 2, route % 2), want[route]) << route;
  }
  const int64_t wide[] = {3, -1, 0, (int64_t{1} << 32) + 1, INT64_MAX, INT64_MIN};
  call.bound.io.topk_ids = wide;
  call.bound.io.ids_dtype = DType::s64;
  call.bound.io.ids_stride = 2;
  for (int route = 0; route < 6; ++route) {
    EXPECT_EQ(local_expert_at(call.bound, route / 2, route % 2), want[route]) << route;
  }
  const int32_t map[] = {1, -1, -1, 0};
  call.bound.io.expert_map = map;
  EXPECT_EQ(local_expert_at(call.bound, 0, 0), 0);
  EXPECT_EQ(local_expert_at(call.bound, 0, 1), -1);
  EXPECT_EQ(local_expert_at(call.bound, 1, 0), 1);
  EXPECT_EQ(local_expert_at(call.bound, 1, 1), -1);
}

TEST(Backend, RouterWeightsOfBothWidths) {
  const RandomLayer layer(LayerOptions{});
  LayerCall call(layer, Machine::cpu, 2);
  const float wide[] = {0.25f, -1e-20f, 7, 3.0f, 0.1f, 7};
  call.bound.io.topk_weights = wide;
  call.bound.io.weights_stride = 3;
  EXPECT_EQ(router_weight_at(call.bound, 0, 1), -1e-20f);
  EXPECT_EQ(router_weight_at(call.bound, 1, 0), 3.0f);
  const bf16 narrow[] = {{0x3E80}, {0x3F80}, {0xC040}, {0x4000}};
  call.bound.io.topk_weights = narrow;
  call.bound.io.weights_dtype = DType::bf16;
  call.bound.io.weights_stride = 2;
  EXPECT_EQ(router_weight_at(call.bound, 0, 0), 0.25f);
  EXPECT_EQ(router_weight_at(call.bound, 1, 0), -3.0f);
}

TEST(Backend, RowsOfXFollowTheStride) {
  const RandomLayer layer(LayerOptions{});
  LayerCall call(layer, Machine::cpu, 4);
  EXPECT_EQ(x_row(call.bound, 3), layer.x.data() + 3 * 64);
  call.bound.io.x_stride = 80;
  EXPECT_EQ(x_row(call.bound, 2), layer.x.data() + 2 * 80);
}

// A double goes to bf16 in one rounding: 1 + 2^-8 + 2^-40 is above the tie, its f32 is on it.
TEST(Backend, OutputIsRoundedOnce) {
  const RandomLayer layer(LayerOptions{});
  Caps caps = layer.caps();
  caps.output_dtype = DType::bf16;
  LayerCall call(layer, Machine::reference, 2, caps);
  call.bound.io.output_stride = 64;
  store_output(call.bound, 1, 5, 1 + 0x1p-8 + 0x1p-40);
  store_output(call.bound, 1, 6, 1.0f + 0x1p-8f);
  store_output(call.bound, 1, 7, -2.5f);
  const std::vector<float> y = call.output();
  EXPECT_EQ(y[64 + 5], 1 + 0x1p-7f);
  EXPECT_EQ(y[64 + 6], 1.0f);
  EXPECT_EQ(y[64 + 7], -2.5f);
  for (size_t i = 0; i < y.size(); ++i) {
    ASSERT_TRUE(std::isnan(y[i]) || (i >= 64 + 5 && i <= 64 + 7)) << i;
  }
  LayerCall wide(layer, Machine::reference, 2);
  store_output(wide.bound, 0, 0, 1.0 / 3);
  EXPECT_EQ(wide.output()[0], 1.0f / 3);
}

TEST(Backend, SlicesLieWhereTheLayoutSays) {
  const RandomLayer layer(LayerOptions{});
  LayerCall call(layer, Machine::cpu, 4);
  const Slice& activated = call.bound.schedule.layout[SliceId::activated];
  ASSERT_GT(activated.nbytes, 0u);
  EXPECT_EQ(reinterpret_cast<uint8_t*>(slice_data<bf16>(call.bound, SliceId::activated)),
            static_cast<uint8_t*>(call.arena().data()) + activated.offset);
  EXPECT_EQ(slice_data<int32_t>(call.bound, SliceId::tile_expert), nullptr);
}

TEST(Backend, RecordsGlobalsAndBiases) {
  LayerOptions options;
  options.has_bias = true;
  const RandomLayer layer(options);
  LayerCall call(layer, Machine::reference, 1);
  const PackedLayout& layout = call.bound.weights.layout;
  for (int32_t e = 0; e < options.num_experts; ++e) {
    const uint8_t* record = expert_record(call.bound, e);
    const auto& stored = layer.experts[static_cast<size_t>(e)];
    EXPECT_EQ(record_globals(layout, record)[0], stored.gate.global);
    EXPECT_EQ(record_globals(layout, record)[1], stored.up.global);
    EXPECT_EQ(record_globals(layout, record)[2], stored.down.global);
    EXPECT_EQ(record_bias(layout, layout.fc2, record)[63], stored.down.bias[63]);
    EXPECT_EQ(record_bias(layout, layout.fc1, record)[48], stored.up.bias[0]);
  }
  const RandomLayer plain(LayerOptions{});
  LayerCall without(plain, Machine::reference, 1);
  const PackedLayout& bare = without.bound.weights.layout;
  EXPECT_EQ(record_bias(bare, bare.fc1, expert_record(without.bound, 0)), nullptr);
}

}  // namespace
}  // namespace snug
