// SPDX-License-Identifier: Apache-2.0
#include "end_to_end/random_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

namespace snug::test {

namespace {

// The oracle's own decode: a table and ldexp, nothing of the library's.
double decode_code(int code) {
  constexpr double kValues[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (code & 8) != 0 ? -kValues[code & 7] : kValues[code & 7];
}

double decode_scale(snug_format format, int byte) {
  if (format == SNUG_MXFP4) return std::ldexp(1.0, byte - 127);
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (byte & 0x80) != 0 ? -magnitude : magnitude;
}

float bf16_value(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// Nearest bf16 of a double, ties to even, by trying the two neighbours.
double round_to_bf16(double v) {
  if (v == 0 || !std::isfinite(v)) return v;
  int exponent;
  std::frexp(v, &exponent);
  const double step = std::ldexp(1.0, std::max(exponent - 8, -133));
  return std::nearbyint(v / step) * step;
}

RandomMatrix make_matrix(const LayerSpec& spec, int64_t rows, int64_t k, bool with_bias,
                         std::mt19937& generator) {
  const int group = spec.format == SNUG_MXFP4 ? 32 : 16;
  RandomMatrix m;
  m.rows = rows;
  m.k = k;
  m.codes.resize(static_cast<size_t>(rows * k / 2));
  m.scales.resize(static_cast<size_t>(rows * (k / group)));
  for (uint8_t& byte : m.codes) byte = static_cast<uint8_t>(generator());
  // Weights of about 1 / sqrt(k), so that FC1's rows are of order one.
  const int centre = static_cast<int>(std::lround(-1.5 - 0.5 * std::log2(static_cast<double>(k))));
  for (size_t i = 0; i < m.scales.size(); ++i) {
    const auto jitter = static_cast<int>(generator() % 4 + i % 2);  // neighbours differ
    if (spec.format == SNUG_MXFP4) {
      m.scales[i] = static_cast<uint8_t>(127 + centre + jitter - 2);
    } else {
      // Mostly normal scales around 1, now and then a subnormal or zero.
      const bool tiny = generator() % 16 == 0;
      m.scales[i] = static_cast<uint8_t>(tiny ? generator() % 8 : 0x30 + 3 * jitter);
    }
  }
  if (spec.format == SNUG_NVFP4) {
    m.global = std::ldexp(1.0f + 0.25f * static_cast<float>(generator() % 4), centre);
  }
  if (with_bias) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t r = 0; r < rows; ++r) m.bias.push_back(uniform(generator));
  }
  m.dense.resize(static_cast<size_t>(rows * k));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < k; ++c) {
      const int byte = m.codes[static_cast<size_t>(r * (k / 2) + c / 2)];
      const double scale =
          decode_scale(spec.format, m.scales[static_cast<size_t>(r * (k / group) + c / group)]);
      m.dense[static_cast<size_t>(r * k + c)] =
          static_cast<float>(decode_code(c % 2 == 0 ? byte & 15 : byte >> 4) * scale);
    }
  }
  return m;
}

/// Four sums, so that the compiler may overlap them: the oracle's order is nobody's contract.
template <class Left>
double dot(const Left* left, const float* right, int64_t count) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int lane = 0; lane < 4; ++lane) {
      sums[lane] += static_cast<double>(left[i + lane]) * right[i + lane];
    }
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(left[i]) * right[i];
  return sums[0] + sums[1] + sums[2] + sums[3];
}

double oracle_sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

/// The oracle's own activations, from the formulas of the public header.
double oracle_activate(const snug_activation& a, double g, double u) {
  const double limit = a.limit;
  switch (a.kind) {
    case SNUG_SILU:
      return g * oracle_sigmoid(g) * u;
    case SNUG_GELU_TANH:
      return 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
    case SNUG_GELU:
      return 0.5 * g * std::erfc(-g / std::sqrt(2.0)) * u;
    case SNUG_RELU2:
      return std::max(g, 0.0) * std::max(g, 0.0);
    case SNUG_SWIGLU_OAI: {
      const double gate = std::min(g, limit), up = std::clamp(u, -limit, limit);
      return gate * oracle_sigmoid(static_cast<double>(a.alpha) * gate) *
             (up + static_cast<double>(a.beta));
    }
    case SNUG_SILU_CLAMPED: {
      const double gate = std::min(g, limit);
      return gate * oracle_sigmoid(gate) * std::clamp(u, -limit, limit);
    }
    default:
      return 4 * std::tanh(g / 4) * oracle_sigmoid(g) * 25 * std::tanh(u / 25);
  }
}

