// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/fc2.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/layer.h"

namespace snug::reference {
namespace {

using test::LayerCall;
using test::LayerOptions;
using test::RandomLayer;

constexpr int kOne = 2, kMinusTwo = 12;

/// One expert, hidden 32, intermediate 16; row n of down holds 1 at k = n % 16 and -2 after it.
RandomLayer hand_layer(bool has_bias) {
  LayerOptions options;
  options.hidden = 32;
  options.intermediate = 16;
  options.num_experts = options.top_k = 1;
  options.max_tokens = 1;
  options.has_bias = has_bias;
  RandomLayer layer(options);
  test::StoredMatrix& down = layer.experts[0].down;
  down.set_all(0);
  down.global = 0.5f;
  for (int n = 0; n < 32; ++n) {
    down.set_code(n, n % 16, kOne);
    down.set_code(n, (n + 1) % 16, kMinusTwo);
    if (has_bias) down.bias[static_cast<size_t>(n)] = static_cast<float>(n);
  }
  return layer;
}

template <class T>
void check_sum(bool has_bias, bool on_input) {
  const RandomLayer layer = hand_layer(has_bias);
  Caps caps = layer.caps();
  caps.router_weight_on_input = on_input;
  LayerCall call(layer, Machine::reference, 1, caps);
  std::vector<T> activated, sum(32, T(1000));
  for (int i = 0; i < 16; ++i) activated.push_back(static_cast<T>(i * i));
  fc2_add(call.bound, Route{0, 0, 4.0f}, activated.data(), sum.data());
  for (int n = 0; n < 32; ++n) {
    const int i = n % 16, next = (i + 1) % 16;
    const double y = 0.5 * (i * i - 2 * next * next) + (has_bias ? n : 0);
    EXPECT_EQ(sum[static_cast<size_t>(n)], static_cast<T>(1000 + (on_input ? 1 : 4) * y)) << n;
  }
}

TEST(ReferenceFc2, AddsTheWeightedRowByHand) {
  for (const bool has_bias : {false, true}) {
    for (const bool on_input : {false, true}) {
      check_sum<float>(has_bias, on_input);
      check_sum<double>(has_bias, on_input);
    }
  }
}

TEST(ReferenceFc2, AccumulatesInItsType) {
  RandomLayer layer = hand_layer(false);
  layer.experts[0].down.set_all(kOne);
  LayerCall call(layer, Machine::reference, 1);
  std::vector<float> narrow(16, 0.0f), narrow_sum(32, 0.0f);
  narrow[0] = 0x1p24f, narrow[1] = 1, narrow[2] = -0x1p24f;
  fc2_add(call.bound, Route{0, 0, 1}, narrow.data(), narrow_sum.data());
  const std::vector<double> wide(narrow.begin(), narrow.end());
  std::vector<double> wide_sum(32, 0.0);
  fc2_add(call.bound, Route{0, 0, 1}, wide.data(), wide_sum.data());
  for (size_t n = 0; n < 32; ++n) {
    EXPECT_EQ(narrow_sum[n], 0.0f);
    EXPECT_EQ(wide_sum[n], 1.0);
  }
}

}  // namespace
}  // namespace snug::reference
