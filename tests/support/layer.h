// SPDX-License-Identifier: Apache-2.0
// A random layer below the C ABI: stored as a checkpoint would, prepared in any CPU layout,
// planned, bound and run in guarded memory that starts as NaN. Unit tests of the backends reach
// into its Bound; end_to_end/random_model.h is its twin above the ABI.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "backend/cpu/run.h"
#include "backend/reference/run.h"
#include "support/guarded_memory.h"
#include "support/plan_inputs.h"
#include "weights/prepare.h"

namespace snug::test {

/// Sizes and options of a layer; every seed gives another one.
struct LayerOptions {
  int32_t hidden = 64;
  int32_t intermediate = 48;
  int32_t num_experts = 4;
  int32_t top_k = 2;
  Format format = Format::nvfp4;
  Activation activation = {};
  bool has_bias = false;
  int64_t max_tokens = 8;
  uint32_t seed = 1;
};

/// Options of mxfp4, whose sizes are multiples of 32.
inline LayerOptions mxfp4_options() {
  LayerOptions options;
  options.format = Format::mxfp4;
  options.intermediate = 96;
  return options;
}

/// One projection, rows dense, linear scales, low nibble first.
struct StoredMatrix {
  Format format = Format::nvfp4;
  int64_t rows = 0, k = 0;
  std::vector<uint8_t> codes;   // [rows, k / 2]
  std::vector<uint8_t> scales;  // [rows, k / group]
  std::vector<float> bias;      // [rows] or empty
  float global = 1;             // multiplies

  int64_t group() const { return format == Format::mxfp4 ? 32 : 16; }
  int code_at(int64_t row, int64_t at) const {
    const uint8_t pair = codes[static_cast<size_t>(row * (k / 2) + at / 2)];
    return at % 2 == 0 ? pair & 15 : pair >> 4;
  }
  uint8_t scale_at(int64_t row, int64_t at) const {
    return scales[static_cast<size_t>(row * (k / group()) + at / group())];
  }
  void set_code(int64_t row, int64_t at, int code) {
    uint8_t& pair = codes[static_cast<size_t>(row * (k / 2) + at / 2)];
    pair = static_cast<uint8_t>(at % 2 == 0 ? (pair & 0xF0) | code : (pair & 0x0F) | code << 4);
  }
  void set_scale(int64_t row, int64_t at, uint8_t byte) {
    scales[static_cast<size_t>(row * (k / group()) + at / group())] = byte;
  }

  /// Every code `code`, every scale 1, no global scale: a start for matrices made by hand.
  void set_all(int code) {
    std::fill(codes.begin(), codes.end(), static_cast<uint8_t>(code | code << 4));
    std::fill(scales.begin(), scales.end(), format == Format::mxfp4 ? 127 : 0x38);
    global = 1;
  }

  /// code * block scale, from a table and ldexp: nothing of the library's.
  double weight(int64_t row, int64_t at) const {
    constexpr double kCodes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const int code = code_at(row, at), byte = scale_at(row, at);
    double scale = std::ldexp(1.0, byte - 127);
    if (format == Format::nvfp4) {
      const int exponent = byte >> 3 & 15, mantissa = byte & 7;
      scale = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      if (byte >= 128) scale = -scale;
    }
    return (code >= 8 ? -kCodes[code - 8] : kCodes[code]) * scale;
  }

