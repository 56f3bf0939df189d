// SPDX-License-Identifier: Apache-2.0
#include "base/integers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace snug {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

static_assert(ceil_div(0, 5) == 0 && ceil_div(1, 5) == 1 && ceil_div(10, 5) == 2);
static_assert(align_up(17, 16) == 32);
static_assert(min_of(2, 1) == 1 && max_of(2, 1) == 2);

TEST(Integers, CeilDivIsTheSmallestCover) {
  for (int64_t a = 0; a <= 300; ++a) {
    for (int64_t b = 1; b <= 70; ++b) {
      const int64_t q = ceil_div(a, b);
      ASSERT_GE(q * b, a);
      ASSERT_LT((q - 1) * b, a);
      ASSERT_EQ(align_up(a, b), q * b);
    }
  }
}

TEST(Integers, CeilDivOfLargeValues) {
  const int64_t large = int64_t{1} << 61;
  EXPECT_EQ(ceil_div(large, 4096), large / 4096);
  EXPECT_EQ(ceil_div(large + 1, 4096), large / 4096 + 1);
}

TEST(Integers, MinAndMaxReturnTheFirstOnTies) {
  EXPECT_EQ(min_of<int64_t>(-3, 4), -3);
  EXPECT_EQ(max_of<int64_t>(-3, 4), 4);
  EXPECT_EQ(min_of(5, 5), 5);
}

TEST(Integers, CheckedKeepsExactValues) {
  const Checked c = Checked(6) * 7 + 8;
  EXPECT_TRUE(c.ok());
  EXPECT_EQ(c.value(), 50u);
  EXPECT_TRUE((Checked(kMax) + 0).ok());
  EXPECT_TRUE((Checked(kMax) * 1).ok());
}

TEST(Integers, CheckedSeesEveryOverflow) {
  EXPECT_FALSE((Checked(kMax) + 1).ok());
  EXPECT_FALSE((Checked(uint64_t{1} << 32) * (uint64_t{1} << 32)).ok());
  for (uint64_t a = 1; a != 0; a <<= 1) {
    for (uint64_t b = 1; b != 0; b <<= 1) {
      const auto exact = static_cast<unsigned __int128>(a) * b;
      ASSERT_EQ((Checked(a) * b).ok(), exact <= kMax) << a << " * " << b;
    }
  }
}

TEST(Integers, CheckedStaysOverflowed) {
  const Checked bad = Checked(kMax) + 1;
  EXPECT_FALSE((bad + 0).ok());
  EXPECT_FALSE((Checked(0) + bad).ok());
  EXPECT_FALSE((bad * 0).ok());  // the zero hides the value, not the fault
  EXPECT_FALSE((Checked(1) * bad).ok());
}

}  // namespace
}  // namespace snug
