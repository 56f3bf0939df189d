// SPDX-License-Identifier: Apache-2.0
#include "layer_runner.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "text.h"

namespace snug::cli {

namespace {

float widen_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

std::vector<float> widen(const Memory& output, int64_t count, int32_t dtype) {
  std::vector<float> y(static_cast<size_t>(count));
  if (dtype == SNUG_F32) {
    std::memcpy(y.data(), output.data(), y.size() * sizeof(float));
  } else {
    const auto* bits = static_cast<const uint16_t*>(output.data());
    std::transform(bits, bits + count, y.begin(), widen_bf16);
  }
  return y;
}

}  // namespace

snug_caps layer_caps(const snug_caps& base, const snug_model_info& model,
                     const snug_layer_info& layer) {
  snug_caps caps = base;
  caps.hidden = layer.hidden;
  caps.intermediate = layer.intermediate;
  caps.num_experts = caps.num_local_experts = layer.num_experts;
  caps.top_k = model.top_k > 0 ? model.top_k : base.top_k;
  caps.format = layer.format;
  caps.has_bias = layer.has_bias;
  caps.activation = model.has_config ? model.activation : base.activation;
  return caps;
}

Memory::Memory(uint64_t nbytes, uint64_t alignment) : nbytes_(nbytes) {
  constexpr uint64_t kHugePage = uint64_t{2} << 20;
  if (nbytes >= kHugePage) alignment = std::max(alignment, kHugePage);
  const uint64_t rounded = (std::max<uint64_t>(nbytes, 1) + alignment - 1) / alignment * alignment;
  data_.reset(std::aligned_alloc(alignment, rounded));
  // Tiles and streams that cross many small pages cost up to half of the speed; a hint, no more.
  if (nbytes >= kHugePage) (void)madvise(data_.get(), rounded, MADV_HUGEPAGE);
}

void Memory::fill(int byte) { std::memset(data_.get(), byte, nbytes_); }

void Memory::Free::operator()(void* p) const { std::free(p); }

Result<LayerRunner> LayerRunner::make(const Checkpoint& checkpoint, int32_t layer_index,
                                      const snug_caps& caps, const snug_device& device,
                                      bool progress) {
  Result<Plan> plan = Plan::make(caps, device);
  if (!plan) return plan.error();
  Memory storage(plan->weights_nbytes(), snug_weights_alignment());
  Result<Weights> weights = Weights::make(*plan, storage.data(), storage.nbytes());
  if (!weights) return weights.error();
  ProgressBar bar("preparing experts");
  const auto draw = [&](int64_t done, int64_t total) {
    if (progress) bar.draw(done, total);
    return true;
  };
  const Error error = weights->load(checkpoint, layer_index, nullptr, caps.num_threads, draw);
  if (!error.ok()) return error;
  return LayerRunner(caps, std::move(plan).value(), std::move(storage), std::move(weights).value());
}

Result<LayerOutcome> LayerRunner::run(const LayerInputs& inputs, int repeats) {
  const int64_t hidden = caps_.hidden;
  const int element = caps_.output_dtype == SNUG_F32 ? 4 : 2;
  Memory arena(plan_.required_nbytes(), snug_arena_alignment());
  Memory output(static_cast<uint64_t>(inputs.num_tokens * hidden * element), 64);
  snug_io io = make_io();
  io.num_tokens = inputs.num_tokens;
  io.x = inputs.x;
  io.topk_ids = inputs.topk_ids;
  io.topk_weights = inputs.topk_weights;
  io.output = output.data();
  io.x_stride = io.output_stride = hidden;
  io.ids_stride = io.weights_stride = caps_.top_k;
  io.arena = arena.data();
  io.arena_nbytes = arena.nbytes();
  const Result<Binding> binding = Binding::make(plan_, weights_, io);
  if (!binding) return binding.error();

  std::vector<double> times;
  for (int i = 0; i < std::max(repeats, 1); ++i) {
    arena.fill(0xFF);
    output.fill(0xFF);
    const auto start = std::chrono::steady_clock::now();
    const Error error = binding->run();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (!error.ok()) return error;
    times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2),
                   times.end());
  return LayerOutcome{widen(output, inputs.num_tokens * hidden, caps_.output_dtype),
                      times[times.size() / 2], plan_.required_nbytes(), plan_.weights_nbytes()};
}

Result<snug_device> device_of_backend(int32_t backend) {
  return device_by_name(backend == SNUG_BACKEND_REFERENCE ? "reference"
                        : backend == SNUG_BACKEND_CUDA    ? "h200"
                                                          : "cpu");
}

double relative_l2_max_row(const std::vector<float>& y, const float* reference, int64_t rows,
                           int64_t columns) {
  double worst = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double difference = 0, norm = 0;
    for (int64_t c = 0; c < columns; ++c) {
      const double want = reference[r * columns + c];
      const double have = y[static_cast<size_t>(r * columns + c)];
      difference += (have - want) * (have - want);
      norm += want * want;
    }
    const double error = difference == 0 ? 0 : std::sqrt(difference / norm);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
    if (std::isinf(worst)) break;
  }
  return worst;
}

}  // namespace snug::cli
