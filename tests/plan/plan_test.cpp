// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "geometry/route_tiles.h"
#include "plan/compare.h"
#include "support/plan_inputs.h"

namespace snug {
namespace {

using test::any_count;
using test::any_layer;
using test::device_named;
using test::families_of;
using test::make_caps;
using test::must_plan;
using test::published_layer;

// --- what every plan promises -----------------------------------------------------------------

/// Counts of 1..max_tokens worth a look: the ends of every regime, their neighbours, some others.
std::vector<int64_t> counts_of(const Plan& plan) {
  std::vector<int64_t> counts = {1};
  for (int32_t r = 0; r < plan.num_regimes; ++r) {
    const Regime& regime = plan.regimes[r];
    for (const int64_t m : {regime.first_tokens, regime.first_tokens + 1,
                            (regime.first_tokens + regime.last_tokens) / 2, regime.last_tokens - 1,
                            regime.last_tokens}) {
      if (m >= 1 && m <= plan.caps.max_tokens) counts.push_back(m);
    }
  }
  for (int i = 0; i < 20; ++i) counts.push_back(*any_count(plan.caps.max_tokens));
  return counts;
}

void check_regimes(const Plan& plan) {
  RC_ASSERT(plan.num_regimes >= 1);
  RC_ASSERT(plan.num_regimes <= kMaxRegimes);
  int64_t next = 1;
  for (int32_t r = 0; r < plan.num_regimes; ++r) {
    RC_ASSERT(plan.regimes[r].first_tokens == next);
    RC_ASSERT(plan.regimes[r].last_tokens >= next);
    next = plan.regimes[r].last_tokens + 1;
  }
  RC_ASSERT(next == plan.caps.max_tokens + 1);
}

/// P1: the tile of a count is the pin, the widest of a width family, or the monotone rule.
void check_tile(const Plan& plan, const Schedule& s) {
  const KernelFamily& family = plan.families[s.policy.family];
  const int32_t widest = family.route_tiles[family.num_route_tiles - 1];
  const MoeShape& shape = plan.caps.shape;
  int32_t want =
      std::min(select_route_block_size(s.num_tokens, shape.top_k, shape.num_experts), widest);
  if (family.route_tile_is_width) want = widest;
  if (plan.caps.route_tile_pin != 0) want = plan.caps.route_tile_pin;
  RC_ASSERT(s.policy.route_tile == want);
}

/// P2, P3: what a run needs is inside what was priced, for every routing.
void check_schedule(const Plan& plan, int64_t m) {
  const Schedule s = make_schedule(plan, m);
  RC_ASSERT(s.num_tokens == m);
  RC_ASSERT(s.regime >= 0 && s.regime < plan.num_regimes);
  const Regime& regime = plan.regimes[s.regime];
  RC_ASSERT(regime.first_tokens <= m && m <= regime.last_tokens);
  RC_ASSERT(s.policy.family == regime.policy.family);
  RC_ASSERT(s.policy.column_block == regime.policy.column_block);
  RC_ASSERT(plan.verdicts[s.policy.family].accepted());
  check_tile(plan, s);

  RC_ASSERT(s.layout.required_nbytes <= plan.required_nbytes);
  const int64_t chunk = s.policy.chunk_tokens;
  RC_ASSERT(chunk == std::min(regime.policy.chunk_tokens, m));
  RC_ASSERT((s.num_chunks - 1) * chunk < m && m <= s.num_chunks * chunk);
  RC_ASSERT(s.chunk_routes == chunk * plan.caps.shape.top_k);
  const KernelFamily& family = plan.families[s.policy.family];
  RC_ASSERT(family.max_routes == 0 || s.chunk_routes <= family.max_routes);
  const int64_t slots =
      max_packed_slots(s.chunk_routes, s.policy.route_tile, plan.caps.shape.num_local_experts);
  RC_ASSERT(s.max_tiles == slots / s.policy.route_tile);
  const Slice& tiles = s.layout[SliceId::tile_expert];
  RC_ASSERT(tiles.nbytes == 0 || tiles.nbytes == static_cast<uint64_t>(s.max_tiles) * 4);
  RC_ASSERT((s.column_blocks == 0) == (s.policy.column_block == 0));
  if (s.column_blocks > 0) {
    RC_ASSERT(int64_t{s.column_blocks} * s.policy.column_block >= plan.caps.shape.hidden);
    RC_ASSERT(int64_t{s.column_blocks - 1} * s.policy.column_block < plan.caps.shape.hidden);
  }
  RC_ASSERT(s.num_workers >= 1);
}

/// Some count needs exactly what was priced: not a byte is spare.
void check_tight(const Plan& plan) {
  uint64_t most = 0;
  for (int32_t r = 0; r < plan.num_regimes; ++r) {
    const Schedule s = make_schedule(plan, plan.regimes[r].last_tokens);
    most = std::max(most, s.layout.required_nbytes);
  }
  RC_ASSERT(most == plan.required_nbytes);
}

Plan planned(const Caps& caps, const Device& device) {
  Result<Plan> plan = make_plan(caps, device, families_of(device));
  if (!plan) RC_FAIL(std::string(device.name) + ": " + plan.error().message);
  return *plan;
}

RC_GTEST_PROP(PlanProperty, EveryScheduleFitsAndRegimesTile, ()) {
  Caps caps = *any_layer();
  caps.expected_tokens = *rc::gen::element<int64_t>(0, 1, caps.max_tokens / 3, caps.max_tokens);
  for (const Device& device : known_devices()) {
    const Plan plan = planned(caps, device);
    check_regimes(plan);
    check_tight(plan);
    for (const int64_t m : counts_of(plan)) check_schedule(plan, m);
  }
}

RC_GTEST_PROP(PlanProperty, BytesAreMonotoneInCapacity, ()) {
  Caps caps = *any_layer();
  const bool fixed = *rc::gen::arbitrary<bool>();
  Caps smaller = caps;
  smaller.max_tokens = *rc::gen::oneOf(any_count(caps.max_tokens),
                                       rc::gen::just(std::max<int64_t>(caps.max_tokens - 1, 1)));
  if (fixed) caps.expected_tokens = smaller.expected_tokens = *any_count(smaller.max_tokens);
  for (const Device& device : known_devices()) {
    // One family serves a batch-invariant plan; the one that is best for a larger capacity may need
    // fewer bytes, so the promise is for the others.
    if (caps.batch_invariant && families_of(device).size() > 1) continue;
    RC_ASSERT(planned(smaller, device).required_nbytes <= planned(caps, device).required_nbytes);
  }
}

/// Fills the bytes between the members: a caller's stack leaves anything there.
void fill_padding(Caps& caps, int byte) {
  auto* bytes = reinterpret_cast<unsigned char*>(&caps);
  const auto fill = [&](size_t first, size_t last) {
    std::memset(bytes + first, byte, last - first);
  };
  fill(offsetof(Caps, batch_invariant) + sizeof caps.batch_invariant, offsetof(Caps, output_dtype));
  fill(offsetof(Caps, numerics) + sizeof caps.numerics, offsetof(Caps, max_tokens));
}

RC_GTEST_PROP(PlanProperty, PriceIsThePlansAndEqualInputsGiveEqualBytes, ()) {
  Caps caps = *any_layer();
  for (const Device& device : known_devices()) {
    fill_padding(caps, 0xAA);
    const Plan first = planned(caps, device);
    fill_padding(caps, 0x55);
    const Plan second = planned(caps, device);
    RC_ASSERT(std::memcmp(&first, &second, sizeof first) == 0);
    const Result<uint64_t> priced = required_nbytes(caps, device, families_of(device));
    RC_ASSERT(priced.has_value());
    RC_ASSERT(*priced == first.required_nbytes);
  }
}

RC_GTEST_PROP(PlanProperty, APinIsHonouredExactlyOrRefused, ()) {
  Caps caps = *any_layer();
  caps.route_tile_pin = *rc::gen::element(1, 7, 8, 16, 24, 32, 48, 64, 128, 192, 256, -8);
  for (const Device& device : known_devices()) {
    bool possible = false;
    for (const KernelFamily& family : families_of(device)) {
      const bool has =
          std::find(family.route_tiles, family.route_tiles + family.num_route_tiles,
                    caps.route_tile_pin) != family.route_tiles + family.num_route_tiles;
      const bool refused = device.arch < family.min_arch ||
                           (family.max_arch != 0 && device.arch > family.max_arch) ||
                           (caps.batch_invariant && family.max_routes != 0);
      possible = possible || (has && !refused);
    }
    const Result<Plan> plan = make_plan(caps, device, families_of(device));
    RC_ASSERT(plan.has_value() == possible);
    if (!possible) {
      RC_ASSERT(plan.error().code == Code::unsupported);
      RC_ASSERT(std::strstr(plan.error().message, "route_tile_pin") != nullptr);
      continue;
    }
    check_regimes(*plan);
    for (const int64_t m : counts_of(*plan)) check_schedule(*plan, m);
  }
}

/// The size that a refusal names.
uint64_t feasible_size_of(const Status& status) {
  RC_ASSERT(status.code == Code::arena_too_small);
  RC_ASSERT(std::strncmp(status.message, "arena_limit: have ", 18) == 0);
  const char* last = std::strrchr(status.message, ' ');
  return std::strtoull(last + 1, nullptr, 10);
}

RC_GTEST_PROP(PlanProperty, ALimitIsKeptOrRefusedWithTheSmallestSize, ()) {
  Caps caps = *any_layer();
  for (const Device& device : known_devices()) {
    const uint64_t free_nbytes = planned(caps, device).required_nbytes;
    caps.arena_limit = static_cast<uint64_t>(*any_count(static_cast<int64_t>(free_nbytes) + 1));
    const Result<Plan> limited = make_plan(caps, device, families_of(device));
    if (limited) {
      RC_ASSERT(limited->required_nbytes <= caps.arena_limit);
      check_regimes(*limited);
      check_tight(*limited);
      for (const int64_t m : counts_of(*limited)) check_schedule(*limited, m);
    } else {
      RC_ASSERT(feasible_size_of(limited.error()) > caps.arena_limit);
      RC_ASSERT(feasible_size_of(limited.error()) <= free_nbytes);
    }
    caps.arena_limit = 1;
    const Result<Plan> refused = make_plan(caps, device, families_of(device));
    RC_ASSERT(!refused.has_value());
    const uint64_t smallest = feasible_size_of(refused.error());
    caps.arena_limit = smallest;
    RC_ASSERT(planned(caps, device).required_nbytes <= smallest);
    caps.arena_limit = smallest - 1;
    const Result<Plan> less = make_plan(caps, device, families_of(device));
    RC_ASSERT(!less.has_value());
    RC_ASSERT(feasible_size_of(less.error()) == smallest);
    caps.arena_limit = 0;
  }
}

RC_GTEST_PROP(PlanProperty, BatchInvariantUsesOneFamily, ()) {
  Caps caps = *any_layer();
  caps.batch_invariant = true;
  for (const Device& device : known_devices()) {
    const Plan plan = planned(caps, device);
    for (int32_t r = 0; r < plan.num_regimes; ++r) {
      RC_ASSERT(plan.regimes[r].policy.family == plan.regimes[0].policy.family);
    }
    RC_ASSERT(plan.families[plan.regimes[0].policy.family].max_routes == 0);
  }
}

/// Bytes are chosen among policies within 2% of the fastest (10% above expected_tokens).
RC_GTEST_PROP(PlanProperty, DecisionPointsStayWithinTheTolerance, ()) {
  Caps caps = *any_layer();
  caps.batch_invariant = false;
  caps.expected_tokens = *rc::gen::element<int64_t>(0, caps.max_tokens / 3, caps.max_tokens);
  const int64_t expected = caps.expected_tokens != 0 ? caps.expected_tokens : caps.max_tokens;
  for (const Device& device : known_devices()) {
    const Plan plan = planned(caps, device);
    bool accepted[kMaxFamilies] = {};
    for (int32_t f = 0; f < plan.num_families; ++f) accepted[f] = plan.verdicts[f].accepted();
    int64_t before = 0;
    for (const int64_t m : decision_points(caps, families_of(device))) {
      if (m > caps.max_tokens) break;
      const double fastest =
          candidates_at(caps, device, families_of(device), accepted, false, m)[0].us;
      RC_ASSERT(predict(plan, m).us <= fastest * (before < expected ? 1.02 : 1.10) * (1 + 1e-12));
      before = m;
    }
  }
}

// --- exhaustive -------------------------------------------------------------------------------

struct Experts {
  int32_t num_experts, top_k;
};
constexpr Experts kExperts[] = {{1, 1},   {8, 2},   {16, 1},   {60, 4},   {128, 8},  {160, 8},
                                {256, 8}, {384, 8}, {512, 10}, {512, 22}, {896, 16}, {7, 3}};
struct Widths {
  int32_t hidden, intermediate;
};
constexpr Widths kWidths[] = {{2048, 768}, {64, 16}, {6144, 512}};
constexpr int64_t kCapacities[] = {1024, 131072, 700, 5};

TEST(PlanExhaustive, EveryCountFitsAndOneIsTight) {
  for (const Device& device : known_devices()) {
    for (const Experts& e : kExperts) {
      for (const Widths& w : kWidths) {
        for (const int64_t max_tokens : kCapacities) {
          const Caps caps = make_caps(e.num_experts, e.top_k, w.hidden, w.intermediate, max_tokens);
          const Plan plan = must_plan(caps, device);
          for (int64_t m = 0; m <= std::min<int64_t>(max_tokens, 1024); ++m) {
            ASSERT_LE(make_schedule(plan, m).layout.required_nbytes, plan.required_nbytes)
                << device.name << " E " << e.num_experts << " k " << e.top_k << " H " << w.hidden
                << " max " << max_tokens << " m " << m;
          }
          uint64_t most = 0;
          for (int32_t r = 0; r < plan.num_regimes; ++r) {
            const Schedule s = make_schedule(plan, plan.regimes[r].last_tokens);
            most = std::max(most, s.layout.required_nbytes);
          }
          ASSERT_EQ(most, plan.required_nbytes) << device.name << " E " << e.num_experts;
        }
      }
    }
  }
}

TEST(PlanExhaustive, BytesAreMonotoneCountByCount) {
  for (const Device& device : known_devices()) {
    for (const Experts& e : {Experts{160, 8}, Experts{896, 16}, Experts{7, 3}}) {
      for (const Widths& w : {kWidths[0], kWidths[1]}) {
        uint64_t before = 0;
        for (int64_t max_tokens = 1; max_tokens <= 600; ++max_tokens) {
          const Caps caps = make_caps(e.num_experts, e.top_k, w.hidden, w.intermediate, max_tokens);
          const uint64_t nbytes = must_plan(caps, device).required_nbytes;
          ASSERT_GE(nbytes, before) << device.name << " E " << e.num_experts << " " << max_tokens;
          before = nbytes;
        }
      }
    }
  }
}

// --- time -------------------------------------------------------------------------------------

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST(Plan, IsMadeInLessThanAMillisecond) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's time says nothing";
#if !defined(NDEBUG)
  GTEST_SKIP() << "an unoptimised build's time says nothing";
#endif
  for (const Device& device : known_devices()) {
    for (const Experts& e : kExperts) {
      const Caps caps = make_caps(e.num_experts, e.top_k, 2048, 768, 131072);
      std::vector<double> ms;
      for (int run = 0; run < 21; ++run) {
        const auto start = std::chrono::steady_clock::now();
        const Result<Plan> plan = make_plan(caps, device, families_of(device));
        const auto end = std::chrono::steady_clock::now();
        ASSERT_TRUE(plan);
        ms.push_back(std::chrono::duration<double, std::milli>(end - start).count());
      }
      std::nth_element(ms.begin(), ms.begin() + 10, ms.end());
      EXPECT_LT(ms[10], 1.0) << device.name << " E " << e.num_experts << " k " << e.top_k;
    }
  }
}

// --- schedules and refusals -------------------------------------------------------------------

TEST(Plan, NoTokensNeedNothing) {
  for (const Device& device : known_devices()) {
    const Plan plan = must_plan(published_layer(64), device);
    const Schedule s = make_schedule(plan, 0);
    EXPECT_EQ(s.num_chunks, 0);
    EXPECT_EQ(s.chunk_routes, 0);
    EXPECT_EQ(s.layout.required_nbytes, 0u);
    EXPECT_EQ(predict(plan, 0).us, 0);
  }
}

TEST(PlanDeathTest, ACountAboveTheCapacityIsOurBug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Plan plan = must_plan(published_layer(64), device_named("cpu"));
  EXPECT_DEATH(make_schedule(plan, 65), "assertion failed");
  EXPECT_DEATH(make_schedule(plan, -1), "assertion failed");
}

TEST(Plan, WithoutAFamilyTheReasonsAreGiven) {
  const Caps caps = published_layer(64);
  const Device cpu = device_named("cpu");
  Result<Plan> plan = make_plan(caps, cpu, cuda::kFamilies);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::unsupported);
  EXPECT_TRUE(std::strstr(plan.error().message, "sm80.decode")) << plan.error().message;
  EXPECT_TRUE(std::strstr(plan.error().message, "runs on cuda")) << plan.error().message;
  plan = make_plan(caps, cpu, {});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::unsupported);
  EXPECT_TRUE(std::strstr(plan.error().message, "no kernels")) << plan.error().message;
}