  /// The matrix as prepare takes it; borrows this object's memory.
  MatrixSource source() const {
    MatrixSource s;
    s.codes = codes.data();
    s.code_row_nbytes = k / 2;
    s.scales = scales.data();
    s.scale_row_nbytes = k / group();
    s.bias = bias.empty() ? nullptr : bias.data();
    s.bias_dtype = DType::f32;
    s.global_scale_use = format == Format::mxfp4 ? GlobalScaleUse::none : GlobalScaleUse::multiply;
    s.global_scale = global;
    return s;
  }
};

/// Random codes; neighbouring groups and rows have different scales; weights of about 1 / sqrt(k).
inline StoredMatrix random_matrix(Format format, int64_t rows, int64_t k, bool with_bias,
                                  std::mt19937& random) {
  StoredMatrix m;
  m.format = format;
  m.rows = rows;
  m.k = k;
  m.codes.resize(static_cast<size_t>(rows * k / 2));
  for (uint8_t& byte : m.codes) byte = static_cast<uint8_t>(random());
  m.scales.resize(static_cast<size_t>(rows * (k / m.group())));
  const int centre = -static_cast<int>(std::lround(1.5 + 0.5 * std::log2(static_cast<double>(k))));
  uint8_t before = 0;
  for (uint8_t& byte : m.scales) {
    do {
      byte = static_cast<uint8_t>(format == Format::mxfp4
                                      ? 125 + centre + static_cast<int>(random() % 4)
                                      : 0x30 + static_cast<int>(random() % 16));
    } while (byte == before);
    before = byte;
  }
  if (format == Format::nvfp4) {
    m.global = std::ldexp(1.0f + 0.0625f * static_cast<float>(random() % 16), centre);
  }
  for (int64_t r = 0; with_bias && r < rows; ++r) {
    m.bias.push_back(static_cast<float>(static_cast<int>(random() % 65) - 32) / 16);
  }
  return m;
}

struct StoredExpert {
  StoredMatrix gate, up, down;  // an ungated layer has no up
};

/// Experts and the inputs of max_tokens tokens; everything may be changed before it is used.
/// Ids are valid, random, and repeat within a token now and then.
struct RandomLayer {
  LayerOptions options;
  std::vector<StoredExpert> experts;
  std::vector<bf16> x;         // [max_tokens, hidden]
  std::vector<int32_t> ids;    // [max_tokens, top_k]
  std::vector<float> weights;  // [max_tokens, top_k]

  explicit RandomLayer(const LayerOptions& o) : options(o) {
    std::mt19937 random(o.seed);
    for (int32_t e = 0; e < o.num_experts; ++e) {
      const auto make = [&](int64_t rows, int64_t k) {
        return random_matrix(o.format, rows, k, o.has_bias, random);
      };
      StoredExpert expert;
      expert.gate = make(o.intermediate, o.hidden);
      if (is_gated(o.activation.kind)) expert.up = make(o.intermediate, o.hidden);
      expert.down = make(o.hidden, o.intermediate);
      experts.push_back(std::move(expert));
    }
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < o.max_tokens * o.hidden; ++i) x.push_back(f32_to_bf16(normal(random)));
    for (int64_t i = 0; i < o.max_tokens * o.top_k; ++i) {
      ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(o.num_experts)));
      weights.push_back(0.1f + static_cast<float>(random() % 1000) / 1000);
    }
  }

  /// f32 output, one thread, all experts local.
  Caps caps() const {
    Caps caps;
    caps.shape = {options.hidden, options.intermediate, options.num_experts, options.num_experts,
                  options.top_k};
    caps.format = options.format;
    caps.activation = options.activation;
    caps.has_bias = options.has_bias;
    caps.output_dtype = DType::f32;
    caps.max_tokens = options.max_tokens;
    return caps;
  }

  /// Borrows the expert's memory.
  ExpertSource source(int32_t expert) const {
    const StoredExpert& e = experts[static_cast<size_t>(expert)];
    ExpertSource s;
    s.gate = e.gate.source();
    if (is_gated(options.activation.kind)) s.up = e.up.source();
    s.down = e.down.source();
    return s;
  }
};

/// Packs experts `kept` (all by default) of the layer as `caps` describe them; the bytes end at an
/// unmapped page.
inline GuardedMemory prepare(const RandomLayer& layer, const PackedLayout& layout,
                             std::span<const int32_t> kept = {}) {
  GuardedMemory memory(static_cast<uint64_t>(layout.total_nbytes()), kRecordAlignment,
                       GuardedMemory::Edge::back);
  for (int32_t local = 0; local < layout.num_local_experts; ++local) {
    const int32_t expert = kept.empty() ? local : kept[static_cast<size_t>(local)];
    const Status status =
        prepare_expert(layout, layer.source(expert), expert,
                       static_cast<uint8_t*>(memory.data()) + local * layout.expert_nbytes);
    EXPECT_TRUE(status.ok()) << status.message;
  }
  return memory;
}

