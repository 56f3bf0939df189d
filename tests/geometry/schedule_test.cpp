// SPDX-License-Identifier: Apache-2.0
#include "geometry/schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace snug {
namespace {

TEST(Schedule, PiecesTileTheTotalExactlyOnce) {
  for (int64_t total = 1; total <= 130; ++total) {
    for (int64_t piece = 1; piece <= 140; ++piece) {
      const int64_t count = ceil_div(total, piece);
      int64_t at = 0;
      for (int64_t index = 0; index < count; ++index) {
        const Range r = piece_of(total, piece, index);
        ASSERT_EQ(r.first, at) << total << " by " << piece;
        ASSERT_GT(r.size(), 0) << total << " by " << piece;
        ASSERT_TRUE(r.size() == piece || index == count - 1) << total << " by " << piece;
        ASSERT_LE(r.size(), piece);
        at = r.last;
      }
      ASSERT_EQ(at, total) << "by " << piece;
    }
  }
}

PackedLayout layout_of(int32_t hidden, int32_t intermediate, ActivationKind kind) {
  return make_packed_layout(LayoutTag::panel_16x32, Format::nvfp4, {hidden, intermediate, 1, 1, 1},
                            kind, false);
}

TEST(Schedule, PanelsCoverEveryRowAndNoPanelIsEmpty) {
  for (const ActivationKind kind : {ActivationKind::silu, ActivationKind::relu2}) {
    const int columns = fc1_columns_per_panel(is_gated(kind));
    EXPECT_EQ(columns, is_gated(kind) ? 16 : 32);
    for (int32_t h = 16; h <= 160; h += 16) {
      for (int32_t i = 16; i <= 160; i += 16) {
        const PackedLayout layout = layout_of(h, i, kind);
        EXPECT_EQ(fc1_panels(layout) * kPanelRows, layout.fc1.padded_rows.value) << h << " " << i;
        EXPECT_EQ(fc2_panels(layout) * kPanelRows, layout.fc2.padded_rows.value) << h << " " << i;
        std::vector<bool> fc1_used(static_cast<size_t>(fc1_panels(layout)));
        for (int64_t r = 0; r < i; ++r) {
          const int64_t panel = packed_row(layout, true, false, r) / kPanelRows;
          ASSERT_LT(panel, fc1_panels(layout));
          ASSERT_EQ(panel, r / columns) << "panel p yields the elements of piece p";
          fc1_used[static_cast<size_t>(panel)] = true;
        }
        for (const bool used : fc1_used) EXPECT_TRUE(used) << h << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace snug
