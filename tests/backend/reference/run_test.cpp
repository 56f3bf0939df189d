// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/layer.h"

namespace snug::reference {
namespace {

using test::LayerCall;
using test::LayerOptions;
using test::RandomLayer;

constexpr Numerics kAllNumerics[] = {Numerics::contract, Numerics::float64,
                                     Numerics::float64_unrounded};

/// Two experts over hidden 16, intermediate 16, relu2. FC1 copies x (times a power of two), FC2
/// copies the squares (times another), so that every number of the layer is an integer.
RandomLayer hand_layer() {
  LayerOptions options;
  options.hidden = options.intermediate = 16;
  options.num_experts = options.top_k = 2;
  options.max_tokens = 3;
  options.activation = {ActivationKind::relu2};
  options.has_bias = true;
  RandomLayer layer(options);
  for (int e = 0; e < 2; ++e) {
    test::StoredExpert& expert = layer.experts[static_cast<size_t>(e)];
    for (test::StoredMatrix* m : {&expert.gate, &expert.down}) {
      m->set_all(0);
      for (int i = 0; i < 16; ++i) m->set_code(i, i, 2);  // the identity
    }
    expert.gate.global = e == 0 ? 1.0f : 2.0f;
    expert.down.global = e == 0 ? 1.0f : 0.25f;
    for (size_t i = 0; i < 16; ++i) {
      expert.gate.bias[i] = static_cast<float>(e);
      expert.down.bias[i] = static_cast<float>(i) * (e == 0 ? 1.0f : -1.0f);
    }
  }
  for (size_t i = 0; i < layer.x.size(); ++i) {
    layer.x[i] = f32_to_bf16(static_cast<float>(static_cast<int>(i % 7) - 3));
  }
  layer.ids = {0, 1, 1, 1, -1, 0};
  layer.weights = {1, 2, 4, 8, NAN, 0.5f};
  return layer;
}

double expert_by_hand(int e, double x, int n) {
  const double h = e == 0 ? x : 2 * x + 1;
  const double a = h > 0 ? h * h : 0;
  return e == 0 ? a + n : 0.25 * a - n;
}

TEST(ReferenceRun, ALayerByHand) {
  const RandomLayer layer = hand_layer();
  for (const Numerics numerics : kAllNumerics) {
    const std::vector<float> y = test::run(layer, Machine::reference, 3, numerics);
    for (int t = 0; t < 3; ++t) {
      for (int n = 0; n < 16; ++n) {
        const double x = (t * 16 + n) % 7 - 3;
        const double want = t == 0   ? expert_by_hand(0, x, n) + 2 * expert_by_hand(1, x, n)
                            : t == 1 ? 12 * expert_by_hand(1, x, n)
                                     : 0.5 * expert_by_hand(0, x, n);
        ASSERT_EQ(y[static_cast<size_t>(t * 16 + n)], static_cast<float>(want))
            << "token " << t << " column " << n;
      }
    }
  }
}

// The bounds of the contract: 1e-3 against rounded activations, 4e-3 against unrounded ones.
TEST(ReferenceRun, TheContractIsCloseToFloat64) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    for (const ActivationKind kind : {ActivationKind::silu, ActivationKind::relu2}) {
      LayerOptions options = format == Format::mxfp4 ? test::mxfp4_options() : LayerOptions{};
      options.activation = {kind};
      options.has_bias = true;
      const RandomLayer layer(options);
      const std::vector<float> y = test::run(layer, Machine::reference, 8);
      const auto against = [&](Numerics numerics) {
        return test::relative_l2(y, test::run(layer, Machine::reference, 8, numerics));
      };
      EXPECT_LE(against(Numerics::float64), 1e-3);
      const double unrounded = against(Numerics::float64_unrounded);
      EXPECT_LE(unrounded, 4e-3);
      EXPECT_GT(unrounded, 1e-5) << "the activations were not rounded";
    }
  }
}

TEST(ReferenceRun, TokensWithoutARouteAreZero) {
  RandomLayer layer(LayerOptions{});
  layer.ids[4] = -1;
  layer.ids[5] = 4;
  const std::vector<float> y = test::run(layer, Machine::reference, 8);
  for (size_t n = 0; n < 64; ++n) {
    ASSERT_EQ(y[2 * 64 + n], 0.0f);
    ASSERT_FALSE(std::signbit(y[2 * 64 + n]));
    ASSERT_NE(y[64 + n], 0.0f);
  }
}

TEST(ReferenceRun, NoTokensTouchNothing) {
  const RandomLayer layer(LayerOptions{});
  LayerCall call(layer, Machine::reference, 0);
  call.bound.io.output = nullptr;
  call.bound.io.arena = nullptr;
  EXPECT_TRUE(run(call.bound, nullptr).ok());
}

TEST(ReferenceRun, Bf16OutputIsTheF32OneRounded) {
  const RandomLayer layer(LayerOptions{});
  Caps caps = layer.caps();
  const std::vector<float> wide = LayerCall(layer, Machine::reference, 8, caps).run();
  caps.output_dtype = DType::bf16;
  const std::vector<float> narrow = LayerCall(layer, Machine::reference, 8, caps).run();
  for (size_t i = 0; i < wide.size(); ++i) {
    ASSERT_EQ(narrow[i], bf16_to_f32(f32_to_bf16(wide[i])));
  }
}

}  // namespace
}  // namespace snug::reference