snug_matrix describe(const RandomMatrix& m, snug_format format) {
  snug_expert_source source;
  snug_expert_source_init(&source);
  snug_matrix d = source.gate;
  d.codes = m.codes.data();
  d.code_row_nbytes = m.k / 2;
  d.scales = m.scales.data();
  d.scale_row_nbytes = m.k / (format == SNUG_MXFP4 ? 32 : 16);
  d.bias = m.bias.empty() ? nullptr : m.bias.data();
  d.bias_dtype = SNUG_F32;
  d.global_scale_use = format == SNUG_MXFP4 ? SNUG_GLOBAL_NONE : SNUG_GLOBAL_MULTIPLY;
  d.global_scale = m.global;
  return d;
}

}  // namespace

snug_caps make_caps(const LayerSpec& spec, snug_activation activation) {
  snug_caps caps;
  snug_caps_init(&caps);
  caps.hidden = spec.hidden;
  caps.intermediate = spec.intermediate;
  caps.num_experts = caps.num_local_experts = spec.num_experts;
  caps.top_k = spec.top_k;
  caps.format = spec.format;
  caps.activation = activation;
  caps.has_bias = spec.has_bias ? 1 : 0;
  caps.output_dtype = SNUG_F32;
  caps.num_threads = 2;
  return caps;
}

std::vector<snug_activation> all_activations() {
  return {{SNUG_SILU, 1, 0, 0},  {SNUG_GELU_TANH, 1, 0, 0},       {SNUG_GELU, 1, 0, 0},
          {SNUG_RELU2, 1, 0, 0}, {SNUG_SWIGLU_OAI, 1.702f, 1, 7}, {SNUG_SILU_CLAMPED, 1, 0, 1.5f},
          {SNUG_SITU, 1, 0, 0}};
}

RandomModel::RandomModel(const LayerSpec& spec, int64_t max_tokens) : spec_(spec) {
  std::mt19937 generator(spec.seed * 7919u +
                         static_cast<uint32_t>(spec.hidden * 31 + spec.intermediate));
  for (int32_t e = 0; e < spec.num_experts; ++e) {
    RandomExpert expert;
    expert.gate = make_matrix(spec, spec.intermediate, spec.hidden, spec.has_bias, generator);
    expert.up = make_matrix(spec, spec.intermediate, spec.hidden, spec.has_bias, generator);
    expert.down = make_matrix(spec, spec.hidden, spec.intermediate, spec.has_bias, generator);
    experts_.push_back(std::move(expert));
  }
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0.1f, 1.0f);
  for (int64_t i = 0; i < max_tokens * spec.hidden; ++i) {
    inputs_.x.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(generator)) >> 16));
  }
  for (int64_t t = 0; t < max_tokens; ++t) {
    for (int32_t j = 0; j < spec.top_k; ++j) {
      const bool invalid = t % 11 == 5 && j == 0;
      inputs_.ids.push_back(
          invalid ? -1
                  : static_cast<int32_t>(generator() % static_cast<uint32_t>(spec.num_experts)));
      inputs_.weights.push_back(uniform(generator));
    }
  }
}

snug_expert_source describe(const RandomExpert& expert, snug_format format, bool with_up) {
  snug_expert_source source;
  snug_expert_source_init(&source);
  source.gate = describe(expert.gate, format);
  if (with_up) source.up = describe(expert.up, format);
  source.down = describe(expert.down, format);
  return source;
}

