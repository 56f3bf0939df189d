// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/panel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "support/layer.h"

namespace snug::cpu {
namespace {

using test::GuardedMemory;
using test::LayerOptions;
using test::RandomLayer;
using test::StoredExpert;

/// An FC1 matrix of `rows` rows (gate and up each, when gated) and k columns in the panel layout.
struct Panel {
  RandomLayer layer;
  PackedLayout layout;
  GuardedMemory record;

  Panel(Format format, bool gated, int32_t rows, int32_t k)
      : layer([&] {
          LayerOptions options;
          options.format = format;
          options.hidden = k;
          options.intermediate = rows;
          options.num_experts = options.top_k = 1;
          options.max_tokens = kMaxPanelRows;
          if (!gated) options.activation = {ActivationKind::relu2};
          options.seed = static_cast<uint32_t>(rows * 1000 + k);
          return options;
        }()),
        layout(make_packed_layout(LayoutTag::panel_16x32, format, layer.caps().shape,
                                  layer.options.activation.kind, false)),
        record(test::prepare(layer, layout)) {}

  /// code * scale of packed row `lane` of a panel, straight from the stored matrices.
  float weight(int64_t panel, int lane, int64_t k) const {
    const StoredExpert& e = layer.experts[0];
    const bool up = layout.gated && lane >= kTileRows;
    const int64_t row = layout.gated ? panel * kTileRows + lane % kTileRows : panel * 32 + lane;
    const test::StoredMatrix& m = up ? e.up : e.gate;
    return row < m.rows ? static_cast<float>(m.weight(row, k)) : 0.0f;
  }
};

/// Multiplies `count` rows that each end at an unmapped page, and judges every sum by bits: the
/// order over k is a promise.
void check_panel(const Panel& p, int64_t panel, int count) {
  const int64_t k = p.layout.fc1.k;
  std::vector<GuardedMemory> memory;
  std::vector<const bf16*> rows;
  for (int r = 0; r < count; ++r) {
    memory.emplace_back(static_cast<uint64_t>(k) * 2, 2, GuardedMemory::Edge::back);
    std::memcpy(memory.back().data(), p.layer.x.data() + r * k, static_cast<size_t>(k) * 2);
    rows.push_back(static_cast<const bf16*>(memory.back().data()));
  }
  GuardedMemory acc(static_cast<uint64_t>(count) * kPanelRows * 4, 4, GuardedMemory::Edge::back);
  auto* sums = static_cast<float(*)[kPanelRows]>(acc.data());
  multiply_panel(p.layout, p.layout.fc1, static_cast<const uint8_t*>(p.record.data()), panel,
                 rows.data(), count, sums);
  for (int r = 0; r < count; ++r) {
    for (int lane = 0; lane < kPanelRows; ++lane) {
      float want = 0;
      double exact = 0, magnitude = 0;
      for (int64_t i = 0; i < k; ++i) {
        const float term = bf16_to_f32(rows[static_cast<size_t>(r)][i]) * p.weight(panel, lane, i);
        want += term;
        exact += static_cast<double>(term);
        magnitude += std::fabs(static_cast<double>(term));
      }
      ASSERT_EQ(sums[r][lane], want)
          << "k " << k << " panel " << panel << " row " << r << " lane " << lane;
      ASSERT_LE(std::fabs(static_cast<double>(want) - exact), magnitude * k * 0x1p-24);
    }
  }
}

TEST(Panel, EqualsAPlainLoopForEveryTailOfK) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    const int32_t group = format_info(format).group_size;
    for (const bool gated : {true, false}) {
      for (int32_t k = group; k <= 10 * group; k += group) {
        const Panel p(format, gated, 2 * group, k);
        for (int64_t panel = 0; panel < ceil_div(2 * group, gated ? 16 : 32); ++panel) {
          check_panel(p, panel, 3);
        }
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Panel, EqualsAPlainLoopForEveryNumberOfRows) {
  const Panel p(Format::nvfp4, true, 48, 80);
  for (int count = 1; count <= kMaxPanelRows; ++count) {
    check_panel(p, count % 3, count);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// What lies past the logical rows is zero, so it adds nothing whatever the activations are.
TEST(Panel, LanesPastTheRowsAreZero) {
  const Panel p(Format::nvfp4, false, 48, 64);
  const bf16* rows[] = {p.layer.x.data()};
  float sums[1][kPanelRows];
  multiply_panel(p.layout, p.layout.fc1, static_cast<const uint8_t*>(p.record.data()), 1, rows, 1,
                 sums);
  for (int lane = 16; lane < kPanelRows; ++lane) EXPECT_EQ(sums[0][lane], 0.0f) << lane;
}

TEST(Panel, OneRowsBitsDoNotDependOnTheOthers) {
  const Panel p(Format::mxfp4, true, 32, 96);
  const auto* record = static_cast<const uint8_t*>(p.record.data());
  std::vector<const bf16*> rows;
  for (int r = 0; r < kMaxPanelRows; ++r) rows.push_back(p.layer.x.data() + r * 96);
  float together[kMaxPanelRows][kPanelRows], alone[1][kPanelRows];
  multiply_panel(p.layout, p.layout.fc1, record, 1, rows.data(), kMaxPanelRows, together);
  for (int r = 0; r < kMaxPanelRows; ++r) {
    multiply_panel(p.layout, p.layout.fc1, record, 1, &rows[static_cast<size_t>(r)], 1, alone);
    ASSERT_EQ(std::memcmp(alone[0], together[r], sizeof alone[0]), 0) << r;
  }
}

// The extremes of the scales are decoded as they are: E4M3 subnormals, both ends of E8M0.
TEST(Panel, ExtremeScalesAreExact) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    for (const int byte : format == Format::nvfp4 ? std::vector<int>{0, 1, 7, 8, 0x7E, 0x81, 0xFE}
                                                  : std::vector<int>{0, 1, 126, 252}) {
      LayerOptions options = format == Format::nvfp4 ? LayerOptions{} : test::mxfp4_options();
      options.num_experts = options.top_k = 1;
      RandomLayer layer(options);
      for (uint8_t& scale : layer.experts[0].gate.scales) scale = static_cast<uint8_t>(byte);
      const PackedLayout layout = make_packed_layout(
          LayoutTag::panel_16x32, format, layer.caps().shape, ActivationKind::silu, false);
      const GuardedMemory record = test::prepare(layer, layout);
      std::vector<bf16> x(static_cast<size_t>(options.hidden), bf16{0});
      const bf16* rows[] = {x.data()};
      float sums[1][kPanelRows];
      for (size_t k = 0; k < x.size(); ++k) {
        x[k] = f32_to_bf16(1.0f);
        multiply_panel(layout, layout.fc1, static_cast<const uint8_t*>(record.data()), 0, rows, 1,
                       sums);
        for (int lane = 0; lane < kTileRows; ++lane) {
          const double want = layer.experts[0].gate.weight(lane, static_cast<int64_t>(k));
          ASSERT_EQ(sums[0][lane], static_cast<float>(want)) << byte << " k " << k;
        }
        x[k] = bf16{0};
      }
    }
  }
}

}  // namespace
}  // namespace snug::cpu
