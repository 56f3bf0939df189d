// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/fc1.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/layer.h"

namespace snug::reference {
namespace {

using test::LayerCall;
using test::LayerOptions;
using test::RandomLayer;

// E2M1 codes by value.
constexpr int kHalf = 1, kOne = 2, kTwo = 4, kMinusOne = 10;

/// One expert, hidden 16, intermediate 16, all weights zero and all scales one.
RandomLayer blank_layer(Activation activation, bool has_bias = false) {
  LayerOptions options;
  options.hidden = options.intermediate = 16;
  options.num_experts = options.top_k = 1;
  options.max_tokens = 1;
  options.activation = activation;
  options.has_bias = has_bias;
  RandomLayer layer(options);
  layer.experts[0].gate.set_all(0);
  if (is_gated(activation.kind)) layer.experts[0].up.set_all(0);
  for (bf16& v : layer.x) v = bf16{0};
  return layer;
}

std::vector<double> fc1_of(const RandomLayer& layer, const Caps& caps, float weight = 1) {
  LayerCall call(layer, Machine::reference, 1, caps);
  std::vector<double> activated(16, NAN);
  if (caps.numerics == Numerics::contract) {
    std::vector<float> narrow(16, NAN);
    fc1(call.bound, Route{0, 0, weight}, narrow.data());
    activated.assign(narrow.begin(), narrow.end());
  } else {
    fc1(call.bound, Route{0, 0, weight}, activated.data());
  }
  return activated;
}

// relu2 of x W^T: row i holds 1 at k = i and 0.5 at k = i + 1.
TEST(ReferenceFc1, RowsByHand) {
  RandomLayer layer = blank_layer({ActivationKind::relu2});
  for (int i = 0; i < 16; ++i) {
    layer.experts[0].gate.set_code(i, i, kOne);
    if (i < 15) layer.experts[0].gate.set_code(i, i + 1, kHalf);
    layer.x[static_cast<size_t>(i)] = f32_to_bf16(static_cast<float>(i - 4));
  }
  for (const Numerics numerics :
       {Numerics::contract, Numerics::float64, Numerics::float64_unrounded}) {
    Caps caps = layer.caps();
    caps.numerics = numerics;
    const std::vector<double> a = fc1_of(layer, caps);
    for (int i = 0; i < 16; ++i) {
      const double h = (i - 4) + (i < 15 ? 0.5 * (i - 3) : 0);
      const double want = h > 0 ? h * h : 0;
      // Squares up to 256 with quarters have at most 10 significant bits: bf16 keeps 8 of them.
      if (numerics == Numerics::float64_unrounded) {
        EXPECT_EQ(a[static_cast<size_t>(i)], want) << i;
      } else {
        EXPECT_EQ(a[static_cast<size_t>(i)], bf16_to_f32(f64_to_bf16(want))) << i;
      }
    }
  }
}

TEST(ReferenceFc1, GateAndUpHaveTheirOwnRowsAndGlobalScales) {
  RandomLayer layer = blank_layer({ActivationKind::silu_clamped, 1, 0, 100});
  for (int i = 0; i < 16; ++i) {
    layer.experts[0].gate.set_code(i, 0, kTwo);
    layer.experts[0].up.set_code(i, 1, kMinusOne);
  }
  layer.experts[0].gate.global = 8;
  layer.experts[0].up.global = 0.25f;
  layer.x[0] = f32_to_bf16(2);
  layer.x[1] = f32_to_bf16(3);
  Caps caps = layer.caps();
  caps.numerics = Numerics::float64_unrounded;
  // gate = 2 * 2 * 8 = 32, up = -1 * 3 / 4.
  const double want = 32 / (1 + std::exp(-32.0)) * -0.75;
  for (const double a : fc1_of(layer, caps)) EXPECT_DOUBLE_EQ(a, want);
}

TEST(ReferenceFc1, ScalesAreThoseOfTheGroup) {
  LayerOptions options;
  options.hidden = 32;
  options.intermediate = 16;
  options.num_experts = options.top_k = 1;
  options.max_tokens = 1;
  options.activation = {ActivationKind::relu2};
  RandomLayer layer(options);
  layer.experts[0].gate.set_all(kOne);
  for (int i = 0; i < 16; ++i) {
    layer.experts[0].gate.set_scale(i, 16, static_cast<uint8_t>(0x30 + i));
  }
  for (bf16& v : layer.x) v = bf16{0};
  layer.x[15] = f32_to_bf16(1);  // last of group 0: scale 1
  layer.x[16] = f32_to_bf16(2);  // first of group 1
  Caps caps = layer.caps();
  caps.numerics = Numerics::float64_unrounded;
  const std::vector<double> a = fc1_of(layer, caps);
  for (int i = 0; i < 16; ++i) {
    const double scale = (8 + i % 8) / 8.0 * (i < 8 ? 0.5 : 1);
    EXPECT_EQ(a[static_cast<size_t>(i)], (1 + 2 * scale) * (1 + 2 * scale)) << i;
  }
}

// h = W x * global * r + b: the router weight does not multiply the bias.
TEST(ReferenceFc1, TheRouterWeightOnInputSparesTheBias) {
  RandomLayer layer = blank_layer({ActivationKind::relu2}, true);
  for (int i = 0; i < 16; ++i) {
    layer.experts[0].gate.set_code(i, 3, kOne);
    layer.experts[0].gate.bias[static_cast<size_t>(i)] = static_cast<float>(i) / 4;
  }
  layer.experts[0].gate.global = 2;
  layer.x[3] = f32_to_bf16(5);
  Caps caps = layer.caps();
  caps.numerics = Numerics::float64_unrounded;
  for (const bool on_input : {false, true}) {
    caps.router_weight_on_input = on_input;
    const std::vector<double> a = fc1_of(layer, caps, 0.5f);
    for (int i = 0; i < 16; ++i) {
      const double h = (on_input ? 5 : 10) + i / 4.0;
      EXPECT_EQ(a[static_cast<size_t>(i)], h * h) << on_input;
    }
  }
}

// 2^24 + 1 - 2^24: f32 loses the 1, f64 keeps it.
TEST(ReferenceFc1, TheNumericsChooseTheAccumulator) {
  RandomLayer layer = blank_layer({ActivationKind::relu2});
  for (int i = 0; i < 16; ++i) {
    layer.experts[0].gate.set_code(i, 0, kOne);
    layer.experts[0].gate.set_code(i, 1, kOne);
    layer.experts[0].gate.set_code(i, 2, kMinusOne);
  }
  layer.x[0] = layer.x[2] = f32_to_bf16(0x1p24f);
  layer.x[1] = f32_to_bf16(1);
  Caps caps = layer.caps();
  for (const double a : fc1_of(layer, caps)) EXPECT_EQ(a, 0.0);
  for (const Numerics numerics : {Numerics::float64, Numerics::float64_unrounded}) {
    caps.numerics = numerics;
    for (const double a : fc1_of(layer, caps)) EXPECT_EQ(a, 1.0);
  }
}

// (1 + 2^-7)^2 = 1 + 2^-6 + 2^-14: bf16 ends at 2^-7.
TEST(ReferenceFc1, OnlyTheUnroundedNumericsKeepAllBits) {
  RandomLayer layer = blank_layer({ActivationKind::relu2});
  for (int i = 0; i < 16; ++i) layer.experts[0].gate.set_code(i, 0, kOne);
  layer.x[0] = f32_to_bf16(1 + 0x1p-7f);
  Caps caps = layer.caps();
  for (const double a : fc1_of(layer, caps)) EXPECT_EQ(a, 1 + 0x1p-6);
  caps.numerics = Numerics::float64;
  for (const double a : fc1_of(layer, caps)) EXPECT_EQ(a, 1 + 0x1p-6);
  caps.numerics = Numerics::float64_unrounded;
  for (const double a : fc1_of(layer, caps)) EXPECT_EQ(a, 1 + 0x1p-6 + 0x1p-14);
}

}  // namespace
}  // namespace snug::reference
