// SPDX-License-Identifier: Apache-2.0
// Time of a layer on this CPU, for named shapes; counters say what that is of weights and FLOPs.
// Routing is uniform with fresh ids every call, so that weights come from memory.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <random>

#include "shapes.h"

namespace {

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<void, Free>;

Memory allocate(uint64_t nbytes) {
  return Memory(std::aligned_alloc(128, (nbytes / 128 + 1) * 128));
}

/// All experts share one random source: only the prepared copies are read.
snug::Error fill(snug::Weights& weights, const snug_caps& caps) {
  const int group = caps.format == SNUG_MXFP4 ? 32 : 16;
  const auto count = static_cast<size_t>(caps.hidden) * static_cast<size_t>(caps.intermediate);
  std::mt19937 generator(1);
  std::vector<uint8_t> codes(count / 2), scales(count / static_cast<size_t>(group));
  for (uint8_t& c : codes) c = static_cast<uint8_t>(generator());
  for (uint8_t& s : scales) s = static_cast<uint8_t>((group == 32 ? 120 : 0x30) + generator() % 4);
  snug_expert_source source = snug::make_expert_source();
  for (snug_matrix* m : {&source.gate, &source.up, &source.down}) {
    if (m == &source.up && caps.activation.kind == SNUG_RELU2) continue;
    const int64_t k = m == &source.down ? caps.intermediate : caps.hidden;
    m->codes = codes.data();
    m->code_row_nbytes = k / 2;
    m->scales = scales.data();
    m->scale_row_nbytes = k / group;
    m->global_scale_use = group == 32 ? SNUG_GLOBAL_NONE : SNUG_GLOBAL_MULTIPLY;
  }
  for (int32_t e = 0; e < caps.num_experts; ++e) {
    const snug::Error error = weights.put(e, source);
    if (!error.ok()) return error;
  }
  return {};
}

void run_layer(benchmark::State& state, snug_caps caps) {
  const auto plan = snug::Plan::make(caps, *snug::device_by_name("cpu"));
  const Memory storage = allocate(plan->weights_nbytes());
  auto weights = snug::Weights::make(*plan, storage.get(), plan->weights_nbytes());
  const snug::Error filled = fill(*weights, caps);
  if (!filled.ok()) return state.SkipWithError(filled.message());

  const int64_t tokens = caps.max_tokens;
  std::mt19937 generator(2);
  std::vector<uint16_t> x(static_cast<size_t>(tokens * caps.hidden), 0x3F80);
  std::vector<int32_t> ids(static_cast<size_t>(tokens * caps.top_k));
  const std::vector<float> router(ids.size(), 0.125f);
  std::vector<uint16_t> y(x.size());
  const Memory arena = allocate(plan->required_nbytes());
  snug_io io = snug::make_io();
  io.num_tokens = tokens;
  io.x = x.data(), io.topk_ids = ids.data(), io.topk_weights = router.data(), io.output = y.data();
  io.x_stride = io.output_stride = caps.hidden;
  io.ids_stride = io.weights_stride = caps.top_k;
  io.arena = arena.get(), io.arena_nbytes = plan->required_nbytes();
  const auto binding = snug::Binding::make(*plan, *weights, io);
  if (!binding) return state.SkipWithError(binding.error().message());
  for (auto _ : state) {
    state.PauseTiming();
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(generator() % static_cast<uint32_t>(caps.num_experts));
    }
    state.ResumeTiming();
    (void)binding->run();
  }
  const double matrices = caps.activation.kind == SNUG_RELU2 ? 2 : 3;
  const double flops = 2.0 * static_cast<double>(ids.size()) * matrices * caps.hidden *
                       caps.intermediate;
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["arena_nbytes"] = static_cast<double>(plan->required_nbytes());
}

const bool kRegistered = [] {
  for (snug::bench::Shape& shape : snug::bench::read_shapes()) {
    for (const int64_t tokens : {1, 16, 64}) {
      shape.caps.max_tokens = tokens;
      shape.caps.num_threads = 2;
      benchmark::RegisterBenchmark(("layer/" + shape.name + "/" + std::to_string(tokens)).c_str(),
                                   run_layer, shape.caps)
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    }
  }
  return true;
}();

}  // namespace