TEST(Plan, DecodeIsChosenForFewTokensAndGroupedForMany) {
  const Plan plan = must_plan(published_layer(4096), device_named("rtx-pro-6000"));
  EXPECT_STREQ(plan.families[make_schedule(plan, 1).policy.family].name, "sm80.decode");
  EXPECT_STREQ(plan.families[make_schedule(plan, 4096).policy.family].name, "sm80.grouped");
  EXPECT_EQ(plan.weights_nbytes,
            static_cast<uint64_t>(make_packed_layout(LayoutTag::record_16x64, Format::nvfp4,
                                                     plan.caps.shape, ActivationKind::silu, false)
                                      .total_nbytes()));
}

// The point at 24 decides for 17 tokens too: it is kept strictly however far the capacity reaches.
TEST(Plan, APointThatDecidesForAnExpectedCountIsStrict) {
  Caps caps = make_caps(2, 2, 1024, 2048, 17);
  caps.shape.num_local_experts = 1;
  caps.activation = swiglu_oai_default();
  caps.num_threads = 7;
  caps.expected_tokens = 17;
  for (const Device& device : known_devices()) {
    caps.max_tokens = 17;
    const uint64_t before = must_plan(caps, device).required_nbytes;
    caps.max_tokens = 18;
    EXPECT_GE(must_plan(caps, device).required_nbytes, before) << device.name;
  }
}

