// SPDX-License-Identifier: Apache-2.0
#include "base/macros.h"

#include <gtest/gtest.h>

namespace snug {
namespace {

SNUG_HD constexpr int twice(int x) {
  SNUG_ASSERT(x >= 0);  // usable in constant expressions as long as it holds
  return 2 * x;
}
static_assert(twice(4) == 8);

TEST(Macros, TrueAssertionIsSilentAndEvaluatedOnce) {
  int evaluations = 0;
  SNUG_ASSERT(++evaluations == 1);
  EXPECT_EQ(evaluations, 1);
}

TEST(MacrosDeathTest, FalseAssertionNamesExpressionAndPlace) {
  EXPECT_DEATH(SNUG_ASSERT(1 + 1 == 3), "macros_test.cpp:[0-9]+: snug bug: .*1 \\+ 1 == 3");
}

}  // namespace
}  // namespace snug
