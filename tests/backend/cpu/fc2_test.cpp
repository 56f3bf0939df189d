// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cpu/path.h"
#include "backend/cpu/route.h"
#include "support/cpu_paths.h"
#include "support/layer.h"

namespace snug::cpu {
namespace {

using test::LayerCall;
using test::LayerOptions;
using test::RandomLayer;
using test::StoredMatrix;

/// Routes a call, puts noise into the slots' activations and runs FC2 block by block: every route
/// with a slot gets the plain row, every other one keeps its bytes.
void check_fc2_path(const RandomLayer& layer, const Caps& caps, int32_t worker) {
  LayerCall call(layer, Machine::cpu, caps.max_tokens, caps);
  const Bound& bound = call.bound;
  Sync& sync = *make_sync(slice_data<uint8_t>(bound, SliceId::sync));
  route(bound, {0, caps.max_tokens}, sync);
  const int64_t routes = caps.max_tokens * caps.shape.top_k;
  const int64_t intermediate = caps.shape.intermediate, stride = activated_stride(intermediate);
  const int32_t* slot_route = slice_data<int32_t>(bound, SliceId::slot_route);
  const int32_t* local_expert = slice_data<int32_t>(bound, SliceId::local_expert);
  bf16* activated = slice_data<bf16>(bound, SliceId::activated);
  const int32_t num_slots =
      slice_data<int32_t>(bound, SliceId::expert_offsets)[caps.shape.num_local_experts];
  std::mt19937 random(layer.options.seed);
  std::normal_distribution<float> normal;
  for (int32_t slot = 0; slot < num_slots; ++slot) {
    for (int64_t i = 0; i < align_up(intermediate, kTileK); ++i) {
      activated[slot * stride + i] = f32_to_bf16(i < intermediate ? normal(random) : 0.0f);
    }
  }

  float* rows = worker_rows(bound, worker);
  const int64_t panels = ceil_div(caps.shape.hidden, kPanelRows);
  const int64_t together = bound.schedule.policy.column_block / kPanelRows;
  for (int64_t block = 0; block < ceil_div(panels, together); ++block) {
    const Range range = piece_of(panels, together, block);
    std::memset(rows, 0xFF, static_cast<size_t>(routes * range.size()) * kPanelRows * 4);
    path_of(caps.cpu_path).fc2(bound, sync, range, worker);
    for (int64_t panel = range.first; panel < range.last; ++panel) {
      const float* have = rows + (panel - range.first) * routes * kPanelRows;
      std::vector<bool> has_slot(static_cast<size_t>(routes), false);
      for (int32_t slot = 0; slot < num_slots; ++slot) {
        const int32_t r = slot_route[slot];
        has_slot[static_cast<size_t>(r)] = true;
        const StoredMatrix& down = layer.experts[static_cast<size_t>(local_expert[r])].down;
        for (int64_t n = 0; n < kPanelRows; ++n) {
          const int64_t row = panel * kPanelRows + n;
          if (row >= down.rows) break;
          double sum = 0, magnitude = 0;
          for (int64_t k = 0; k < intermediate; ++k) {
            const double term = static_cast<double>(bf16_to_f32(activated[slot * stride + k])) *
                                down.weight(row, k);
            sum += term;
            magnitude += std::fabs(term);
          }
          double y = sum * static_cast<double>(down.global);
          if (!down.bias.empty()) y += static_cast<double>(down.bias[static_cast<size_t>(row)]);
          const double bound_of_f32 =
              1e-6 * (magnitude * static_cast<double>(std::fabs(down.global)) + std::fabs(y));
          ASSERT_NEAR(have[r * kPanelRows + n], y, bound_of_f32)
              << "route " << r << " column " << row;
        }
      }
      for (int64_t r = 0; r < routes; ++r) {
        for (int n = 0; n < kPanelRows && !has_slot[static_cast<size_t>(r)]; ++n) {
          ASSERT_TRUE(std::isnan(have[r * kPanelRows + n])) << "route " << r << " has no slot";
        }
      }
    }
  }
}

void check_fc2(const RandomLayer& layer, const Caps& caps, int32_t worker) {
  for (const CpuPath path : test::cpu_paths()) {
    SCOPED_TRACE(cpu_path_name(path));
    Caps on_path = caps;
    on_path.cpu_path = path;
    check_fc2_path(layer, on_path, worker);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(CpuFc2, EveryTailBiasAndFormat) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    const int32_t group = format_info(format).group_size;
    for (int32_t groups = 1; groups <= 6; ++groups) {
      LayerOptions options;
      options.format = format;
      options.hidden = groups * group;
      options.intermediate = (7 - groups) * group;
      options.has_bias = groups % 2 == 1;
      options.seed = static_cast<uint32_t>(groups);
      RandomLayer layer(options);
      layer.ids[5] = 1000;
      layer.ids[6] = layer.ids[7] = 3;  // the same expert in both slots of a token
      check_fc2(layer, layer.caps(), 0);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CpuFc2, MoreRowsThanAPanelTakes) {
  LayerOptions options;
  options.num_experts = 1;
  options.max_tokens = 35;
  const RandomLayer layer(options);
  check_fc2(layer, layer.caps(), 0);
}

TEST(CpuFc2, AWorkerWritesItsOwnBlock) {
  const RandomLayer layer(LayerOptions{});
  Caps caps = layer.caps();
  caps.num_threads = 3;
  for (const int32_t worker : {0, 1, 2}) check_fc2(layer, caps, worker);

  LayerCall call(layer, Machine::cpu, 8, caps);
  const Slice& slice = call.bound.schedule.layout[SliceId::fc2_rows];
  const uint64_t block =
      8 * 2 * static_cast<uint64_t>(call.bound.schedule.policy.column_block) * sizeof(float);
  EXPECT_EQ(slice.nbytes, 3 * block);
  for (int32_t worker : {0, 1, 2}) {
    EXPECT_EQ(reinterpret_cast<uint8_t*>(worker_rows(call.bound, worker)),
              static_cast<uint8_t*>(call.arena().data()) + slice.offset +
                  static_cast<uint64_t>(worker) * block);
  }
}

}  // namespace
}  // namespace snug::cpu