void RandomModel::keep_experts(const std::vector<int32_t>& kept) {
  std::vector<RandomExpert> experts;
  for (const int32_t e : kept) experts.push_back(experts_[static_cast<size_t>(e)]);
  experts_ = std::move(experts);
}

void RandomModel::prepare(const snug_plan* plan, bool gated, GuardedMemory& storage,
                          snug_weights** weights) const {
  snug_error error = {};
  ASSERT_EQ(snug_weights_create(plan, storage.data(), storage.nbytes(), weights, &error), SNUG_OK)
      << error.message;
  for (size_t e = 0; e < experts_.size(); ++e) {
    const snug_expert_source source = describe(experts_[e], spec_.format, gated);
    ASSERT_EQ(snug_weights_put(*weights, static_cast<int32_t>(e), &source, &error), SNUG_OK)
        << error.message;
  }
}

std::vector<double> RandomModel::oracle_fc1(int64_t token, int32_t expert, bool gated) const {
  const RandomExpert& e = experts_[static_cast<size_t>(expert)];
  std::vector<float> x;
  for (int64_t c = 0; c < spec_.hidden; ++c) {
    x.push_back(bf16_value(inputs_.x[static_cast<size_t>(token * spec_.hidden + c)]));
  }
  std::vector<double> h(static_cast<size_t>(2 * spec_.intermediate), 0.0);
  for (int64_t i = 0; i < spec_.intermediate; ++i) {
    const auto row = static_cast<size_t>(i);
    const size_t at = row * static_cast<size_t>(spec_.hidden);
    h[row] = dot(x.data(), e.gate.dense.data() + at, spec_.hidden) * e.gate.global +
             (spec_.has_bias ? e.gate.bias[row] : 0.0f);
    if (!gated) continue;
    h[row + static_cast<size_t>(spec_.intermediate)] =
        dot(x.data(), e.up.dense.data() + at, spec_.hidden) * e.up.global +
        (spec_.has_bias ? e.up.bias[row] : 0.0f);
  }
  return h;
}

/// The step from `rounded` to the bf16 on the other side of `exact`, when exact lies so near to
/// their middle that f32 arithmetic may take either; else 0.
static double other_rounding(double exact, double rounded) {
  if (exact == 0 || !std::isfinite(exact)) return 0;
  const double ulp = std::ldexp(1.0, std::ilogb(exact) - 7);
  const double off = exact - rounded;
  if (ulp / 2 - std::fabs(off) > std::fabs(exact) * 0x1p-18) return 0;
  return off > 0 ? ulp : -ulp;
}

OracleRow RandomModel::oracle_row(int64_t token, const snug_activation& activation) const {
  OracleRow oracle;
  std::vector<double>& y = oracle.y;
  y.assign(static_cast<size_t>(spec_.hidden), 0.0);
  for (int32_t j = 0; j < spec_.top_k; ++j) {
    const auto route = static_cast<size_t>(token * spec_.top_k + j);
    const int32_t expert = inputs_.ids[route];
    if (expert < 0 || expert >= spec_.num_experts) continue;
    const std::vector<double> h = oracle_fc1(token, expert, activation.kind != SNUG_RELU2);
    const RandomMatrix& down = experts_[static_cast<size_t>(expert)].down;
    const double weight = static_cast<double>(inputs_.weights[route]) * down.global;
    std::vector<double> a;
    for (int64_t i = 0; i < spec_.intermediate; ++i) {
      const auto at = static_cast<size_t>(i);
      const double exact =
          oracle_activate(activation, h[at], h[at + static_cast<size_t>(spec_.intermediate)]);
      a.push_back(round_to_bf16(exact));
      const double step = other_rounding(exact, a.back());
      if (step == 0) continue;
      std::vector<double> change;
      for (int64_t n = 0; n < spec_.hidden; ++n) {
        change.push_back(
            weight * step *
            static_cast<double>(down.dense[static_cast<size_t>(n * spec_.intermediate + i)]));
      }
      oracle.ties.push_back(std::move(change));
    }
    for (int64_t n = 0; n < spec_.hidden; ++n) {
      const auto row = static_cast<size_t>(n);
      const double v =
          dot(a.data(), down.dense.data() + row * static_cast<size_t>(spec_.intermediate),
              spec_.intermediate) *
              down.global +
          (spec_.has_bias ? down.bias[row] : 0.0f);
      y[row] += static_cast<double>(inputs_.weights[route]) * v;
    }
  }
  return oracle;
}