// --- numbers ----------------------------------------------------------------------------------

TEST(PlanNumbers, SixtyFourTokensFitInEightMiB) {
  for (const char* name : {"rtx-pro-6000", "h200"}) {
    EXPECT_LE(must_plan(published_layer(64), device_named(name)).required_nbytes, 8u << 20) << name;
  }
}

TEST(PlanNumbers, AQuarterOfTheReferenceGeometryAtMost) {
  for (const char* name : {"rtx-pro-6000", "h200"}) {
    for (const int64_t max_tokens : {8, 64, 512, 4096}) {
      const Device device = device_named(name);
      const Caps caps = published_layer(max_tokens);
      const Result<uint64_t> reference = reference_nbytes(caps, device, false);
      ASSERT_TRUE(reference) << reference.error().message;
      EXPECT_LE(4 * must_plan(caps, device).required_nbytes, *reference)
          << name << " " << max_tokens;
    }
  }
}

TEST(PlanNumbers, BytesAreFlatForLongPrompts) {
  for (const char* name : {"h200", "rtx-pro-6000", "cpu"}) {
    const Device device = device_named(name);
    const uint64_t nbytes = must_plan(published_layer(131072), device).required_nbytes;
    EXPECT_EQ(must_plan(published_layer(65536), device).required_nbytes, nbytes) << name;
    EXPECT_EQ(must_plan(published_layer(32768), device).required_nbytes, nbytes) << name;
  }
}

