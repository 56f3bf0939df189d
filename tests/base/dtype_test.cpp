// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace snug {
namespace {

struct Row {
  DType dtype;
  int value;  // ABI
  int nbytes;
  const char* name;
};
constexpr Row kRows[] = {
    {DType::bf16, 0, 2, "bf16"}, {DType::f16, 1, 2, "f16"},        {DType::f32, 2, 4, "f32"},
    {DType::f64, 3, 8, "f64"},   {DType::s32, 4, 4, "s32"},        {DType::s64, 5, 8, "s64"},
    {DType::u8, 6, 1, "u8"},     {DType::s8, 7, 1, "s8"},          {DType::e4m3, 8, 1, "e4m3"},
    {DType::e8m0, 9, 1, "e8m0"}, {DType::e2m1x2, 10, 1, "e2m1x2"},
};
static_assert(std::size(kRows) == kNumDTypes, "a new dtype needs its row here");

TEST(DType, ValuesSizesAndNames) {
  std::set<std::string> names;
  for (const Row& row : kRows) {
    EXPECT_EQ(static_cast<int>(row.dtype), row.value) << row.name;
    EXPECT_EQ(dtype_nbytes(row.dtype), row.nbytes) << row.name;
    EXPECT_STREQ(dtype_name(row.dtype), row.name);
    names.insert(dtype_name(row.dtype));
  }
  EXPECT_EQ(names.size(), std::size(kRows));
}

TEST(DType, OutsideTheEnum) {
  EXPECT_STREQ(dtype_name(static_cast<DType>(-1)), "unknown");
  EXPECT_STREQ(dtype_name(static_cast<DType>(kNumDTypes)), "unknown");
}

}  // namespace
}  // namespace snug
