// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backend/cpu/path.h"
#include "support/cpu_paths.h"
#include "support/layer.h"

namespace snug::cpu {
namespace {

using test::LayerCall;
using test::LayerOptions;
using test::RandomLayer;

LayerOptions options_of(int32_t hidden, int32_t top_k) {
  LayerOptions options;
  options.hidden = hidden;
  options.intermediate = 16;
  options.top_k = top_k;
  options.max_tokens = 4;
  return options;
}

/// A call whose routes all count, with FC2 rows that are 1 everywhere.
struct Rows {
  LayerCall call;
  float* rows;
  int32_t* local_expert;

  Rows(const RandomLayer& layer, const Caps& caps)
      : call(layer, Machine::cpu, 4, caps),
        rows(worker_rows(call.bound, 0)),
        local_expert(slice_data<int32_t>(call.bound, SliceId::local_expert)) {
    const int32_t routes = 4 * caps.shape.top_k;
    std::fill(rows, rows + routes * kPanelRows, 1.0f);
    std::fill(local_expert, local_expert + routes, 0);
  }
};

class CpuCombine : public testing::TestWithParam<CpuPath> {
 protected:
  /// The combine of the path under test, for one panel whose rows begin the worker's block.
  void combine(const Bound& bound, Range tokens, int64_t panel, int32_t worker) const {
    path_of(GetParam()).combine(bound, tokens, {panel, panel + 1}, worker);
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, CpuCombine, testing::ValuesIn(test::cpu_paths()),
                         [](const testing::TestParamInfo<CpuPath>& info) {
                           return std::string(cpu_path_name(info.param));
                         });

TEST_P(CpuCombine, SumsInSlotOrder) {
  RandomLayer layer(options_of(32, 4));
  layer.weights.assign(16, 1.0f);
  Rows r(layer, layer.caps());
  // (((1e8 + 1) - 1e8) + 1) is 1 in f32; any other order of these four gives another sum.
  const float values[] = {1e8f, 1.0f, -1e8f, 1.0f};
  for (int slot = 0; slot < 4; ++slot) r.rows[(4 + slot) * kPanelRows + 7] = values[slot];
  combine(r.call.bound, {0, 4}, 0, 0);
  const std::vector<float> y = r.call.output();
  EXPECT_EQ(y[32 + 7], 1.0f);
  EXPECT_EQ(y[32 + 6], 4.0f);
}

TEST_P(CpuCombine, MultipliesByTheRouterWeightOfTheSlot) {
  RandomLayer layer(options_of(16, 2));
  layer.weights = {0.5f, 4, 1, 2, 3, 5, 7, -11};
  Rows r(layer, layer.caps());
  for (int route = 0; route < 8; ++route) r.rows[route * kPanelRows + 3] = 1 << route;
  combine(r.call.bound, {0, 4}, 0, 0);
  const std::vector<float> y = r.call.output();
  EXPECT_EQ(y[3], 0.5f * 1 + 4 * 2);
  EXPECT_EQ(y[16 + 3], 1 * 4 + 2 * 8);
  EXPECT_EQ(y[32 + 3], 3 * 16 + 5 * 32);
  EXPECT_EQ(y[48 + 3], 7 * 64 - 11 * 128);
}

// NaN in a row that nobody wrote must not reach the sum: not read, not multiplied by zero.
TEST_P(CpuCombine, RoutesWithoutASlotAreNotRead) {
  RandomLayer layer(options_of(16, 2));
  layer.weights.assign(8, 1.0f);
  layer.weights[1] = NAN;
  Rows r(layer, layer.caps());
  for (const int route : {1, 4, 5}) {
    r.local_expert[route] = -1;
    for (int n = 0; n < kPanelRows; ++n) r.rows[route * kPanelRows + n] = NAN;
  }
  combine(r.call.bound, {0, 4}, 0, 0);
  const std::vector<float> y = r.call.output();
  for (size_t n = 0; n < 16; ++n) {
    EXPECT_EQ(y[n], 1.0f);
    EXPECT_EQ(y[16 + n], 2.0f);
    EXPECT_EQ(y[32 + n], 0.0f);  // nothing local: exactly zero
    EXPECT_FALSE(std::signbit(y[32 + n]));
    EXPECT_EQ(y[48 + n], 2.0f);
  }
}

TEST_P(CpuCombine, TheLastPanelEndsAtHidden) {
  RandomLayer layer(options_of(48, 1));
  layer.weights.assign(4, 2.0f);
  Rows r(layer, layer.caps());
  combine(r.call.bound, {1, 3}, 1, 0);
  const std::vector<float> y = r.call.output();
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t token = i / 48, n = i % 48;
    if (n >= 32 && (token == 1 || token == 2)) {
      EXPECT_EQ(y[i], 2.0f) << i;
    } else {
      EXPECT_TRUE(std::isnan(y[i])) << i << " belongs to another panel or chunk";
    }
  }
}

TEST_P(CpuCombine, AChunksRoutesCountFromItsFirstToken) {
  RandomLayer layer(options_of(16, 1));
  layer.weights = {1, 10, 100, 1000};
  Rows r(layer, layer.caps());
  r.rows[0] = 3;
  r.rows[kPanelRows] = 5;
  combine(r.call.bound, {2, 4}, 0, 0);
  const std::vector<float> y = r.call.output();
  EXPECT_EQ(y[32], 300.0f);
  EXPECT_EQ(y[48], 5000.0f);
  EXPECT_TRUE(std::isnan(y[16]));
}

TEST_P(CpuCombine, WeightsThatWereAppliedOnInputAreNotAppliedAgain) {
  RandomLayer layer(options_of(16, 1));
  layer.weights = {0.5f, 0.25f, 8, NAN};
  Caps caps = layer.caps();
  caps.router_weight_on_input = true;
  Rows r(layer, caps);
  combine(r.call.bound, {0, 4}, 0, 0);
  for (const float v : r.call.output()) EXPECT_EQ(v, 1.0f);
}

// 1 + 2^-8 is the tie between two bf16: rounded at every step the sum would stay 1.
TEST_P(CpuCombine, RoundsOnceAtTheEnd) {
  RandomLayer layer(options_of(16, 3));
  layer.weights.assign(12, 1.0f);
  Caps caps = layer.caps();
  caps.output_dtype = DType::bf16;
  Rows r(layer, caps);
  r.rows[kPanelRows] = r.rows[2 * kPanelRows] = 0x1p-8f;
  combine(r.call.bound, {0, 4}, 0, 0);
  const std::vector<float> y = r.call.output();
  EXPECT_EQ(y[0], 1 + 0x1p-7f);
  EXPECT_EQ(y[1], 3.0f);
}

TEST_P(CpuCombine, ReadsTheWorkersOwnBlock) {
  RandomLayer layer(options_of(16, 1));
  layer.weights.assign(4, 1.0f);
  Caps caps = layer.caps();
  caps.num_threads = 2;
  Rows r(layer, caps);
  float* second = worker_rows(r.call.bound, 1);
  std::fill(second, second + 4 * kPanelRows, 6.0f);
  combine(r.call.bound, {0, 4}, 0, 1);
  for (const float v : r.call.output()) EXPECT_EQ(v, 6.0f);
}

}  // namespace
}  // namespace snug::cpu