BoundLayer::BoundLayer(const RandomModel& model, const snug_caps& caps, const char* device_name)
    : model_(model), caps_(caps) {
  snug_error error = {};
  snug_device device;
  EXPECT_EQ(snug_device_by_name(device_name, &device, &error), SNUG_OK) << error.message;
  EXPECT_EQ(snug_plan_create(&caps, &device, &plan_, &error), SNUG_OK) << error.message;
  if (plan_ == nullptr) return;
  storage_ = std::make_unique<GuardedMemory>(snug_plan_weights_nbytes(plan_),
                                             snug_weights_alignment(), GuardedMemory::Edge::back);
  model.prepare(plan_, caps.activation.kind != SNUG_RELU2, *storage_, &weights_);
}

BoundLayer::~BoundLayer() {
  snug_weights_destroy(weights_);
  snug_plan_destroy(plan_);
}

snug_io BoundLayer::make_io(int64_t num_tokens, void* arena, void* output) const {
  snug_io io;
  snug_io_init(&io);
  io.num_tokens = num_tokens;
  io.x = model_.inputs().x.data();
  io.topk_ids = model_.inputs().ids.data();
  io.topk_weights = model_.inputs().weights.data();
  io.output = output;
  io.x_stride = io.output_stride = caps_.hidden;
  io.ids_stride = io.weights_stride = caps_.top_k;
  io.arena = arena;
  io.arena_nbytes = snug_plan_required_nbytes(plan_);
  return io;
}

std::vector<float> BoundLayer::run(int64_t num_tokens, GuardedMemory::Edge edge) {
  const int64_t hidden = caps_.hidden;
  const int element = caps_.output_dtype == SNUG_F32 ? 4 : 2;
  GuardedMemory arena(snug_plan_required_nbytes(plan_), snug_arena_alignment(), edge);
  GuardedMemory output(static_cast<uint64_t>(num_tokens * hidden * element), 4, edge);
  GuardedMemory x(static_cast<uint64_t>(num_tokens * hidden * 2), 2, edge);
  std::memcpy(x.data(), model_.inputs().x.data(), x.nbytes());
  snug_io io = make_io(num_tokens, arena.data(), output.data());
  io.x = x.data();
  snug_binding binding;
  snug_error error = {};
  EXPECT_EQ(snug_bind(plan_, weights_, &io, &binding, &error), SNUG_OK) << error.message;
  EXPECT_EQ(snug_run(&binding, nullptr, &error), SNUG_OK) << error.message;
  arena.check_canary();
  output.check_canary();
  std::vector<float> y(static_cast<size_t>(num_tokens * hidden));
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = element == 4 ? static_cast<const float*>(output.data())[i]
                        : bf16_value(static_cast<const uint16_t*>(output.data())[i]);
  }
  return y;
}

double relative_l2(const float* have, const std::vector<double>& want) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (have[i] - want[i]) * (have[i] - want[i]);
    norm += want[i] * want[i];
  }
  if (difference == 0) return 0;
  const double error = std::sqrt(difference / norm);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

double relative_l2(const float* have, const OracleRow& want) {
  std::vector<double> y = want.y;
  for (const std::vector<double>& change : want.ties) {
    double before = 0, after = 0;
    for (size_t n = 0; n < y.size(); ++n) {
      const double off = static_cast<double>(have[n]) - y[n];
      before += off * off;
      after += (off - change[n]) * (off - change[n]);
    }
    for (size_t n = 0; after < before && n < y.size(); ++n) y[n] += change[n];
  }
  return relative_l2(have, y);
}

}  // namespace snug::test
