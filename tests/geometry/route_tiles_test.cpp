// SPDX-License-Identifier: Apache-2.0
#include "geometry/route_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace snug {
namespace {

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

static_assert(select_route_block_size(64, 8, 160) == 8);
static_assert(select_route_block_size(144, 8, 160) == 16);
static_assert(max_packed_slots(512, 8, 160) == 1632);
static_assert(token_bucket(4097) == 8192);

TEST(RouteTiles, ArithmeticTileEqualsTable) {
  ASSERT_EQ(std::size(kRouteTiles), static_cast<size_t>(kNumRouteTiles));
  for (int32_t i = 0; i < kNumRouteTiles; ++i) EXPECT_EQ(route_tile(i), kRouteTiles[i]);
  for (int32_t b = -1; b <= 128; ++b) {
    EXPECT_EQ(is_route_tile(b), b == 8 || b == 16 || b == 32 || b == 48 || b == 64) << b;
  }
}

struct SwitchPoints {
  int64_t num_experts, top_k;
  int64_t first[4];  // the first count that selects 16, 32, 48, 64
};
constexpr SwitchPoints kSwitchPoints[] = {
    {160, 8, {144, 288, 576, 864}},    {256, 8, {231, 461, 922, 1383}},
    {128, 6, {154, 308, 615, 922}},    {8, 2, {29, 58, 116, 173}},
    {896, 16, {404, 807, 1613, 2420}}, {512, 10, {369, 738, 1475, 2212}},
};

TEST(RouteTiles, PublishedSwitchPoints) {
  for (const SwitchPoints& row : kSwitchPoints) {
    for (int i = 0; i < 4; ++i) {
      const int64_t first = row.first[i];
      EXPECT_EQ(select_route_block_size(first, row.top_k, row.num_experts), kRouteTiles[i + 1]);
      EXPECT_EQ(select_route_block_size(first - 1, row.top_k, row.num_experts), kRouteTiles[i]);
      EXPECT_EQ(last_token_count_for_block(kRouteTiles[i], row.top_k, row.num_experts), first - 1);
    }
  }
}

/// The rule as it is written: the mean against nine tenths of the tile, exactly, with the cross
/// products in 128 bits.
int32_t oracle_select(int64_t m, int64_t k, int64_t e) {
  for (const int32_t b : kRouteTiles) {
    if (static_cast<__int128>(10) * m * k < static_cast<__int128>(9) * b * e) return b;
  }
  return 64;
}

TEST(RouteTiles, SelectionIsTheRuleAndMonotone) {
  for (int64_t e = 1; e <= 64; ++e) {
    for (int64_t k = 1; k <= 32; ++k) {
      int32_t before = 0;
      for (int64_t m = 0; m <= 60 * e; m += 1 + m / 64) {
        const int32_t b = select_route_block_size(m, k, e);
        ASSERT_EQ(b, oracle_select(m, k, e)) << m << " " << k << " " << e;
        ASSERT_GE(b, before);
        before = b;
      }
    }
  }
}

TEST(RouteTiles, NoOverflowAtTheLimits) {
  for (const int64_t m : {int64_t{1} << 24, int64_t{1} << 40, kInt64Max}) {
    for (const int64_t e : {1, 4096}) EXPECT_EQ(select_route_block_size(m, 32, e), 64);
    EXPECT_EQ(select_route_block_size(m, 1, 4096), 64);
  }
  EXPECT_EQ(max_packed_slots((int64_t{1} << 24) * 32, 64, 4096), 536'870'912 + 4096 * 63);
  EXPECT_EQ(token_bucket(int64_t{1} << 24), 1 << 24);
  EXPECT_EQ(token_bucket((int64_t{1} << 24) + 1), 1 << 25);
}

TEST(RouteTiles, LastTokenCountEqualsScan) {
  for (int64_t e = 1; e <= 40; ++e) {
    for (int64_t k = 1; k <= 32; ++k) {
      int64_t scanned[65] = {};
      for (int64_t m = 1; m <= 60 * e; ++m) scanned[oracle_select(m, k, e)] = m;
      for (const int32_t b : {8, 16, 32, 48}) {
        ASSERT_EQ(last_token_count_for_block(b, k, e), scanned[b]) << b << " " << k << " " << e;
      }
      ASSERT_EQ(last_token_count_for_block(64, k, e), kInt64Max);
      ASSERT_EQ(last_token_count_for_block(24, k, e), 0);
    }
  }
}

TEST(RouteTiles, CapacitySetHoldsEverySelectionAndNoOther) {
  for (int64_t e = 1; e <= 24; ++e) {
    for (int64_t k = 1; k <= 16; ++k) {
      for (int64_t capacity = 0; capacity <= 60 * e; capacity += 1 + capacity / 16) {
        const RouteBlocks blocks = route_block_sizes_for_capacity(capacity, k, e);
        int32_t low = 64, high = 8;
        for (int64_t m = 1; m <= std::max<int64_t>(capacity, 1); ++m) {
          const int32_t b = oracle_select(m, k, e);
          ASSERT_TRUE(blocks.contains(b));
          low = std::min(low, b);
          high = std::max(high, b);
        }
        // A contiguous slice of the table whose ends are really selected.
        ASSERT_EQ(blocks.sizes[0], low);
        ASSERT_EQ(blocks.sizes[blocks.count - 1], high);
        const auto* first = std::find(std::begin(kRouteTiles), std::end(kRouteTiles), low);
        ASSERT_TRUE(std::equal(blocks.begin(), blocks.end(), first));
      }
    }
  }
}

TEST(RouteTiles, CapacitySetOfOneExpertSkipsIntoTheSlice) {
  const RouteBlocks blocks = route_block_sizes_for_capacity(8, 8, 1);
  EXPECT_EQ(std::vector<int32_t>(blocks.begin(), blocks.end()),
            (std::vector<int32_t>{16, 32, 48, 64}));
  EXPECT_FALSE(blocks.contains(8));
  // top_k 28 on one expert: one token selects 32, two select 64; 48 is held though never selected.
  EXPECT_EQ(last_token_count_for_block(48, 28, 1), 0);
  EXPECT_TRUE(route_block_sizes_for_capacity(2, 28, 1).contains(48));
}

TEST(RouteTiles, BucketIsTheNextPowerOfTwo) {
  EXPECT_EQ(token_bucket(-3), 1);
  EXPECT_EQ(token_bucket(0), 1);
  int64_t expected = 1;
  for (int64_t t = 1; t <= 5000; ++t) {
    if (t > expected) expected *= 2;
    ASSERT_EQ(token_bucket(t), expected) << t;
  }
}

TEST(RouteTiles, PublishedCapacities) {
  EXPECT_EQ(ceil_div(max_packed_slots(3072 * 8, 64, 160), 64), 542);
  EXPECT_EQ(ceil_div(max_packed_slots(token_bucket(3072) * 8, 64, 160), 64), 670);
}

/// Calls visit(counts) for every way to give `routes` routes to experts index..end.
template <class F>
void for_each_split(std::vector<int64_t>& counts, size_t index, int64_t routes, F&& visit) {
  if (index + 1 == counts.size()) {
    counts.at(index) = routes;
    visit(counts);
    return;
  }
  for (counts.at(index) = 0; counts.at(index) <= routes; ++counts.at(index)) {
    for_each_split(counts, index + 1, routes - counts.at(index), visit);
  }
}

TEST(RouteTiles, PackedSlotsBoundEveryRouting) {
  for (int64_t experts = 1; experts <= 4; ++experts) {
    for (int64_t routes = 0; routes <= 26; ++routes) {
      for (const int64_t block : {1, 2, 3, 5, 8}) {
        int64_t most = 0;
        std::vector<int64_t> counts(experts);
        for_each_split(counts, 0, routes, [&](const std::vector<int64_t>& c) {
          int64_t slots = 0;
          for (const int64_t n : c) slots += (n + block - 1) / block * block;
          most = std::max(most, slots);
        });
        const int64_t bound = max_packed_slots(routes, block, experts);
        ASSERT_LE(most, bound) << experts << " " << routes << " " << block;
        if (routes <= experts || (routes - experts) % block == 0) {
          ASSERT_EQ(most, bound) << experts << " " << routes << " " << block;
        }
        ASSERT_LT(bound - most, block * experts) << "a whole tile of slack per expert";
      }
    }
  }
}

TEST(RouteTiles, PackedSlotsAreMonotoneInRoutes) {
  for (int64_t experts = 1; experts <= 40; ++experts) {
    for (const int64_t block : kRouteTiles) {
      for (int64_t n = 0; n < 3 * experts; ++n) {
        ASSERT_LE(max_packed_slots(n, block, experts), max_packed_slots(n + 1, block, experts));
      }
    }
  }
}

}  // namespace
}  // namespace snug
