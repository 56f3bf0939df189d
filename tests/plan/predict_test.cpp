// SPDX-License-Identifier: Apache-2.0
#include "plan/predict.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "support/plan_inputs.h"

namespace snug {
namespace {

using test::any_count;
using test::any_layer;

TEST(Predict, TouchedExpertsByHand) {
  const MoeShape shape = {64, 32, 4, 2, 1};
  EXPECT_EQ(expected_touched_experts(shape, 0), 0);
  EXPECT_DOUBLE_EQ(expected_touched_experts(shape, 1), 2 * 0.25);
  EXPECT_DOUBLE_EQ(expected_touched_experts(shape, 2), 2 * (1 - 0.75 * 0.75));
  EXPECT_DOUBLE_EQ(expected_touched_experts({64, 32, 1, 1, 1}, 1), 1);
  EXPECT_EQ(expected_touched_experts({64, 32, 4, 0, 1}, 1000), 0);
}

RC_GTEST_PROP(Predict, TouchedExpertsFollowTheClosedForm, ()) {
  const Caps caps = *any_layer();
  const MoeShape& s = caps.shape;
  const double routes = static_cast<double>(caps.max_tokens) * s.top_k;
  const double want = s.num_local_experts * (1 - std::pow(1 - 1.0 / s.num_experts, routes));
  const double have = expected_touched_experts(s, caps.max_tokens);
  RC_ASSERT(std::abs(have - want) <= 1e-9 * (1 + want));
  RC_ASSERT(have <= s.num_local_experts);
  RC_ASSERT(expected_touched_experts(s, caps.max_tokens + 1) >= have);
}

/// Any policy that a family can follow.
Policy any_policy(const Caps& caps, const KernelFamily& family) {
  Policy policy;
  policy.route_tile = family.route_tiles[*rc::gen::inRange(0, family.num_route_tiles)];
  const bool rows =
      family.combine == Combine::column_block || family.combine == Combine::worker_block;
  if (rows) policy.column_block = family.column_granule * *rc::gen::inRange(1, 5);
  policy.chunk_tokens = *any_count(caps.max_tokens);
  return policy;
}

RC_GTEST_PROP(Predict, NumbersArePositiveFiniteAndSumToTheLayer, ()) {
  const Caps caps = *any_layer();
  for (const Device& device : known_devices()) {
    for (const KernelFamily& family : test::families_of(device)) {
      const Policy policy = any_policy(caps, family);
      const Prediction p = predict(caps, device, family, policy, caps.max_tokens);
      double us = 0;
      for (const StepCost& step : p.steps) {
        RC_ASSERT(std::isfinite(step.us) && step.us >= 0);
        RC_ASSERT(std::isfinite(step.nbytes) && step.nbytes >= 0);
        RC_ASSERT(std::isfinite(step.flops) && step.flops >= 0);
        us += step.us;
      }
      RC_ASSERT(p.us == us);
      RC_ASSERT(p.us >= p.floor_us * (1 - 1e-12));  // no policy beats the machine
      RC_ASSERT(p.us > 0);
    }
  }
}

RC_GTEST_PROP(Predict, FlopsAreThoseOfTheRoutesWhateverThePolicy, ()) {
  const Caps caps = *any_layer();
  const MoeShape& s = caps.shape;
  const double routes =
      static_cast<double>(caps.max_tokens) * s.top_k * s.num_local_experts / s.num_experts;
  const double per_route =
      2.0 * s.hidden * s.intermediate * (fc1_rows_per_element(caps.activation.kind) + 1);
  for (const Device& device : known_devices()) {
    for (const KernelFamily& family : test::families_of(device)) {
      const Policy policy = any_policy(caps, family);
      const Prediction p = predict(caps, device, family, policy, caps.max_tokens);
      double flops = 0;
      for (const StepCost& step : p.steps) flops += step.flops;
      RC_ASSERT(std::abs(flops - routes * per_route) <= 1e-9 * routes * per_route);
    }
  }
}

TEST(Predict, NothingCostsNothing) {
  const Device device = test::device_named("h200");
  const Caps caps = test::published_layer(64);
  const Prediction p = predict(caps, device, cuda::kFamilies[1], {1, 8, 1536, 64}, 0);
  EXPECT_EQ(p.us, 0);
  EXPECT_EQ(p.floor_us, 0);
}

TEST(Predict, AChunkLargerThanTheCountIsTheCount) {
  const Device device = test::device_named("h200");
  const Caps caps = test::published_layer(4096);
  const double whole = predict(caps, device, cuda::kFamilies[1], {1, 8, 1536, 64}, 64).us;
  EXPECT_EQ(predict(caps, device, cuda::kFamilies[1], {1, 8, 1536, 4096}, 64).us, whole);
}

TEST(Predict, ChunksAddUpAndReadTheWeightsAgain) {
  const Device device = test::device_named("h200");
  const Caps caps = test::published_layer(4096);
  const Policy policy = {1, 64, 1536, 1000};
  const auto us = [&](int64_t tokens) {
    return predict(caps, device, cuda::kFamilies[1], policy, tokens).us;
  };
  EXPECT_NEAR(us(3500), 3 * us(1000) + us(500), 1e-9 * us(3500));
  const auto fc1_nbytes = [&](int64_t chunk) {
    const Policy p = {1, 64, 1536, chunk};
    const Prediction made = predict(caps, device, cuda::kFamilies[1], p, 4096);
    return made.steps[static_cast<int>(Step::fc1)].nbytes;
  };
  const PackedLayout layout = make_packed_layout(LayoutTag::record_16x64, caps.format, caps.shape,
                                                 caps.activation.kind, false);
  const double matrix = static_cast<double>(layout.fc1.codes_nbytes + layout.fc1.scales_nbytes);
  EXPECT_NEAR(fc1_nbytes(2048) - fc1_nbytes(4096), 160 * matrix, 1e-6 * matrix);
}

TEST(Predict, FloorIsTheWeightsOfTouchedExpertsAtTheReadRate) {
  const Device device = test::device_named("h200");
  const Caps caps = test::published_layer(1);
  const Prediction p = predict(caps, device, cuda::kFamilies[0], {0, 8, 0, 1}, 1);
  // 3 matrices of 6144 x 512: half a byte a code and a byte of scale for 16 of them.
  const double expert = 3.0 * 6144 * 512 * (0.5 + 1.0 / 16);
  EXPECT_NEAR(p.floor_us, expected_touched_experts(caps.shape, 1) * expert / 4426e3, 1e-9);
}

}  // namespace
}  // namespace snug
