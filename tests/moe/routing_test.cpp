// SPDX-License-Identifier: Apache-2.0
#include "moe/routing.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "moe/shape.h"

namespace snug {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Routes {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routes route(const Routing& r, int32_t top_k, const std::vector<float>& logits,
             const std::vector<float>& bias = {}) {
  const auto num_experts = static_cast<int32_t>(logits.size());
  const Status status = check_routing(r, num_experts, top_k);
  EXPECT_TRUE(status.ok()) << status.message;
  // The scratch and the outputs hold NaN and -1 before: nothing may be read before it is written.
  std::vector<float> choice(num_experts, kNan);
  Routes out{std::vector<int32_t>(top_k, -1), std::vector<float>(top_k, kNan)};
  route_token(r, num_experts, top_k, logits.data(), bias.empty() ? nullptr : bias.data(),
              choice.data(), out.ids.data(), out.weights.data());
  return out;
}

// --- the oracle: the rule in double, with sorts -------------------------------------------------

double oracle_score(Score score, double logit) {
  if (score == Score::sigmoid) return 1.0 / (1.0 + std::exp(-logit));
  if (score == Score::sqrt_softplus) {
    return std::sqrt(std::max(logit, 0.0) + std::log1p(std::exp(-std::fabs(logit))));
  }
  return std::exp(logit);  // softmax: the caller divides; oracle logits are small
}

std::vector<double> oracle_scores(const Routing& r, const std::vector<float>& logits) {
  std::vector<double> scores;
  for (const float l : logits) scores.push_back(oracle_score(r.score, l));
  if (r.score == Score::softmax) {
    const double total = std::accumulate(scores.begin(), scores.end(), 0.0);
    for (double& s : scores) s /= total;
  }
  return scores;
}

/// Indices of `values` by falling value; equal values keep the lower index first.
std::vector<int32_t> order_of(const std::vector<double>& values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&values](int32_t a, int32_t b) { return values[a] > values[b]; });
  return order;
}

