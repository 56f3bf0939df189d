// SPDX-License-Identifier: Apache-2.0
#include "moe/portable_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace snug {
namespace {

/// Distance of `have` from `exact` in units of the f32 spacing at `exact` (a normal value).
double ulps(float have, double exact) {
  return std::fabs(have - exact) / std::ldexp(1.0, std::ilogb(exact) - 23);
}

/// Calls visit(x) for every `stride`-th float of [low, high], both of one sign, ascending.
template <class F>
void for_each_float(float low, float high, uint32_t stride, F&& visit) {
  const bool negative = low < 0;
  uint32_t a = std::bit_cast<uint32_t>(negative ? high : low);
  const uint32_t b = std::bit_cast<uint32_t>(negative ? low : high);
  for (; a <= b; a += stride) visit(std::bit_cast<float>(a));
}

TEST(PortableMath, ExpWithinTwoUlp) {
  double worst = 0;
  const auto visit = [&worst](float x) {
    worst = std::max(worst, ulps(exp_portable(x), std::exp(static_cast<double>(x))));
  };
  for_each_float(-87.3f, -0x1p-30f, 241, visit);
  for_each_float(0x1p-30f, 88.0f, 241, visit);
  visit(0.0f);
  EXPECT_LE(worst, 2.0);
  EXPECT_GT(worst, 0.4) << "a sweep that finds no rounding error sees nothing";
}

TEST(PortableMath, ExpAtItsEnds) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_portable(0.0f), 1.0f);
  EXPECT_EQ(exp_portable(-0.0f), 1.0f);
  EXPECT_EQ(exp_portable(-kInf), 0.0f);
  EXPECT_EQ(exp_portable(-88.0f), 0.0f);
  EXPECT_EQ(exp_portable(std::nextafter(-87.3f, -kInf)), 0.0f);
  EXPECT_GE(exp_portable(-87.3f), std::numeric_limits<float>::min());
  EXPECT_EQ(exp_portable(1e30f), exp_portable(88.0f));
  EXPECT_TRUE(std::isfinite(exp_portable(kInf)));
}

/// Steps downwards between neighbours: none may exceed one ulp, or routing would see an order that
/// the logits do not have.
TEST(PortableMath, ExpIsMonotoneButForOneUlp) {
  const auto check = [](float low, float high) {
    float before = exp_portable(low);
    int drops = 0;
    const int steps = 400'000;
    float x = low;
    for (int i = 0; i < steps && x < high; ++i) {
      x = std::nextafter(x, high);
      const float now = exp_portable(x);
      ASSERT_GE(now, std::nextafter(before, 0.0f)) << std::hexfloat << x;
      drops += now < before;
      before = now;
    }
    EXPECT_LT(drops, steps / 4);
  };
  check(-87.3f, -1.0f);
  check(-20.1f, -1.0f);
  check(-0.40f, -0.30f);  // across the change of n at ln2 / 2
  check(1.0f, 88.0f);
}

TEST(PortableMath, SoftplusWithinFourUlp) {
  double worst = 0;
  const auto visit = [&worst](float x) {
    const double d = x;
    const double exact = std::max(d, 0.0) + std::log1p(std::exp(-std::fabs(d)));
    worst = std::max(worst, ulps(softplus_portable(x), exact));
  };
  for_each_float(-87.3f, -0x1p-30f, 241, visit);
  for_each_float(0x1p-30f, 200.0f, 241, visit);
  visit(0.0f);
  EXPECT_LE(worst, 4.0);
  EXPECT_GT(worst, 0.4);
}

TEST(PortableMath, SoftplusAtItsEnds) {
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_NEAR(softplus_portable(0.0f), std::log(2.0), 1e-7);
  EXPECT_EQ(softplus_portable(kMax), kMax);
  EXPECT_EQ(softplus_portable(-kMax), 0.0f);
  EXPECT_EQ(softplus_portable(-100.0f), 0.0f);
}

TEST(PortableMath, RoundedOperationsRoundOnce) {
  // (1 + e)^2 - 1: a fused multiply-add would keep the e^2 that the product's rounding drops.
  const float x = 1.0f + 0x1p-12f;
  EXPECT_EQ(add_rn(mul_rn(x, x), -1.0f), 0x1p-11f);
  EXPECT_EQ(div_rn(1.0f, 3.0f), 1.0f / 3.0f);
  EXPECT_EQ(sqrt_rn(2.0f), std::sqrt(2.0f));
}

}  // namespace
}  // namespace snug
