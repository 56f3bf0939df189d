// SPDX-License-Identifier: Apache-2.0
#include "bench_layer.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <numeric>
#include <random>

namespace snug::cli {

namespace {

/// One expert's random tensors; all experts of all copies are prepared from them.
struct RandomExpert {
  std::vector<uint8_t> codes, scales;
  snug_expert_source source = make_expert_source();

  explicit RandomExpert(const snug_caps& caps) {
    const int group = caps.format == SNUG_MXFP4 ? 32 : 16;
    const auto count = static_cast<size_t>(caps.hidden) * static_cast<size_t>(caps.intermediate);
    std::mt19937 generator(1);
    codes.resize(count / 2);
    scales.resize(count / static_cast<size_t>(group));
    for (uint8_t& c : codes) c = static_cast<uint8_t>(generator());
    for (uint8_t& s : scales) {
      s = static_cast<uint8_t>((group == 32 ? 120 : 0x30) + generator() % 4);
    }
    for (snug_matrix* m : {&source.gate, &source.up, &source.down}) {
      if (m == &source.up && caps.activation.kind == SNUG_RELU2) continue;
      const int64_t k = m == &source.down ? caps.intermediate : caps.hidden;
      m->codes = codes.data();
      m->code_row_nbytes = k / 2;
      m->scales = scales.data();
      m->scale_row_nbytes = k / group;
      m->global_scale_use = group == 32 ? SNUG_GLOBAL_NONE : SNUG_GLOBAL_MULTIPLY;
    }
  }
};

struct Inputs {
  std::vector<uint16_t> x;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

uint16_t bf16_bits(float value) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + 0x8000u) >> 16);
}

/// Distinct experts for every token; returns how many experts were touched.
int64_t draw_routes(const snug_caps& caps, std::mt19937& generator, std::vector<int32_t>& ids) {
  std::vector<int32_t> deck(static_cast<size_t>(caps.num_experts));
  std::iota(deck.begin(), deck.end(), 0);
  std::vector<bool> touched(deck.size());
  for (size_t at = 0; at < ids.size(); ++at) {
    const size_t slot = at % static_cast<size_t>(caps.top_k);
    std::swap(deck[slot], deck[slot + generator() % (deck.size() - slot)]);
    ids[at] = deck[slot];
    touched[static_cast<size_t>(deck[slot])] = true;
  }
  return std::count(touched.begin(), touched.end(), true);
}

}  // namespace

Result<BenchLayer> BenchLayer::make(const snug_caps& caps, const snug_device& device, int copies) {
  const Result<Plan> plan = Plan::make(caps, device);
  if (!plan) return plan.error();
  const RandomExpert expert(caps);
  BenchLayer layer;
  layer.expert_nbytes_ = plan->weights_nbytes() / static_cast<uint64_t>(caps.num_local_experts);
  double seconds = 0;
  for (int c = 0; c < copies; ++c) {
    Memory storage(plan->weights_nbytes(), snug_weights_alignment());
    storage.fill(0);  // its pages exist before the clock starts
    Result<Weights> weights = Weights::make(*plan, storage.data(), storage.nbytes());
    if (!weights) return weights.error();
    const auto start = std::chrono::steady_clock::now();
    for (int32_t e = 0; e < caps.num_local_experts; ++e) {
      const Error error = weights->put(e, expert.source);
      if (!error.ok()) return error;
    }
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    layer.copies_.push_back({std::move(storage), std::move(weights).value()});
  }
  layer.prepare_gbps_ = static_cast<double>(plan->weights_nbytes()) * copies / seconds * 1e-9;
  return layer;
}

Result<std::vector<Sample>> BenchLayer::run(const snug_caps& base, const snug_device& device,
                                            int64_t num_tokens, int samples) {
  snug_caps caps = base;
  caps.max_tokens = num_tokens;
  const Result<Plan> plan = Plan::make(caps, device);
  if (!plan) return plan.error();
  std::mt19937 generator(static_cast<uint32_t>(num_tokens));
  std::normal_distribution<float> normal;
  Inputs inputs;
  inputs.x.resize(static_cast<size_t>(num_tokens * caps.hidden));
  for (uint16_t& x : inputs.x) x = bf16_bits(normal(generator));
  inputs.ids.resize(static_cast<size_t>(num_tokens * caps.top_k));
  inputs.weights.assign(inputs.ids.size(), 1.0f / static_cast<float>(caps.top_k));
  std::vector<uint16_t> output(inputs.x.size());
  Memory arena(plan->required_nbytes(), snug_arena_alignment());
  arena.fill(0xFF);
  snug_io io = make_io();
  io.num_tokens = num_tokens;
  io.x = inputs.x.data();
  io.topk_ids = inputs.ids.data();
  io.topk_weights = inputs.weights.data();
  io.output = output.data();
  io.x_stride = io.output_stride = caps.hidden;
  io.ids_stride = io.weights_stride = caps.top_k;
  io.arena = arena.data();
  io.arena_nbytes = arena.nbytes();

  std::vector<Sample> taken;
  constexpr int kWarmUps = 2;
  for (int i = 0; i < kWarmUps + samples; ++i) {
    const int64_t touched = draw_routes(caps, generator, inputs.ids);
    const Result<Binding> binding =
        Binding::make(*plan, copies_[next_++ % copies_.size()].weights, io);
    if (!binding) return binding.error();
    const auto start = std::chrono::steady_clock::now();
    const Error error = binding->run();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (!error.ok()) return error;
    if (i < kWarmUps) continue;
    taken.push_back(
        {took.count(), static_cast<double>(touched) * static_cast<double>(expert_nbytes_)});
  }
  return taken;
}

}  // namespace snug::cli
