// SPDX-License-Identifier: Apache-2.0
#include "geometry/scale_swizzle.h"

#include <gtest/gtest.h>

#include <vector>

namespace snug {
namespace {

static_assert(swizzled_scale_offset(0, 0, 8) == 0);
static_assert(swizzled_scale_offset(1, 0, 8) == 16);
static_assert(swizzled_scale_offset(32, 0, 8) == 4);
static_assert(swizzled_scale_offset(0, 4, 8) == 512);
static_assert(swizzled_scale_offset(128, 0, 8) == 1024);

TEST(ScaleSwizzle, IsABijection) {
  for (const int64_t rows : {128, 256, 640}) {
    for (const int64_t groups : {4, 8, 12, 20, 48}) {
      std::vector<int> hits(static_cast<size_t>(rows * groups));
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t group = 0; group < groups; ++group) {
          const int64_t at = swizzled_scale_offset(row, group, groups);
          ASSERT_TRUE(at >= 0 && at < rows * groups) << row << " " << group;
          ++hits[static_cast<size_t>(at)];
        }
      }
      for (const int hit : hits) ASSERT_EQ(hit, 1) << rows << " x " << groups;
    }
  }
}

/// The other description of the same layout: the blob as [R/128, C/4, 32, 4, 4] with axes a, b, c,
/// d, e; row = 128 a + 32 d + c, column = 4 b + e.
TEST(ScaleSwizzle, IsTheFiveAxisBlob) {
  constexpr int64_t kRowTiles = 3, kGroupTiles = 5;
  int64_t at = 0;
  for (int64_t a = 0; a < kRowTiles; ++a) {
    for (int64_t b = 0; b < kGroupTiles; ++b) {
      for (int64_t c = 0; c < 32; ++c) {
        for (int64_t d = 0; d < 4; ++d) {
          for (int64_t e = 0; e < 4; ++e, ++at) {
            ASSERT_EQ(swizzled_scale_offset(128 * a + 32 * d + c, 4 * b + e, 4 * kGroupTiles), at);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace snug
