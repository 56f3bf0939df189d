// SPDX-License-Identifier: Apache-2.0
#include "base/bf16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace snug {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

static_assert(bf16_to_f32(bf16{0x3F80}) == 1.0f);
static_assert(f32_to_bf16(-2.0f).bits == 0xC000);
static_assert(f64_to_bf16(0.5).bits == 0x3F00);

/// The value of finite bf16 bits by ldexp; 0x7F80 (infinity) is 2^128, the next step of the scale.
double value_of(uint32_t magnitude_bits) {
  const int exponent = static_cast<int>(magnitude_bits >> 7);
  const int mantissa = static_cast<int>(magnitude_bits & 0x7F);
  return exponent == 0 ? std::ldexp(mantissa, -133) : std::ldexp(128 + mantissa, exponent - 134);
}

/// Nearest bf16 of a non-NaN double, ties to the even bit pattern: a binary search over all values.
uint16_t nearest_bf16(double d) {
  const uint16_t sign = std::signbit(d) ? 0x8000 : 0;
  const double x = std::fabs(d);
  uint32_t low = 0, high = 0x7F80;  // value_of(low) <= x, or x beyond the scale
  if (x >= value_of(high)) return sign | 0x7F80;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (value_of(middle) <= x ? low : high) = middle;
  }
  const double below = x - value_of(low), above = value_of(high) - x;  // exact: same binade
  const bool up = above < below || (above == below && high % 2 == 0);
  return sign | static_cast<uint16_t>(up ? high : low);
}

TEST(Bf16, EveryValueRoundTrips) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const bf16 v{static_cast<uint16_t>(bits)};
    const float f = bf16_to_f32(v);
    ASSERT_EQ(std::bit_cast<uint32_t>(f), bits << 16);
    if (std::isnan(f)) {
      ASSERT_EQ(f32_to_bf16(f).bits, bits | 0x40u) << std::hex << bits;
      ASSERT_EQ(f64_to_bf16(f).bits & 0x7FC0u, 0x7FC0u) << std::hex << bits;
    } else {
      ASSERT_EQ(f32_to_bf16(f).bits, bits) << std::hex << bits;
      ASSERT_EQ(f64_to_bf16(f).bits, bits) << std::hex << bits;
    }
  }
}

TEST(Bf16, RoundsAroundEveryMidpoint) {
  for (uint32_t high = 0; high < 0x7F80; ++high) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      for (const uint32_t sign : {0u, 0x80000000u}) {
        const float f = std::bit_cast<float>(sign | high << 16 | low);
        ASSERT_EQ(f32_to_bf16(f).bits, nearest_bf16(f)) << std::hexfloat << f;
        ASSERT_EQ(f64_to_bf16(f).bits, nearest_bf16(f)) << std::hexfloat << f;
      }
    }
  }
}

TEST(Bf16, TiesGoToEven) {
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F808000u)).bits, 0x3F80);  // down to even
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F818000u)).bits, 0x3F82);  // up to even
}

TEST(Bf16, OverflowAndInfinities) {
  EXPECT_EQ(f32_to_bf16(kInf).bits, 0x7F80);
  EXPECT_EQ(f32_to_bf16(-kInf).bits, 0xFF80);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7F7F7FFFu)).bits, 0x7F7F);  // just below the tie
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7F7F8000u)).bits, 0x7F80);  // the tie: odd below
  EXPECT_EQ(f64_to_bf16(1e300).bits, 0x7F80);
  EXPECT_EQ(f64_to_bf16(-1e300).bits, 0xFF80);
  EXPECT_EQ(f64_to_bf16(-std::numeric_limits<double>::infinity()).bits, 0xFF80);
}

TEST(Bf16, EveryNanStaysNanWithItsSign) {
  for (const uint32_t payload : {1u, 0x7Fu, 0xFFFFu, 0x10000u, 0x3FFFFFu, 0x400000u, 0x7FFFFFu}) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const uint16_t bits = f32_to_bf16(std::bit_cast<float>(sign | 0x7F800000u | payload)).bits;
      EXPECT_EQ(bits & 0x7FC0, 0x7FC0) << std::hex << payload;
      EXPECT_EQ(bits >> 15, sign >> 31);
    }
  }
  EXPECT_EQ(f64_to_bf16(std::numeric_limits<double>::quiet_NaN()).bits & 0x7FC0, 0x7FC0);
}

TEST(Bf16, DoubleRoundingTrap) {
  // A hair above the tie between 0x3F80 and 0x3F81: f32 rounds the hair away, then the tie goes to
  // even, downwards. One rounding goes up.
  const double trap = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(f32_to_bf16(static_cast<float>(trap)).bits, 0x3F80);
  EXPECT_EQ(f64_to_bf16(trap).bits, 0x3F81);
  // A hair below the tie between 0x3F81 and 0x3F82: f32 lands on the tie and goes up.
  const double trap_below = 1.0 + 3 * 0x1p-8 - 0x1p-40;
  EXPECT_EQ(f32_to_bf16(static_cast<float>(trap_below)).bits, 0x3F82);
  EXPECT_EQ(f64_to_bf16(trap_below).bits, 0x3F81);
}

TEST(Bf16, DoubleRoundsOnceNearEveryTie) {
  for (uint32_t low = 0; low < 0x7F7F; ++low) {
    const double tie = (value_of(low) + value_of(low + 1)) / 2;
    for (const double hair : {-0x1p-30, -0x1p-50, 0.0, 0x1p-50, 0x1p-30}) {
      for (const double sign : {1.0, -1.0}) {
        const double d = sign * tie * (1.0 + hair);
        ASSERT_EQ(f64_to_bf16(d).bits, nearest_bf16(d)) << std::hexfloat << d;
      }
    }
  }
}

TEST(Bf16, DoubleOfAnyMagnitude) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300'000; ++i) {
    const double d = std::bit_cast<double>(random());
    if (std::isnan(d)) continue;
    ASSERT_EQ(f64_to_bf16(d).bits, nearest_bf16(d)) << std::hexfloat << d;
    const double near_one = std::ldexp(d, -std::ilogb(d) + static_cast<int>(random() % 280) - 150);
    if (std::isfinite(near_one)) {
      ASSERT_EQ(f64_to_bf16(near_one).bits, nearest_bf16(near_one)) << std::hexfloat << near_one;
    }
  }
  EXPECT_EQ(f64_to_bf16(-0.0).bits, 0x8000);
  EXPECT_EQ(f64_to_bf16(-1e-300).bits, 0x8000);
}

}  // namespace
}  // namespace snug