/// A call of `num_tokens` tokens, bound and not yet run: arena and output are full of 0xFF and lie
/// before unmapped pages. `bound` may be changed; its pointers lead into this object and the layer.
class LayerCall {
 public:
  Plan plan;
  Bound bound;

  LayerCall(const RandomLayer& layer, Machine machine, int64_t num_tokens)
      : LayerCall(layer, machine, num_tokens, layer.caps()) {}

  /// With caps that differ from the layer's in options; `map` and `kept` make it a rank of several.
  LayerCall(const RandomLayer& layer, Machine machine, int64_t num_tokens, const Caps& caps,
            const int32_t* map = nullptr, std::span<const int32_t> kept = {})
      : plan(must_plan(caps, device_named(machine == Machine::cpu ? "cpu" : "reference"))),
        weights_(prepare(layer, packed_layout(plan), kept)),
        arena_(plan.required_nbytes, kArenaAlignment, GuardedMemory::Edge::back),
        output_(
            static_cast<uint64_t>(num_tokens * caps.shape.hidden * dtype_nbytes(caps.output_dtype)),
            4, GuardedMemory::Edge::back) {
    IoView io;
    io.num_tokens = num_tokens;
    io.x = layer.x.data();
    io.topk_ids = layer.ids.data();
    io.topk_weights = layer.weights.data();
    io.x_stride = io.output_stride = caps.shape.hidden;
    io.ids_stride = io.weights_stride = caps.shape.top_k;
    io.expert_map = map;
    io.output = output_.data();
    io.arena = arena_.data();
    io.arena_nbytes = arena_.nbytes();
    const WeightsView view = {packed_layout(plan), static_cast<const uint8_t*>(weights_.data())};
    const Status status = bind(plan, view, io, {}, &bound);
    EXPECT_TRUE(status.ok()) << status.message;
  }

  GuardedMemory& arena() { return arena_; }
  GuardedMemory& output_memory() { return output_; }
  uint8_t* weights_data() { return static_cast<uint8_t*>(weights_.data()); }

  /// Performs the layer on its machine; the output as f32.
  std::vector<float> run() {
    const Status status = plan.device.machine == Machine::cpu ? cpu::run(bound, nullptr)
                                                              : reference::run(bound, nullptr);
    EXPECT_TRUE(status.ok()) << status.message;
    arena_.check_canary();
    return output();
  }

  std::vector<float> output() const {
    std::vector<float> y(static_cast<size_t>(bound.io.num_tokens * bound.caps.shape.hidden));
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = bound.caps.output_dtype == DType::f32
                 ? static_cast<const float*>(output_.data())[i]
                 : bf16_to_f32(static_cast<const bf16*>(output_.data())[i]);
    }
    return y;
  }

 private:
  GuardedMemory weights_;
  GuardedMemory arena_;
  GuardedMemory output_;
};

/// The f32 output of the first `num_tokens` tokens on a machine.
inline std::vector<float> run(const RandomLayer& layer, Machine machine, int64_t num_tokens,
                              Numerics numerics = Numerics::contract) {
  Caps caps = layer.caps();
  caps.numerics = numerics;
  return LayerCall(layer, machine, num_tokens, caps).run();
}

/// |have - want|_2 / |want|_2, infinity when either holds a NaN.
inline double relative_l2(std::span<const float> have, std::span<const float> want) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(have[i]) - static_cast<double>(want[i]), 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  if (difference == 0) return 0;
  const double error = std::sqrt(difference / norm);
  return std::isnan(error) ? INFINITY : error;
}

}  // namespace snug::test
