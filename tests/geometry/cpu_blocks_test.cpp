// SPDX-License-Identifier: Apache-2.0
#include "geometry/cpu_blocks.h"

#include <gtest/gtest.h>

namespace snug::cpu {
namespace {

constexpr int64_t kWidths[] = {32, 96, 256, 768, 2048, 2880, 6144, 14336};

TEST(CpuBlocks, ActivatedRowsAreWholeTilesAndNoMultipleOf256Bytes) {
  for (int64_t i = 16; i <= 4096; i += 16) {
    const int64_t stride = activated_stride(i);
    EXPECT_EQ(stride % kTileK, 0);
    EXPECT_GE(stride, i);
    EXPECT_LE(stride - i, 2 * kTileK - 16);
    EXPECT_NE(stride * 2 % 256, 0) << i;
  }
}

TEST(CpuBlocks, ABlockFitsItsShareOfTheCacheOrIsTheLeast) {
  for (const bool tiles : {false, true}) {
    for (const int64_t k : kWidths) {
      for (int64_t routes = 1; routes <= 600; ++routes) {
        const int64_t slots = block_slots(k, routes, tiles);
        ASSERT_GE(slots, 1);
        ASSERT_LE(slots, kMaxBlockSlots);
        ASSERT_TRUE(slots >= routes || slots % (2 * kTileSlots) == 0);
        ASSERT_LE(slots, tiles ? align_up(routes, int64_t{kTileSlots}) : routes);
        ASSERT_TRUE(slots * prepared_row_nbytes(k, tiles) <= kRowsNbytes ||
                    slots <= 2 * kTileSlots);
        ASSERT_GE(block_slots(k, routes + 1, tiles), slots);
      }
    }
  }
}

TEST(CpuBlocks, ScratchPartsAreAlignedApartAndGrowWithTheRoutes) {
  for (const bool tiles : {false, true}) {
    for (const int64_t hidden : kWidths) {
      for (const int64_t intermediate : kWidths) {
        WorkerScratch before;
        for (int64_t routes = 1; routes <= 400; routes += 7) {
          const WorkerScratch s = worker_scratch(hidden, intermediate, routes, tiles);
          for (const int64_t k : {hidden, intermediate}) {
            const int64_t slots = block_slots(k, routes, tiles);
            ASSERT_GE(s.strip_offset, slots * prepared_row_nbytes(k, tiles));
            ASSERT_GE(s.nbytes - s.acc_offset, slots * kPanelRows * 4);
          }
          const int64_t strip = s.acc_offset - s.strip_offset;
          const int64_t whole = max_of(hidden, intermediate) * kPanelRows * 2;
          ASSERT_TRUE(!tiles ? strip == 0 : strip >= kRingNbytes);
          ASSERT_TRUE(!tiles || routes <= 2 * kTileSlots || strip >= whole);
          for (const int64_t part : {s.rows_offset, s.strip_offset, s.acc_offset, s.nbytes}) {
            ASSERT_EQ(part % 64, 0);
          }
          ASSERT_GE(s.strip_offset, before.strip_offset);
          ASSERT_GE(s.nbytes, before.nbytes);
          before = s;
        }
      }
    }
  }
}

TEST(CpuBlocks, TasksCoverThePanelsAndLeaveAnEvenEnd) {
  for (int64_t panels = 1; panels <= 200; ++panels) {
    for (const int64_t workers : {1, 2, 7, 64}) {
      for (const int64_t block : {32, 64, 128, 512}) {
        const int64_t together = fc2_panels_together(panels, block, workers);
        ASSERT_GE(together, 1);
        ASSERT_LE(together * kPanelRows, block);
        ASSERT_TRUE(together == 1 || ceil_div(panels, together) >= 4 * workers);
      }
      for (const int64_t active : {1, 8, 128}) {
        const int64_t together = fc1_panels_together(panels, active, workers);
        ASSERT_GE(together, 1);
        ASSERT_LE(together, panels);
        ASSERT_TRUE(together == 1 || panels * active / together >= 16 * workers);
      }
    }
  }
}

}  // namespace
}  // namespace snug::cpu
