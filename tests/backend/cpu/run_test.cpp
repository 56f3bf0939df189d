// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/run.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <new>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/path.h"
#include "support/cpu_paths.h"
#include "support/layer.h"
#include "support/thread_executor.h"

namespace snug::cpu {
namespace {

using test::LayerCall;
using test::LayerOptions;
using test::RandomLayer;

LayerOptions small_options(Format format) {
  LayerOptions options = format == Format::mxfp4 ? test::mxfp4_options() : LayerOptions{};
  options.num_experts = 5;
  options.top_k = 3;
  options.max_tokens = 40;
  options.has_bias = true;
  return options;
}

TEST(CpuRun, EveryPathIsCloseToTheReference) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    RandomLayer layer(small_options(format));
    layer.ids[4] = -1;
    layer.ids[8] = 5;
    for (const int64_t tokens : {1, 2, 7, 33, 40}) {
      const std::vector<float> oracle =
          test::run(layer, Machine::reference, tokens, Numerics::float64);
      for (const CpuPath path : test::cpu_paths()) {
        Caps caps = layer.caps();
        caps.cpu_path = path;
        LayerCall call(layer, Machine::cpu, tokens, caps);
        EXPECT_LE(test::relative_l2(call.run(), oracle), 1e-3)
            << cpu_path_name(path) << " " << tokens;
        // The path itself left its name: the asked for one ran.
        const auto* sync =
            std::launder(reinterpret_cast<Sync*>(slice_data<uint8_t>(call.bound, SliceId::sync)));
        EXPECT_EQ(sync->path, path);
      }
    }
  }
}

TEST(CpuRun, BitsDoNotDependOnTheNumberOfThreads) {
  const RandomLayer layer(small_options(Format::nvfp4));
  Caps caps = layer.caps();
  const std::vector<float> want = LayerCall(layer, Machine::cpu, 40, caps).run();
  for (const int32_t threads : {2, 3, 8}) {
    caps.num_threads = threads;
    EXPECT_EQ(LayerCall(layer, Machine::cpu, 40, caps).run(), want) << threads;
  }
}

TEST(CpuRun, ACallersExecutorMayHaveFewerWorkers) {
  const RandomLayer layer(small_options(Format::nvfp4));
  Caps caps = layer.caps();
  const std::vector<float> want = LayerCall(layer, Machine::cpu, 40, caps).run();
  caps.num_threads = 4;
  for (int32_t most = 1; most <= 5; ++most) {
    LayerCall call(layer, Machine::cpu, 40, caps);
    call.bound.executor = {test::thread_executor, &most};
    EXPECT_EQ(call.run(), want) << most;
  }
}

TEST(CpuRun, ChunksChangeNoBit) {
  const RandomLayer layer(small_options(Format::nvfp4));
  Caps caps = layer.caps();
  caps.num_threads = 2;
  caps.batch_invariant = true;  // else the number of an expert's slots may choose its kernel
  LayerCall whole(layer, Machine::cpu, 40, caps);
  const std::vector<float> want = whole.run();
  // The least limit that works, to a twentieth: how much that is depends on the machine's path.
  const uint64_t step = whole.plan.required_nbytes / 20;
  for (caps.arena_limit = step; caps.arena_limit < whole.plan.required_nbytes;
       caps.arena_limit += step) {
    if (make_plan(caps, whole.plan.device, kFamilies)) break;
  }
  LayerCall chunked(layer, Machine::cpu, 40, caps);
  ASSERT_GT(chunked.bound.schedule.num_chunks, 1);
  EXPECT_EQ(chunked.run(), want);
}

TEST(CpuRun, ASecondRunInTheSameArenaGivesTheSameBits) {
  const RandomLayer layer(small_options(Format::mxfp4));
  LayerCall call(layer, Machine::cpu, 17);
  const std::vector<float> first = call.run();
  call.output_memory().fill(0xFF);
  EXPECT_EQ(call.run(), first);
  call.arena().fill(0x7F);
  EXPECT_EQ(call.run(), first);
}

TEST(CpuRun, NoTokensTouchNothing) {
  const RandomLayer layer(small_options(Format::nvfp4));
  LayerCall call(layer, Machine::cpu, 0);
  call.bound.io.arena = nullptr;
  call.bound.io.output = nullptr;
  EXPECT_TRUE(run(call.bound, nullptr).ok());
}

TEST(CpuRun, RanksSumToTheWhole) {
  LayerOptions options = small_options(Format::nvfp4);
  const RandomLayer layer(options);
  const std::vector<float> whole = test::run(layer, Machine::cpu, 40);
  const int32_t kept[3][3] = {{4, 1}, {0, 2, 3}, {}};
  const size_t sizes[] = {2, 3, 0};
  std::vector<float> sum(whole.size(), 0.0f);
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<int32_t> map(5, -1);
    for (size_t i = 0; i < sizes[rank]; ++i) {
      map[static_cast<size_t>(kept[rank][i])] = static_cast<int32_t>(i);
    }
    Caps caps = layer.caps();
    caps.shape.num_local_experts = static_cast<int32_t>(sizes[rank]);
    LayerCall call(layer, Machine::cpu, 40, caps, map.data(), {kept[rank], sizes[rank]});
    const std::vector<float> part = call.run();
    for (size_t i = 0; i < sum.size(); ++i) {
      if (sizes[rank] == 0) {
        ASSERT_EQ(part[i], 0.0f) << "an empty rank's partial is zero";
      }
      sum[i] += part[i];
    }
  }
  EXPECT_LE(test::relative_l2(sum, whole), 1e-6);
}

TEST(CpuRun, OpenMpRunsEveryWorkerOnce) {
  struct Seen {
    std::atomic<int> runs[8] = {};
    std::atomic<int> workers{0};
  };
  for (const int32_t asked : {1, 2, 5}) {
    Seen seen;
    parallel_openmp(
        nullptr, asked,
        [](void* argument, int32_t worker, int32_t num_workers) {
          Seen& s = *static_cast<Seen*>(argument);
          s.workers = num_workers;
          ++s.runs[worker];
        },
        &seen);
    ASSERT_GE(seen.workers, 1);
    ASSERT_LE(seen.workers, asked);
    for (int w = 0; w < 8; ++w) EXPECT_EQ(seen.runs[w], w < seen.workers ? 1 : 0);
  }
}

}  // namespace
}  // namespace snug::cpu