std::set<int32_t> oracle_groups(const Routing& r, const std::vector<double>& choice) {
  const size_t size = choice.size() / r.num_groups;
  std::vector<double> ranks;
  for (int32_t g = 0; g < r.num_groups; ++g) {
    std::vector<double> members(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(members.rbegin(), members.rend());
    const bool sum = r.group_rank == GroupRank::top2_sum && size > 1;
    ranks.push_back(members[0] + (sum ? members[1] : 0.0));
  }
  const std::vector<int32_t> order = order_of(ranks);
  return {order.begin(), order.begin() + r.topk_groups};
}

struct OracleRoutes {
  std::vector<int32_t> ids;
  std::vector<double> weights;
};

OracleRoutes oracle(const Routing& r, int32_t top_k, const std::vector<float>& logits,
                    const std::vector<float>& bias) {
  const std::vector<double> scores = oracle_scores(r, logits);
  std::vector<double> choice = scores;
  for (size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
  const std::set<int32_t> kept = oracle_groups(r, choice);
  const auto size = static_cast<int32_t>(logits.size()) / r.num_groups;
  OracleRoutes out;
  double sum = 0;
  for (const int32_t e : order_of(choice)) {
    if (kept.count(e / size) == 0 || static_cast<int32_t>(out.ids.size()) == top_k) continue;
    out.ids.push_back(e);
    out.weights.push_back(scores[e]);
    sum += scores[e];
  }
  for (double& w : out.weights) w = w / (r.renormalize ? sum : 1.0) * r.scale;
  return out;
}

void expect_equal(const Routes& have, const OracleRoutes& want) {
  ASSERT_EQ(have.ids, want.ids);
  for (size_t j = 0; j < want.weights.size(); ++j) {
    ASSERT_NEAR(have.weights[j], want.weights[j], 2e-6 * std::fabs(want.weights[j]) + 1e-30) << j;
  }
}

/// Distinct values whose scores stay apart by far more than f32 rounding.
std::vector<float> spread_logits(int32_t num_experts, std::mt19937& random) {
  std::vector<float> logits(num_experts);
  for (int32_t e = 0; e < num_experts; ++e) {
    logits[e] = 8.0f * static_cast<float>(e) / static_cast<float>(num_experts) - 4.0f;
  }
  std::shuffle(logits.begin(), logits.end(), random);
  return logits;
}

TEST(Routing, EveryKindAgainstTheOracle) {
  std::mt19937 random(1);
  for (const int32_t num_experts : {8, 24, 64, 128}) {
    for (const int32_t groups : {1, 2, 4, 8}) {
      for (int i = 0; i < 96; ++i) {
        Routing r;
        r.score = static_cast<Score>(i % 3);
        r.renormalize = i / 3 % 2 == 0;
        r.num_groups = groups;
        r.topk_groups = 1 + i % groups;
        r.group_rank = static_cast<GroupRank>(i / 6 % 2);
        r.scale = i % 5 == 0 ? 2.5f : 1.0f;
        const int32_t allowed = num_experts / groups * r.topk_groups;
        const int32_t top_k = 1 + static_cast<int32_t>(random() % std::min(allowed, 32));
        const std::vector<float> logits = spread_logits(num_experts, random);
        std::vector<float> bias;
        if (i / 12 % 2 == 1) {
          for (int32_t e = 0; e < num_experts; ++e) {
            bias.push_back(static_cast<float>(random() % 1000) * 3.1e-3f - 1.5f);
          }
        }
        SCOPED_TRACE(std::to_string(num_experts) + " experts, case " + std::to_string(i));
        expect_equal(route(r, top_k, logits, bias), oracle(r, top_k, logits, bias));
      }
    }
  }
}

TEST(Routing, DefaultsAreSoftmaxOverTheChosen) {
  const Routes out = route({}, 2, {0.0f, 3.0f, -1.0f, 2.0f});
  EXPECT_EQ(out.ids, (std::vector<int32_t>{1, 3}));
  EXPECT_NEAR(out.weights[0], 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(out.weights[1], 1 / (1 + std::exp(1.0)), 1e-6);
}

TEST(Routing, TiesGoToTheLowestId) {
  for (const Score score : {Score::softmax, Score::sigmoid, Score::sqrt_softplus}) {
    Routing r;
    r.score = score;
    EXPECT_EQ(route(r, 3, {1, 2, 2, 1, 2, 2}).ids, (std::vector<int32_t>{1, 2, 4}));
    EXPECT_EQ(route(r, 3, std::vector<float>(7, 0.5f)).ids, (std::vector<int32_t>{0, 1, 2}));
    const std::vector<float> bias(6, 0.25f);
    EXPECT_EQ(route(r, 3, {1, 2, 2, 1, 2, 2}, bias).ids, (std::vector<int32_t>{1, 2, 4}));
  }
  EXPECT_EQ(route({}, 2, {-0.0f, 0.0f, -0.0f}).ids, (std::vector<int32_t>{0, 1}));
}

TEST(Routing, TiedGroupsGoToTheLowestId) {
  Routing r;
  r.score = Score::sigmoid;
  r.num_groups = 3;
  EXPECT_EQ(route(r, 2, {0, 1, 1, 0, 1, 0}).ids, (std::vector<int32_t>{1, 0}));
}

TEST(Routing, SaturatedScoresStillFollowTheLogits) {
  Routing r;
  r.score = Score::sigmoid;  // all of these are 1.0f as scores
  EXPECT_EQ(route(r, 3, {30, 50, 40, 20}).ids, (std::vector<int32_t>{1, 2, 0}));
  r.score = Score::softmax;  // all but the first are 0 as scores
  r.renormalize = false;
  EXPECT_EQ(route(r, 3, {500, 1, 3, 2}).ids, (std::vector<int32_t>{0, 2, 3}));
}

TEST(Routing, NanCountsAsMinusInfinity) {
  for (const Score score : {Score::softmax, Score::sigmoid, Score::sqrt_softplus}) {
    for (const bool renormalize : {true, false}) {
      Routing r;
      r.score = score;
      r.renormalize = renormalize;
      const Routes with_nan = route(r, 3, {kNan, 1, -kNan, 2});
      const Routes with_inf = route(r, 3, {-kInf, 1, -kInf, 2});
      EXPECT_EQ(with_nan.ids, (std::vector<int32_t>{3, 1, 0}));
      EXPECT_EQ(with_nan.ids, with_inf.ids);
      EXPECT_EQ(with_nan.weights, with_inf.weights);
      EXPECT_EQ(with_nan.weights[2], 0.0f);
    }
  }
}

TEST(Routing, RowWithoutAFiniteLogit) {
  for (const float logit : {kNan, -kInf}) {
    for (int i = 0; i < 6; ++i) {
      Routing r;
      r.score = static_cast<Score>(i % 3);
      r.renormalize = i < 3;
      for (const std::vector<float>& bias : {std::vector<float>{}, std::vector<float>(5, 1.0f)}) {
        const Routes out = route(r, 4, std::vector<float>(5, logit), bias);
        EXPECT_EQ(out.ids, (std::vector<int32_t>{0, 1, 2, 3}));
        EXPECT_EQ(out.weights, std::vector<float>(4, 0.0f));
      }
    }
  }
}

TEST(Routing, MaskedExpertsAreChosenLastEvenAgainstTheBias) {
  Routing r;
  r.score = Score::sigmoid;
  const Routes out = route(r, 3, {-kInf, -50, kNan, 1}, {100, 0, 100, 0});
  EXPECT_EQ(out.ids, (std::vector<int32_t>{3, 1, 0}));
  EXPECT_EQ(out.weights[2], 0.0f);
}

TEST(Routing, InfinityCountsAsTheLargestFiniteValue) {
  for (int i = 0; i < 6; ++i) {
    Routing r;
    r.score = static_cast<Score>(i % 3);
    r.renormalize = i < 3;
    const Routes out = route(r, 3, {1, kInf, 2, kInf});
    EXPECT_EQ(out.ids, (std::vector<int32_t>{1, 3, 2}));
    for (const float w : out.weights) EXPECT_TRUE(std::isfinite(w)) << w;
    EXPECT_EQ(out.weights[0], out.weights[1]);
  }
  EXPECT_EQ(route({}, 2, {0, kInf, kInf}).weights, (std::vector<float>{0.5f, 0.5f}));
}

TEST(Routing, BiasChangesTheChoiceButNotTheWeights) {
  Routing r;
  r.score = Score::sigmoid;
  r.renormalize = false;
  const std::vector<float> logits = {0, 1, 2, 3};
  const Routes out = route(r, 2, logits, {5, 0, 0, 0});
  EXPECT_EQ(out.ids, (std::vector<int32_t>{0, 3}));
  EXPECT_FLOAT_EQ(out.weights[0], 0.5f);  // sigmoid(0), no bias in it
  EXPECT_FLOAT_EQ(out.weights[1], static_cast<float>(1 / (1 + std::exp(-3.0))));
}

TEST(Routing, BadBiasValuesHideAnExpert) {
  Routing r;
  r.score = Score::sigmoid;
  EXPECT_EQ(route(r, 2, {1, 2, 3}, {0, 0, kNan}).ids, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(route(r, 2, {1, 2, 3}, {kInf, -kInf, 0}).ids, (std::vector<int32_t>{0, 2}));
}

TEST(Routing, GroupsLimitTheChoice) {
  Routing r;
  r.score = Score::sigmoid;
  r.num_groups = 2;
  const std::vector<float> logits = {5, -5, 3, 3};  // max prefers group 0, top-2 sum group 1
  r.group_rank = GroupRank::max;
  EXPECT_EQ(route(r, 2, logits).ids, (std::vector<int32_t>{0, 1}));
  r.group_rank = GroupRank::top2_sum;
  EXPECT_EQ(route(r, 2, logits).ids, (std::vector<int32_t>{2, 3}));
  r.topk_groups = 2;
  EXPECT_EQ(route(r, 3, logits).ids, (std::vector<int32_t>{0, 2, 3}));
}

TEST(Routing, SixtyFourGroups) {
  Routing r;
  r.score = Score::sigmoid;
  r.num_groups = 64;
  r.topk_groups = 1;
  std::vector<float> logits(128, -1.0f);
  logits[127] = 4.0f;
  EXPECT_EQ(route(r, 2, logits).ids, (std::vector<int32_t>{127, 126}));
}

TEST(Routing, LargestSizes) {
  std::mt19937 random(3);
  const std::vector<float> logits = spread_logits(kMaxExperts, random);
  for (int i = 0; i < 6; ++i) {
    Routing r;
    r.score = static_cast<Score>(i % 3);
    r.renormalize = i < 3;
    expect_equal(route(r, kMaxTopK, logits), oracle(r, kMaxTopK, logits, {}));
  }
  EXPECT_EQ(route({}, 32, std::vector<float>(32, 1.0f)).ids.back(), 31);  // every expert
}

TEST(Routing, ExtremeLogitsAndScalesGiveFiniteWeights) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (int i = 0; i < 6; ++i) {
    Routing r;
    r.score = static_cast<Score>(i % 3);
    r.renormalize = i < 3;
    for (const float scale : {1.0f, 0x1p60f, -2.5f, 0.0f}) {
      r.scale = scale;
      const Routes out = route(r, 4, {kMax, -kMax, kInf, 0, 1e-45f, -kInf, kNan});
      for (const float w : out.weights) EXPECT_TRUE(std::isfinite(w)) << w << " " << i;
    }
  }
}

// --- properties -------------------------------------------------------------------------------

std::vector<float> any_logits(int32_t num_experts) {
  using rc::gen::element;
  const auto value =
      rc::gen::oneOf(element(kNan, kInf, -kInf, 0.0f, -0.0f, 1.0f, 3e38f, -3e38f, 1e-44f),
                     rc::gen::map(rc::gen::inRange(-4000, 4000),
                                  [](int v) { return static_cast<float>(v) / 100; }));
  return *rc::gen::container<std::vector<float>>(num_experts, value);
}

Routing any_routing(int32_t num_experts, int32_t top_k) {
  Routing r;
  r.score = static_cast<Score>(*rc::gen::inRange(0, 3));
  r.renormalize = *rc::gen::arbitrary<bool>();
  r.num_groups = *rc::gen::element(1, 2, 4);
  r.group_rank = static_cast<GroupRank>(*rc::gen::inRange(0, 2));
  const int32_t size = num_experts / r.num_groups;
  r.topk_groups = *rc::gen::inRange((top_k + size - 1) / size, r.num_groups + 1);
  return r;
}

RC_GTEST_PROP(RoutingProperty, IdsAreDistinctAndInRangeAndWeightsFinite, ()) {
  const int32_t num_experts = 4 * *rc::gen::inRange(1, 20);
  const int32_t top_k = *rc::gen::inRange(1, std::min(num_experts, 32) + 1);
  const Routing r = any_routing(num_experts, top_k);
  const bool biased = *rc::gen::arbitrary<bool>();
  const std::vector<float> logits = any_logits(num_experts);
  const Routes out =
      route(r, top_k, logits, biased ? any_logits(num_experts) : std::vector<float>{});
  const std::set<int32_t> distinct(out.ids.begin(), out.ids.end());
  RC_ASSERT(static_cast<int32_t>(distinct.size()) == top_k);
  RC_ASSERT(*distinct.begin() >= 0 && *distinct.rbegin() < num_experts);
  std::set<int32_t> groups;
  double sum = 0;
  for (int32_t j = 0; j < top_k; ++j) {
    RC_ASSERT(std::isfinite(out.weights[j]) && out.weights[j] >= 0);
    RC_ASSERT(!(clean_logit(logits[out.ids[j]]) == -kInf && out.weights[j] != 0));
    groups.insert(out.ids[j] / (num_experts / r.num_groups));
    sum += out.weights[j];
  }
  RC_ASSERT(static_cast<int32_t>(groups.size()) <= r.topk_groups);
  if (r.renormalize) RC_ASSERT(sum == 0 || std::fabs(sum - 1) < 1e-5);
}

RC_GTEST_PROP(RoutingProperty, NoUnchosenLogitIsLarger, ()) {
  const int32_t num_experts = *rc::gen::inRange(2, 60);
  const int32_t top_k = *rc::gen::inRange(1, std::min(num_experts, 32) + 1);
  Routing r;
  r.score = static_cast<Score>(*rc::gen::inRange(0, 3));
  r.renormalize = *rc::gen::arbitrary<bool>();
  const std::vector<float> logits = any_logits(num_experts);
  const Routes out = route(r, top_k, logits);
  std::vector<double> cleaned;
  for (const float l : logits) cleaned.push_back(clean_logit(l));
  std::vector<int32_t> expected = order_of(cleaned);
  expected.resize(top_k);
  RC_ASSERT(out.ids == expected);
}

RC_GTEST_PROP(RoutingProperty, ScaleMultipliesOnce, ()) {
  const int32_t num_experts = 8;
  Routing r = any_routing(num_experts, 2);
  const std::vector<float> logits = any_logits(num_experts);
  const Routes plain = route(r, 2, logits);
  r.scale = 4.0f;  // a power of two: exact
  const Routes scaled = route(r, 2, logits);
  RC_ASSERT(plain.ids == scaled.ids);
  for (int j = 0; j < 2; ++j) RC_ASSERT(scaled.weights[j] == 4.0f * plain.weights[j]);
}

// --- check_routing ----------------------------------------------------------------------------

void expect_refused(const Routing& r, int32_t num_experts, int32_t top_k, const char* field) {
  const Status status = check_routing(r, num_experts, top_k);
  EXPECT_EQ(status.code, Code::invalid_argument) << field;
  EXPECT_EQ(std::string(status.message).rfind(std::string(field) + ":", 0), 0u) << status.message;
}

template <class F>
Routing with(F&& change) {
  Routing r;
  change(r);
  return r;
}

TEST(CheckRouting, RefusesWhatItDocuments) {
  expect_refused(with([](auto& r) { r.score = static_cast<Score>(-1); }), 8, 2, "routing.score");
  expect_refused(with([](auto& r) { r.score = static_cast<Score>(3); }), 8, 2, "routing.score");
  expect_refused({}, 0, 1, "num_experts");
  expect_refused({}, kMaxExperts + 1, 1, "num_experts");
  expect_refused({}, 8, 0, "top_k");
  expect_refused({}, 8, 9, "top_k");
  expect_refused({}, 64, 33, "top_k");
  expect_refused(with([](auto& r) { r.num_groups = 0; }), 8, 2, "routing.num_groups");
  expect_refused(with([](auto& r) { r.num_groups = 3; }), 8, 2, "routing.num_groups");
  expect_refused(with([](auto& r) { r.num_groups = 128; }), 128, 1, "routing.num_groups");
  expect_refused(with([](auto& r) { r.topk_groups = 0; }), 8, 2, "routing.topk_groups");
  expect_refused(with([](auto& r) { r.topk_groups = 2; }), 8, 2, "routing.topk_groups");
  expect_refused(with([](auto& r) { r.num_groups = 4; }), 8, 3, "top_k");
  expect_refused(with([](auto& r) { r.group_rank = static_cast<GroupRank>(2); }), 8, 2,
                 "routing.group_rank");
  for (const float scale : {kNan, kInf, -kInf, 0x1p61f, -0x1p61f}) {
    expect_refused(with([scale](auto& r) { r.scale = scale; }), 8, 2, "routing.scale");
  }
}

TEST(CheckRouting, AcceptsTheLimits) {
  EXPECT_TRUE(check_routing({}, 1, 1).ok());
  EXPECT_TRUE(check_routing({}, kMaxExperts, kMaxTopK).ok());
  EXPECT_TRUE(check_routing(with([](auto& r) { r.num_groups = r.topk_groups = 64; }), 64, 32).ok());
  EXPECT_TRUE(check_routing(with([](auto& r) { r.scale = -0x1p60f; }), 8, 2).ok());
}

}  // namespace
}  // namespace snug
