// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace snug {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return make_error(Code::invalid_argument, "n: have %d, need an even number", n);
  return n / 2;
}

TEST(Result, HoldsAValue) {
  Result<int> r = half(8);
  ASSERT_TRUE(r);
  EXPECT_TRUE(r.has_value());
  EXPECT_EQ(*r, 4);
  EXPECT_TRUE(r.error().ok());
  *r = 5;
  EXPECT_EQ(r.value(), 5);
}

TEST(Result, HoldsAnError) {
  const Result<int> r = half(7);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Code::invalid_argument);
  EXPECT_STREQ(r.error().message, "n: have 7, need an even number");
}

TEST(Result, ArrowReachesMembers) {
  Result<std::string> r(std::string("abc"));
  EXPECT_EQ(r->size(), 3u);
}

TEST(Result, MoveOnlyValuesMoveOut) {
  Result<std::unique_ptr<int>> r(std::make_unique<int>(3));
  std::unique_ptr<int> p = std::move(r).value();
  EXPECT_EQ(*p, 3);
}

Result<int> quarter(int n) {
  SNUG_ASSIGN_OR_RETURN(const int h, half(n));
  SNUG_ASSIGN_OR_RETURN(const int q, half(h));
  return q;
}

Result<std::unique_ptr<int>> boxed_half(int n) {
  SNUG_ASSIGN_OR_RETURN(std::unique_ptr<int> box, [n]() -> Result<std::unique_ptr<int>> {
    SNUG_ASSIGN_OR_RETURN(const int h, half(n));
    return std::make_unique<int>(h);
  }());
  return box;
}

TEST(Result, AssignOrReturn) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_STREQ(quarter(6).error().message, "n: have 3, need an even number");
  EXPECT_EQ(**boxed_half(4), 2);
  EXPECT_FALSE(boxed_half(5));
}

TEST(ResultDeathTest, MisuseAborts) {
  Result<int> bad = half(3);
  EXPECT_DEATH((void)bad.value(), "assertion failed: has_value");
  EXPECT_DEATH((void)Result<int>(Status{}), "assertion failed: !error.ok");
}

}  // namespace
}  // namespace snug
