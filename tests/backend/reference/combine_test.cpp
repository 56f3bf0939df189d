// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/combine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/layer.h"

namespace snug::reference {
namespace {

TEST(ReferenceCombine, TheSumStartsAtZeroAndIsStoredOnce) {
  test::LayerOptions options;
  options.hidden = 16;
  const test::RandomLayer layer(options);
  Caps caps = layer.caps();
  caps.output_dtype = DType::bf16;
  test::LayerCall call(layer, Machine::reference, 3, caps);
  std::vector<double> sum(17, NAN);
  clear_sum(call.bound, sum.data());
  for (size_t n = 0; n < 16; ++n) {
    EXPECT_EQ(sum[n], 0.0);
    sum[n] = 1 + 0x1p-8 + static_cast<double>(n) * 0x1p-40;
  }
  EXPECT_TRUE(std::isnan(sum[16])) << "cleared past hidden";
  store_sum(call.bound, 1, sum.data());
  const std::vector<float> y = call.output();
  EXPECT_EQ(y[16], 1.0f);  // the tie goes to even
  for (size_t n = 1; n < 16; ++n) EXPECT_EQ(y[16 + n], 1 + 0x1p-7f) << n;
  for (size_t n = 0; n < 16; ++n) EXPECT_TRUE(std::isnan(y[n]) && std::isnan(y[32 + n]));
}

TEST(ReferenceCombine, InF32) {
  test::LayerOptions options;
  options.hidden = 16;
  const test::RandomLayer layer(options);
  test::LayerCall call(layer, Machine::reference, 1);
  std::vector<float> sum(16);
  clear_sum(call.bound, sum.data());
  for (size_t n = 0; n < 16; ++n) sum[n] = 1 + static_cast<float>(n) * 0x1p-23f;
  store_sum(call.bound, 0, sum.data());
  EXPECT_EQ(call.output(), sum);
}

}  // namespace
}  // namespace snug::reference
