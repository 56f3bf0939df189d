// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
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
using test::StoredExpert;
using test::StoredMatrix;

/// h of one row: products in order of k in f32, as the contract's plainest reading.
float fc1_row(const StoredMatrix& m, const bf16* x, int64_t row, float on_input) {
  float sum = 0;
  for (int64_t k = 0; k < m.k; ++k) {
    sum += bf16_to_f32(x[k]) * static_cast<float>(m.weight(row, k));
  }
  const float h = sum * m.global * on_input;
  return m.bias.empty() ? h : h + m.bias[static_cast<size_t>(row)];
}

/// Within two units of bf16's last place, or of a row's noise near zero.
bool close(bf16 have, float want) {
  const float bound = std::fabs(want) * 0x1p-6f + 1e-5f;
  return std::fabs(bf16_to_f32(have) - want) <= bound;
}

/// Routes and runs FC1 on `num_workers` threads; then every slot's row must be the plain one, whole
/// tiles end in zeros, and what has no slot must still be what it was.
void check_fc1_path(const RandomLayer& layer, const Caps& caps, Range tokens, int num_workers) {
  LayerCall call(layer, Machine::cpu, tokens.last, caps);
  const Bound& bound = call.bound;
  Sync& sync = *make_sync(slice_data<uint8_t>(bound, SliceId::sync));
  route(bound, tokens, sync);
  std::vector<std::thread> threads;
  for (int w = 0; w < num_workers; ++w) {
    threads.emplace_back([&, w] { path_of(caps.cpu_path).fc1(bound, tokens, sync, w); });
  }
  for (std::thread& thread : threads) thread.join();

  const int32_t top_k = caps.shape.top_k, intermediate = caps.shape.intermediate;
  const int64_t stride = activated_stride(intermediate);
  const int32_t* slot_route = slice_data<int32_t>(bound, SliceId::slot_route);
  const int32_t* local_expert = slice_data<int32_t>(bound, SliceId::local_expert);
  const bf16* activated = slice_data<bf16>(bound, SliceId::activated);
  const int32_t num_slots =
      slice_data<int32_t>(bound, SliceId::expert_offsets)[caps.shape.num_local_experts];
  for (int32_t slot = 0; slot < num_slots; ++slot) {
    const int32_t r = slot_route[slot];
    const StoredExpert& e = layer.experts[static_cast<size_t>(local_expert[r])];
    const int64_t token = tokens.first + r / top_k;
    const bf16* x = layer.x.data() + token * layer.options.hidden;
    const float on_input = caps.router_weight_on_input
                               ? layer.weights[static_cast<size_t>(token * top_k + r % top_k)]
                               : 1.0f;
    for (int64_t i = 0; i < intermediate; ++i) {
      const float gate = fc1_row(e.gate, x, i, on_input);
      const float up = e.up.rows != 0 ? fc1_row(e.up, x, i, on_input) : 0.0f;
      ASSERT_TRUE(close(activated[slot * stride + i], activate(caps.activation, gate, up)))
          << "slot " << slot << " element " << i << " of " << intermediate << " have "
          << bf16_to_f32(activated[slot * stride + i]) << " want "
          << activate(caps.activation, gate, up);
    }
    for (int64_t i = intermediate; i < align_up(intermediate, kTileK); ++i) {
      ASSERT_EQ(activated[slot * stride + i].bits & 0x7FFF, 0) << "past the end, " << i;
    }
  }
  const int64_t routes = tokens.size() * top_k;
  for (int64_t i = int64_t{num_slots} * stride; i < routes * stride; ++i) {
    ASSERT_EQ(activated[i].bits, 0xFFFF) << "written without a slot";
  }
}

void check_fc1(const RandomLayer& layer, const Caps& caps, Range tokens, int num_workers) {
  for (const CpuPath path : test::cpu_paths()) {
    SCOPED_TRACE(cpu_path_name(path));
    Caps on_path = caps;
    on_path.cpu_path = path;
    on_path.num_threads = num_workers;
    check_fc1_path(layer, on_path, tokens, num_workers);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(CpuFc1, EveryTailBiasActivationAndFormat) {
  constexpr Activation kActivations[] = {
      {}, {ActivationKind::relu2}, {ActivationKind::swiglu_oai, 1.702f, 1, 7}};
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    const int32_t group = format_info(format).group_size;
    for (const Activation& activation : kActivations) {
      for (int32_t groups = 1; groups <= 5; ++groups) {
        LayerOptions options;
        options.format = format;
        options.hidden = (6 - groups) * group;
        options.intermediate = groups * group;
        options.activation = activation;
        options.has_bias = groups % 2 == 0;
        options.seed = static_cast<uint32_t>(groups);
        RandomLayer layer(options);
        layer.ids[3] = -1;
        check_fc1(layer, layer.caps(), {0, 8}, 1);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// 75 slots of one expert: two whole blocks of 32 rows and a short one.
TEST(CpuFc1, MoreRowsThanAPanelTakes) {
  LayerOptions options;
  options.num_experts = 2;
  options.top_k = 1;
  options.max_tokens = 76;
  RandomLayer layer(options);
  for (int32_t& id : layer.ids) id = 1;
  layer.ids[0] = 0;
  check_fc1(layer, layer.caps(), {0, 76}, 1);
}

TEST(CpuFc1, TheRouterWeightMultipliesOnInputOnly) {
  LayerOptions options;
  options.top_k = 1;
  options.has_bias = true;  // the bias is not multiplied
  const RandomLayer layer(options);
  Caps caps = layer.caps();
  caps.router_weight_on_input = true;
  check_fc1(layer, caps, {0, 8}, 1);
}

TEST(CpuFc1, AChunkReadsItsOwnTokens) {
  LayerOptions options;
  options.top_k = 1;
  const RandomLayer layer(options);
  Caps caps = layer.caps();
  caps.router_weight_on_input = true;
  check_fc1(layer, caps, {3, 7}, 1);
}

TEST(CpuFc1, WorkersShareTheTasks) {
  const RandomLayer layer(LayerOptions{});
  for (const int num_workers : {2, 5}) check_fc1(layer, layer.caps(), {0, 8}, num_workers);
}

}  // namespace
}  // namespace snug::cpu
