// SPDX-License-Identifier: Apache-2.0
#include "moe/shape.h"

#include <gtest/gtest.h>

#include <string>

namespace snug {
namespace {

struct Field {
  const char* name;
  int32_t MoeShape::*member;
  int32_t low, high;
};
constexpr MoeShape kGood = {6144, 512, 160, 80, 8};
constexpr Field kFields[] = {
    {"hidden", &MoeShape::hidden, 1, 1 << 17},
    {"intermediate", &MoeShape::intermediate, 1, 1 << 17},
    {"num_experts", &MoeShape::num_experts, 80, 4096},  // below 80 num_local_experts is at fault
    {"num_local_experts", &MoeShape::num_local_experts, 0, 160},
    {"top_k", &MoeShape::top_k, 1, 32},
};

Status check_with(const Field& field, int32_t value) {
  MoeShape shape = kGood;
  shape.*field.member = value;
  return check_shape(shape);
}

TEST(Shape, AcceptsTheRangeAndNamesWhatIsOutside) {
  for (const Field& field : kFields) {
    EXPECT_TRUE(check_with(field, field.low).ok()) << field.name;
    EXPECT_TRUE(check_with(field, field.high).ok()) << field.name;
    const Status above = check_with(field, field.high + 1);
    EXPECT_EQ(above.code, Code::invalid_argument);
    const std::string expected =
        std::string(field.name) + ": have " + std::to_string(field.high + 1) + ", need ";
    EXPECT_EQ(std::string(above.message).rfind(expected, 0), 0u) << above.message;
    EXPECT_EQ(check_with(field, -1).code, Code::invalid_argument) << field.name;
    EXPECT_EQ(check_with(field, 0).ok(), field.low == 0) << field.name;
  }
  EXPECT_FALSE(check_with(kFields[2], 0).ok());
  EXPECT_FALSE(check_with(kFields[2], 79).ok());
}

TEST(Shape, EmptyRankAndRepeatedIdsAreShapes) {
  EXPECT_TRUE(check_shape({16, 16, 4, 0, 8}).ok());  // top_k above num_experts too
  EXPECT_FALSE(check_shape({}).ok());
}

TEST(Shape, Limits) {
  EXPECT_EQ(kMaxExperts, 4096);
  EXPECT_EQ(kMaxTopK, 32);
  EXPECT_EQ(kMaxTokens, 16'777'216);
}

}  // namespace
}  // namespace snug
