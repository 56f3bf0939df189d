// SPDX-License-Identifier: Apache-2.0
#include "geometry/packed_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace snug {
namespace {

constexpr LayoutTag kCpuLayouts[] = {LayoutTag::plain, LayoutTag::panel_16x32};
constexpr LayoutTag kAllLayouts[] = {LayoutTag::plain, LayoutTag::panel_16x32,
                                     LayoutTag::record_16x64};
// Multiples of a group with every kind of tail: below a tile, one over, whole, odd panels.
constexpr int32_t kGroupsOfSize[] = {1, 2, 3, 4, 5, 6, 7, 9, 12};

MoeShape shape_of(int32_t hidden, int32_t intermediate) { return {hidden, intermediate, 4, 3, 2}; }

/// Calls `body(layout)` for every format, kind of FC1 and pair of sizes.
template <class Body>
void for_each_layout(std::span<const LayoutTag> tags, Body body) {
  for (const LayoutTag tag : tags) {
    for (const Format format : {Format::nvfp4, Format::mxfp4}) {
      const int32_t group = format_info(format).group_size;
      for (const ActivationKind kind : {ActivationKind::silu, ActivationKind::relu2}) {
        for (const int32_t h : kGroupsOfSize) {
          for (const int32_t i : kGroupsOfSize) {
            for (const bool bias : {false, true}) {
              const PackedLayout layout =
                  make_packed_layout(tag, format, shape_of(h * group, i * group), kind, bias);
              SCOPED_TRACE(std::string(layout_name(tag)) + " " + format_info(format).name + " H " +
                           std::to_string(layout.hidden) + " I " +
                           std::to_string(layout.intermediate) +
                           (layout.gated ? " gated" : " ungated") + (bias ? " bias" : ""));
              body(layout);
              if (testing::Test::HasFailure()) return;  // one layout's worth of messages
            }
          }
        }
      }
    }
  }
}

/// The packed rows of all logical rows of a matrix, gate rows first.
std::vector<int64_t> packed_rows(const PackedLayout& layout, bool fc1) {
  std::vector<int64_t> rows;
  if (!fc1) {
    for (int64_t r = 0; r < layout.hidden; ++r) {
      rows.push_back(packed_row(layout, false, false, r));
    }
    return rows;
  }
  for (int half = 0; half < (layout.gated ? 2 : 1); ++half) {
    for (int64_t r = 0; r < layout.intermediate; ++r) {
      rows.push_back(packed_row(layout, true, half == 1, r));
    }
  }
  return rows;
}

/// Every code has its own nibble inside the codes; every (row, group) its own scale byte.
void expect_places_of_their_own(const PackedLayout& layout, bool fc1) {
  const MatrixLayout& m = fc1 ? layout.fc1 : layout.fc2;
  const int64_t group = format_info(layout.format).group_size;
  std::vector<bool> code_taken(2 * m.codes_nbytes), scale_taken(m.scales_nbytes);
  int64_t outside = 0, shared = 0, split_groups = 0;
  const std::vector<int64_t> rows = packed_rows(layout, fc1);
  EXPECT_EQ(static_cast<int64_t>(rows.size()), m.rows.value);
  for (const int64_t row : rows) {
    if (row < 0 || row >= m.padded_rows.value) ++outside;
    for (int64_t k = 0; k < m.k; ++k) {
      const int64_t byte = code_byte_offset(layout, m, row, k);
      const int64_t scale = scale_byte_offset(layout, m, row, k);
      if (byte < 0 || byte >= m.codes_nbytes || scale < 0 || scale >= m.scales_nbytes) {
        ++outside;
        continue;
      }
      const int64_t nibble = 2 * byte + code_nibble(layout, k);
      shared += code_taken[nibble] ? 1 : 0;
      code_taken[nibble] = true;
      if (k % group == 0) {
        shared += scale_taken[scale] ? 1 : 0;
        scale_taken[scale] = true;
      } else {
        split_groups += scale != scale_byte_offset(layout, m, row, k - 1) ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(outside, 0) << (fc1 ? "fc1" : "fc2");
  EXPECT_EQ(shared, 0) << (fc1 ? "fc1" : "fc2");
  EXPECT_EQ(split_groups, 0) << (fc1 ? "fc1" : "fc2");
}

TEST(PackedWeights, EveryCodeAndScaleHasItsOwnPlace) {
  for_each_layout(kCpuLayouts, [](const PackedLayout& layout) {
    if (layout.has_bias) return;  // bias moves neither
    expect_places_of_their_own(layout, true);
    expect_places_of_their_own(layout, false);
  });
}

TEST(PackedWeights, PaddingIsWholeTilesAndNoMore) {
  for_each_layout(kAllLayouts, [](const PackedLayout& layout) {
    const int64_t group = format_info(layout.format).group_size;
    const bool plain = layout.tag == LayoutTag::plain;
    const int64_t row_unit = plain ? 1 : layout.tag == LayoutTag::panel_16x32 ? 32 : 16;
    const int64_t k_unit = plain ? group : layout.tag == LayoutTag::panel_16x32 ? 32 : 64;
    EXPECT_EQ(layout.fc1.rows.value, layout.intermediate * (layout.gated ? 2 : 1));
    EXPECT_EQ(layout.fc2.rows.value, layout.hidden);
    EXPECT_EQ(layout.fc1.k, layout.hidden);
    EXPECT_EQ(layout.fc2.k, layout.intermediate);
    for (const MatrixLayout* m : {&layout.fc1, &layout.fc2}) {
      EXPECT_GE(m->padded_rows.value, m->rows.value);
      EXPECT_LT(m->padded_rows.value - m->rows.value, row_unit);
      EXPECT_EQ(m->padded_rows.value % row_unit, 0);
      EXPECT_GE(m->padded_k, m->k);
      EXPECT_LT(m->padded_k - m->k, k_unit);
      EXPECT_EQ(m->padded_k % k_unit, 0);
      EXPECT_EQ(m->codes_nbytes, m->padded_rows.value * m->padded_k / 2);
      EXPECT_EQ(m->scales_nbytes, m->padded_rows.value * m->padded_k / group);
    }
  });
}

TEST(PackedWeights, PartsOfARecordAreDisjointAndAligned) {
  for_each_layout(kAllLayouts, [](const PackedLayout& layout) {
    std::vector<std::pair<int64_t, int64_t>> parts;  // offset, bytes
    for (const MatrixLayout* m : {&layout.fc1, &layout.fc2}) {
      parts.emplace_back(m->codes_offset, m->codes_nbytes);
      parts.emplace_back(m->scales_offset, m->scales_nbytes);
      if (layout.has_bias) parts.emplace_back(m->bias_offset, m->padded_rows.value * 4);
    }
    parts.emplace_back(layout.globals_offset, 4 * 4);
    std::sort(parts.begin(), parts.end());
    int64_t end = 0, used = 0;
    for (const auto& [offset, nbytes] : parts) {
      EXPECT_EQ(offset % kRecordAlignment, 0);
      EXPECT_GE(offset, end);
      EXPECT_LT(offset - end, kRecordAlignment) << "a hole of a whole line";
      end = offset + nbytes;
      used += nbytes;
    }
    EXPECT_GE(layout.expert_nbytes, end);
    EXPECT_LT(layout.expert_nbytes - end, kRecordAlignment);
    EXPECT_EQ(layout.expert_nbytes % kRecordAlignment, 0);
    EXPECT_EQ(layout.total_nbytes(), layout.expert_nbytes * layout.num_local_experts);
    EXPECT_GE(layout.expert_nbytes, used);
  });
}

TEST(PackedWeights, GateAndUpOfAnIndexShareAPanel) {
  for_each_layout(kCpuLayouts, [](const PackedLayout& layout) {
    if (!layout.gated) return;
    for (int64_t i = 0; i < layout.intermediate; ++i) {
      const int64_t gate = packed_row(layout, true, false, i);
      const int64_t up = packed_row(layout, true, true, i);
      if (layout.tag == LayoutTag::plain) {
        EXPECT_EQ(gate, i);
        EXPECT_EQ(up, layout.intermediate + i);
      } else {
        EXPECT_EQ(gate / kPanelRows, up / kPanelRows) << i;
        EXPECT_EQ(up - gate, kTileRows) << i;
        EXPECT_EQ(gate % kPanelRows, i % kTileRows) << i;
      }
    }
  });
}

TEST(PackedWeights, PlainIsTheCheckpointsOrder) {
  const PackedLayout layout = make_packed_layout(LayoutTag::plain, Format::nvfp4, shape_of(48, 32),
                                                 ActivationKind::silu, true);
  EXPECT_EQ(code_byte_offset(layout, layout.fc1, 3, 7), 3 * 24 + 3);
  EXPECT_EQ(scale_byte_offset(layout, layout.fc1, 3, 33), 3 * 3 + 2);
  EXPECT_EQ(layout.fc1.padded_rows.value, 64);
}

TEST(PackedWeights, PanelBytesByHand) {
  // 32 indices gated = 64 packed rows = two panels, 64 k = two k tiles; a tile is 256 bytes.
  const PackedLayout layout = make_packed_layout(LayoutTag::panel_16x32, Format::nvfp4,
                                                 shape_of(64, 32), ActivationKind::silu, false);
  const MatrixLayout& m = layout.fc1;
  EXPECT_EQ(code_byte_offset(layout, m, 0, 0), 0);
  EXPECT_EQ(code_byte_offset(layout, m, 0, 7), 3);  // vector 0, lane 0, last odd code
  EXPECT_EQ(code_nibble(layout, 7), 1);
  EXPECT_EQ(code_byte_offset(layout, m, 0, 1), 2);  // odd codes in the high half
  EXPECT_EQ(code_nibble(layout, 1), 0);
  EXPECT_EQ(code_byte_offset(layout, m, 0, 2), 0);  // beside the first
  EXPECT_EQ(code_nibble(layout, 2), 1);
  EXPECT_EQ(code_byte_offset(layout, m, 1, 0), 4);           // lane 1
  EXPECT_EQ(code_byte_offset(layout, m, 0, 8), 64);          // vector 1
  EXPECT_EQ(code_byte_offset(layout, m, 16, 0), 256);        // the up half's tile
  EXPECT_EQ(code_byte_offset(layout, m, 0, 32), 512);        // the next k tile
  EXPECT_EQ(code_byte_offset(layout, m, 32, 0), 1024);       // the next panel
  EXPECT_EQ(code_byte_offset(layout, m, 63, 63), 2048 - 1);  // the last byte
  EXPECT_EQ(scale_byte_offset(layout, m, 5, 15), 5);         // group 0, lane 5
  EXPECT_EQ(scale_byte_offset(layout, m, 5, 16), 16 + 5);    // group 1 of the tile
  EXPECT_EQ(scale_byte_offset(layout, m, 21, 0), 32 + 5);    // the up half
  EXPECT_EQ(scale_byte_offset(layout, m, 63, 63), 256 - 1);  // the last byte
}

TEST(PackedWeights, NamesOfLayouts) {
  EXPECT_STREQ(layout_name(LayoutTag::plain), "plain");
  EXPECT_STREQ(layout_name(LayoutTag::panel_16x32), "panel_16x32");
  EXPECT_STREQ(layout_name(LayoutTag::record_16x64), "record_16x64");
}

}  // namespace
}  // namespace snug
