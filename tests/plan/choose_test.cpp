// SPDX-License-Identifier: Apache-2.0
#include "plan/choose.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "geometry/route_tiles.h"
#include "support/plan_inputs.h"

namespace snug {
namespace {

using test::any_count;
using test::any_layer;
using test::device_named;
using test::families_of;
using test::published_layer;

const KernelFamily& kDecode = cuda::kFamilies[0];
const KernelFamily& kGrouped = cuda::kFamilies[1];
const KernelFamily& kWgmma = cuda::kFamilies[2];

void expect_reason(const Verdict& verdict, const char* text) {
  EXPECT_FALSE(verdict.accepted());
  EXPECT_TRUE(std::strstr(verdict.reason, text)) << verdict.reason;
}

TEST(Choose, EveryRefusalSaysWhy) {
  const Device h200 = device_named("h200");
  Caps caps = published_layer(64);
  for (const KernelFamily& family : cuda::kFamilies) {
    EXPECT_TRUE(judge_family(caps, h200, family).accepted()) << family.name;
  }
  expect_reason(judge_family(caps, h200, cpu::kFamilies[0]), "runs on cpu, the device is cuda");
  expect_reason(judge_family(caps, device_named("rtx-pro-6000"), kWgmma),
                "needs sm_90, have sm_120");
  expect_reason(judge_family(caps, device_named("a100"), kWgmma), "needs sm_90, have sm_80");
  Device old = h200;
  old.arch = 75;
  expect_reason(judge_family(caps, old, kDecode), "needs sm_80 or newer, have sm_75");
  Device small = h200;
  small.smem_nbytes = kGrouped.smem_nbytes - 1;
  expect_reason(judge_family(caps, small, kGrouped), "shared memory");
  small.smem_nbytes = kGrouped.smem_nbytes;
  EXPECT_TRUE(judge_family(caps, small, kGrouped).accepted());

  caps.route_tile_pin = 48;
  expect_reason(judge_family(caps, h200, kDecode), "route_tile_pin 48");
  EXPECT_TRUE(judge_family(caps, h200, kGrouped).accepted());
  caps.route_tile_pin = -1;
  expect_reason(judge_family(caps, h200, kGrouped), "route_tile_pin -1");
  caps.route_tile_pin = 0;

  caps.numerics = Numerics::float64;
  expect_reason(judge_family(caps, h200, kGrouped), "numerics");
  expect_reason(judge_family(caps, device_named("cpu-portable"), cpu::kFamilies[0]), "numerics");
  EXPECT_TRUE(judge_family(caps, device_named("reference"), reference::kFamilies[0]).accepted());
  caps.numerics = Numerics::contract;

  caps.batch_invariant = true;
  expect_reason(judge_family(caps, h200, kDecode), "batch_invariant");
  expect_reason(judge_family(caps, h200, kDecode), "2048");
  EXPECT_TRUE(judge_family(caps, h200, kGrouped).accepted());
}

RC_GTEST_PROP(Choose, DecisionPointsAscendAndCoverTheCapacity, ()) {
  const Caps caps = *any_layer();
  for (const Device& device : known_devices()) {
    const std::vector<int64_t> points = decision_points(caps, families_of(device));
    RC_ASSERT(!points.empty());
    RC_ASSERT(points.front() == 1);
    RC_ASSERT(std::is_sorted(points.begin(), points.end(), std::less_equal<>()));
    RC_ASSERT(points.back() >= caps.max_tokens);
    // RC_ASSERT's || evaluates both sides.
    if (points.size() >= 2) RC_ASSERT(points[points.size() - 2] < caps.max_tokens);
  }
}

RC_GTEST_PROP(Choose, DecisionPointsOfASmallerCapacityAreAPrefix, ()) {
  Caps caps = *any_layer();
  for (const Device& device : known_devices()) {
    const std::vector<int64_t> all = decision_points(caps, families_of(device));
    Caps smaller = caps;
    smaller.max_tokens = *any_count(caps.max_tokens);
    const std::vector<int64_t> few = decision_points(smaller, families_of(device));
    RC_ASSERT(few.size() <= all.size());
    RC_ASSERT(std::equal(few.begin(), few.end(), all.begin()));
  }
}

RC_GTEST_PROP(Choose, ARouteTileChangesOnlyAtADecisionPoint, ()) {
  Caps caps = *any_layer();
  caps.max_tokens = kMaxTokens;
  const std::vector<int64_t> points = decision_points(caps, cuda::kFamilies);
  int64_t before = 0;
  for (const int64_t point : points) {
    const auto tile = [&](int64_t tokens) {
      return select_route_block_size(tokens, caps.shape.top_k, caps.shape.num_experts);
    };
    RC_ASSERT(tile(before + 1) == tile(point));
    before = point;
  }
}

bool is_policy_of(const Caps& caps, const KernelFamily& family, const Policy& p, int64_t tokens) {
  const int32_t* end = family.route_tiles + family.num_route_tiles;
  if (std::find(family.route_tiles, end, p.route_tile) == end) return false;
  if (p.chunk_tokens < 1 || p.chunk_tokens > tokens) return false;
  if (family.max_routes != 0 && p.chunk_tokens * caps.shape.top_k > family.max_routes) return false;
  switch (family.combine) {
    case Combine::owner:
      return p.column_block == 0;
    case Combine::token:
      return p.column_block == 0 && p.chunk_tokens == 1;
    case Combine::worker_block:
      return p.column_block % family.column_granule == 0 && p.column_block >= 32 &&
             p.column_block <= 128;
    case Combine::column_block:
      return p.column_block > 0 && p.column_block % family.column_granule == 0 &&
             p.column_block < caps.shape.hidden + family.column_granule;
  }
  return false;
}

RC_GTEST_PROP(Choose, CandidatesArePricedSortedAndPossible, ()) {
  const Caps caps = *any_layer();
  const bool limited = *rc::gen::arbitrary<bool>();
  for (const Device& device : known_devices()) {
    const std::span<const KernelFamily> families = families_of(device);
    bool accepted[kMaxFamilies] = {};
    for (size_t f = 0; f < families.size(); ++f) accepted[f] = *rc::gen::arbitrary<bool>();
    const std::vector<Candidate> found =
        candidates_at(caps, device, families, accepted, limited, caps.max_tokens);
    double before = 0;
    for (const Candidate& c : found) {
      const KernelFamily& family = families[static_cast<size_t>(c.policy.family)];
      RC_ASSERT(accepted[c.policy.family]);
      RC_ASSERT(is_policy_of(caps, family, c.policy, caps.max_tokens));
      RC_ASSERT(c.us == predict(caps, device, family, c.policy, caps.max_tokens).us);
      RC_ASSERT(c.us >= before);
      before = c.us;
    }
  }
}

TEST(Choose, TheTileIsThePinOrTheRuleOrTheWidest) {
  const Device h200 = device_named("h200");
  Caps caps = published_layer(4096);
  const bool all[kMaxFamilies] = {true, true, true};
  for (const int64_t tokens : {1, 143, 144, 256, 288, 864, 4096}) {
    const int32_t rule = select_route_block_size(tokens, 8, 160);
    for (const Candidate& c : candidates_at(caps, h200, cuda::kFamilies, all, false, tokens)) {
      const int32_t want = c.policy.family == 2   ? 256
                           : c.policy.family == 0 ? std::min(rule, 16)
                                                  : rule;
      EXPECT_EQ(c.policy.route_tile, want) << tokens;
    }
  }
  caps.route_tile_pin = 16;
  const bool grouped[kMaxFamilies] = {true, true};
  for (const Candidate& c : candidates_at(caps, h200, cuda::kFamilies, grouped, false, 4096)) {
    EXPECT_EQ(c.policy.route_tile, 16);
  }
}

TEST(Choose, DecodeEndsAtItsRoutes) {
  const Device h200 = device_named("h200");
  const Caps caps = published_layer(4096);
  const bool decode[kMaxFamilies] = {true};
  EXPECT_FALSE(candidates_at(caps, h200, cuda::kFamilies, decode, false, 256).empty());
  EXPECT_TRUE(candidates_at(caps, h200, cuda::kFamilies, decode, false, 257).empty());
}

TEST(Choose, OnlyALimitMakesSmallChunksWorthWeighing) {
  const Device h200 = device_named("h200");
  const Caps caps = published_layer(4096);
  const bool grouped[kMaxFamilies] = {false, true};
  const auto smallest = [&](bool limited) {
    int64_t chunk = kMaxTokens;
    for (const Candidate& c : candidates_at(caps, h200, cuda::kFamilies, grouped, limited, 4096)) {
      chunk = std::min(chunk, c.policy.chunk_tokens);
    }
    return chunk;
  };
  EXPECT_EQ(smallest(false), 512);
  EXPECT_EQ(smallest(true), 1);
}

}  // namespace
}  // namespace snug
