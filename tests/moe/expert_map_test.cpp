// SPDX-License-Identifier: Apache-2.0
#include "moe/expert_map.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "moe/shape.h"

namespace snug {
namespace {

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

TEST(LocalExpert, IdentityWithoutAMap) {
  for (int32_t id = 0; id < 8; ++id) EXPECT_EQ(local_expert_of(id, 8, nullptr), id);
  for (const int64_t id : {int64_t{-1}, int64_t{-2}, int64_t{8}, int64_t{1} << 32, kInt64Max,
                           -kInt64Max - 1, (int64_t{1} << 32) + 3}) {
    EXPECT_EQ(local_expert_of(id, 8, nullptr), -1) << id;
  }
}

TEST(LocalExpert, MapIsReadOnlyInRange) {
  const int32_t map[4] = {-1, 1, -1, 0};
  const int32_t expected[4] = {-1, 1, -1, 0};
  for (int32_t id = 0; id < 4; ++id) EXPECT_EQ(local_expert_of(id, 4, map), expected[id]);
  for (const int64_t id : {int64_t{-1}, int64_t{4}, (int64_t{1} << 32) + 1, kInt64Max}) {
    EXPECT_EQ(local_expert_of(id, 4, map), -1) << id;
  }
}

Status check(const std::vector<int32_t>& map, int32_t num_local, bool replicas = false) {
  return check_expert_map(map.data(), static_cast<int32_t>(map.size()), num_local, replicas);
}

TEST(ExpertMap, AcceptsHolesOrdersAndEmptyRanks) {
  EXPECT_TRUE(check({0, 1, 2, 3}, 4).ok());
  EXPECT_TRUE(check({3, 1, 0, 2}, 4).ok());
  EXPECT_TRUE(check({-1, 1, -1, 0, -1}, 2).ok());
  EXPECT_TRUE(check({-1, -1, -1}, 0).ok());
  std::vector<int32_t> largest(kMaxExperts);
  for (int32_t e = 0; e < kMaxExperts; ++e) largest[e] = kMaxExperts - 1 - e;
  EXPECT_TRUE(check(largest, kMaxExperts).ok());
}

TEST(ExpertMap, RefusesValuesOutOfRange) {
  const Status above = check({0, 2, 1}, 2);
  EXPECT_EQ(above.code, Code::invalid_argument);
  EXPECT_STREQ(above.message, "expert_map: expert 1 maps to 2, need -1..1");
  EXPECT_STREQ(check({0, 1, -2}, 2).message, "expert_map: expert 2 maps to -2, need -1..1");
  EXPECT_STREQ(check({-1, 0}, 0).message, "expert_map: expert 1 maps to 0, need -1..-1");
  EXPECT_FALSE(check({0, std::numeric_limits<int32_t>::min()}, 1).ok());
  EXPECT_FALSE(check({0, std::numeric_limits<int32_t>::max()}, 1).ok());
}

TEST(ExpertMap, RefusesDuplicatesUnlessDeclared) {
  const Status twice = check({0, 1, -1, 0}, 2);
  EXPECT_EQ(twice.code, Code::invalid_argument);
  EXPECT_STREQ(
      twice.message,
      "expert_map: expert 3 maps to 0, which is already taken (replicas must be declared)");
  EXPECT_TRUE(check({0, 1, -1, 0}, 2, true).ok());
}

TEST(ExpertMap, RefusesGaps) {
  for (const bool replicas : {false, true}) {
    const Status gap = check({0, -1, 2}, 3, replicas);
    EXPECT_EQ(gap.code, Code::invalid_argument);
    EXPECT_STREQ(gap.message, "expert_map: no expert maps to local expert 1, need each of 0..2");
  }
  EXPECT_FALSE(check({0, 0}, 2, true).ok());
  EXPECT_FALSE(check({0, 1}, 3).ok());  // more local experts than experts
}

/// Every map of up to 4 experts into up to 3 local ones against the sentence in the header.
TEST(ExpertMap, EverySmallMap) {
  for (int32_t n = 0; n <= 4; ++n) {
    for (int32_t num_local = 0; num_local <= 3; ++num_local) {
      std::vector<int32_t> map(n, -2);
      while (true) {
        std::vector<int> count(8, 0);
        bool in_range = true;
        for (const int32_t v : map) {
          in_range &= v >= -1 && v < num_local;
          if (v >= 0) ++count[v];
        }
        bool once = in_range, at_least_once = in_range;
        for (int32_t l = 0; l < num_local; ++l) {
          once &= count[l] == 1;
          at_least_once &= count[l] >= 1;
        }
        ASSERT_EQ(check(map, num_local).ok(), once);
        ASSERT_EQ(check(map, num_local, true).ok(), at_least_once);
        int32_t digit = 0;
        while (digit < n && ++map[digit] > 3) map[digit++] = -2;
        if (digit == n) break;
      }
    }
  }
}

}  // namespace
}  // namespace snug