// --- golden bytes -----------------------------------------------------------------------------

struct Model {
  const char* name;
  MoeShape shape;
  Format format = Format::nvfp4;
  Activation activation = {};
  bool has_bias = false;
};

const Model kModels[] = {
    {"gpt-oss-20b", {2880, 2880, 32, 32, 4}, Format::mxfp4, swiglu_oai_default(), true},
    {"qwen3-30b", {2048, 768, 128, 128, 8}},
    {"deepseek-v3", {7168, 2048, 256, 256, 8}},
    {"glm-4.5", {5120, 1536, 160, 160, 8}},
    {"kimi-k2", {7168, 2048, 384, 384, 8}},
    {"minimax-m2", {3072, 1536, 256, 256, 8}},
    {"nemotron-3-nano", {2688, 1856, 128, 128, 6}, Format::nvfp4, {ActivationKind::relu2}},
    {"mixtral-8x7b", {4096, 14336, 8, 8, 2}},
};

std::vector<std::string> golden_lines() {
  std::vector<std::string> lines;
  for (const Model& model : kModels) {
    for (const Device& device : known_devices()) {
      if (std::string(device.name) == "cpu") continue;  // another one on every machine
      for (const int64_t max_tokens : {1, 64, 1024, 16384}) {
        Caps caps;
        caps.shape = model.shape;
        caps.format = model.format;
        caps.activation = model.activation;
        caps.has_bias = model.has_bias;
        caps.max_tokens = max_tokens;
        lines.push_back(std::string(model.name) + " " + device.name + " " +
                        std::to_string(max_tokens) + " " +
                        std::to_string(must_plan(caps, device).required_nbytes));
      }
    }
  }
  return lines;
}

/// tests/data/plan_bytes.txt: model, device, max_tokens, arena bytes. To regenerate it after a
/// deliberate change of the planner, empty it below its comment lines and run
///   plan_test --gtest_filter='PlanNumbers.GoldenBytes' | sed -n 's/^new: //p' >> plan_bytes.txt
TEST(PlanNumbers, GoldenBytes) {
  std::ifstream file(SNUG_TEST_DATA_DIR "/plan_bytes.txt");
  ASSERT_TRUE(file) << "no " << SNUG_TEST_DATA_DIR << "/plan_bytes.txt";
  std::vector<std::string> recorded;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') recorded.push_back(line);
  }
  const std::vector<std::string> lines = golden_lines();
  EXPECT_EQ(recorded.size(), lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i < recorded.size() && recorded[i] == lines[i]) continue;
    std::cout << "new: " << lines[i] << "\n";
    ADD_FAILURE() << "recorded: " << (i < recorded.size() ? recorded[i] : "nothing");
  }
}

}  // namespace
}  // namespace snug
