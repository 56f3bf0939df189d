// SPDX-License-Identifier: Apache-2.0
// api/route.cpp through snug.h; the rule itself is tested in moe/routing_test.cpp.
#include <gtest/gtest.h>
#include <snug/snug.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "support/tiny_checkpoint.h"

namespace snug {
namespace {

/// Arguments of a call; each test changes some.
struct Call {
  snug_routing routing;
  std::vector<float> logits = {0, 1, 3, 2, 5, 4, 4, -1};  // 2 tokens, 4 experts
  const void* data = logits.data();
  int32_t dtype = SNUG_F32;
  int64_t stride = 4;
  std::vector<float> bias;
  int64_t num_tokens = 2;
  int32_t num_experts = 4;
  int32_t top_k = 2;
  std::vector<int32_t> ids = std::vector<int32_t>(5, 99);
  std::vector<float> weights = std::vector<float>(5, 99);

  Call() { snug_routing_init(&routing); }
  Call(const Call&) = delete;

  snug_status run(snug_error* error) {
    return snug_route(&routing, data, dtype, stride, bias.empty() ? nullptr : bias.data(),
                      num_tokens, num_experts, top_k, ids.data(), weights.data(), error);
  }
};

TEST(Route, DefaultsAreSoftmaxOverTheChosen) {
  snug_routing want;
  std::memset(&want, 0, sizeof want);
  snug_routing_init(nullptr);
  Call call;
  EXPECT_EQ(call.routing.struct_size, sizeof(snug_routing));
  EXPECT_EQ(call.routing.score, SNUG_SCORE_SOFTMAX);
  EXPECT_EQ(call.routing.renormalize, 1);
  EXPECT_EQ(call.routing.num_groups, 1);
  EXPECT_EQ(call.routing.topk_groups, 1);
  EXPECT_EQ(call.routing.scale, 1.0f);
  snug_error error, before;
  std::memset(&error, 0x5A, sizeof error);
  before = error;
  ASSERT_EQ(call.run(&error), SNUG_OK);
  EXPECT_EQ(std::memcmp(&error, &before, sizeof error), 0) << "untouched on success";
  EXPECT_EQ(call.ids, (std::vector<int32_t>{2, 3, 0, 1, 99}));  // 4 and 4: the lower id
  const double high = 1 / (1 + std::exp(-1.0));                 // logits differ by 1 in both rows
  const double want_weights[] = {high, 1 - high, high, 1 - high, 99};
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(call.weights[i], want_weights[i], 1e-6) << i;
}

TEST(Route, Bf16LogitsGiveTheBitsOfTheirF32Values) {
  std::mt19937 random(5);
  std::vector<bf16> narrow(3 * 40, bf16{0x7FC0});  // NaN between the rows
  std::vector<float> wide(3 * 32);
  for (size_t t = 0; t < 3; ++t) {
    for (size_t e = 0; e < 32; ++e) {
      narrow[t * 40 + e] = f32_to_bf16(static_cast<float>(random() % 4096) / 512 - 4);
      wide[t * 32 + e] = bf16_to_f32(narrow[t * 40 + e]);
    }
  }
  std::vector<int32_t> ids(12), same_ids(12);
  std::vector<float> weights(12), same_weights(12);
  snug_routing routing;
  snug_routing_init(&routing);
  routing.score = SNUG_SCORE_SIGMOID;
  routing.num_groups = 4, routing.topk_groups = 2;
  routing.scale = 2.5f;
  ASSERT_EQ(snug_route(&routing, narrow.data(), SNUG_BF16, 40, nullptr, 3, 32, 4, ids.data(),
                       weights.data(), nullptr),
            SNUG_OK);
  ASSERT_EQ(snug_route(&routing, wide.data(), SNUG_F32, 32, nullptr, 3, 32, 4, same_ids.data(),
                       same_weights.data(), nullptr),
            SNUG_OK);
  EXPECT_EQ(ids, same_ids);
  EXPECT_EQ(weights, same_weights);
  for (size_t t = 0; t < 3; ++t) {
    float sum = 0;
    for (size_t j = 0; j < 4; ++j) sum += weights[t * 4 + j];
    EXPECT_NEAR(sum, 2.5f, 1e-5);
  }
}

TEST(Route, TheBiasChoosesAndDoesNotWeigh) {
  Call call;
  call.routing.score = SNUG_SCORE_SIGMOID;
  call.routing.renormalize = 0;
  call.bias = {0, 0, 0, 100};
  ASSERT_EQ(call.run(nullptr), SNUG_OK);
  EXPECT_EQ(call.ids, (std::vector<int32_t>{3, 2, 3, 0, 99}));
  EXPECT_NEAR(call.weights[0], 1 / (1 + std::exp(-2.0)), 1e-6);
  EXPECT_NEAR(call.weights[2], 1 / (1 + std::exp(1.0)), 1e-6);
}

TEST(Route, ArgumentsAreCheckedByName) {
  const auto refused = [](auto change, const char* begins) {
    Call call;
    change(call);
    EXPECT_REFUSED(call.run(error), SNUG_INVALID_ARGUMENT, begins);
    EXPECT_EQ(call.ids, std::vector<int32_t>(5, 99)) << "a refused call wrote";
    EXPECT_EQ(call.weights, std::vector<float>(5, 99)) << "a refused call wrote";
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  refused([](Call& c) { c.routing.struct_size = 0; }, "routing.struct_size: have 0");
  refused([](Call& c) { c.routing.score = 3; }, "routing.score: have 3, need 0..2");
  refused([](Call& c) { c.routing.score = -1; }, "routing.score: have -1");
  refused([](Call& c) { c.routing.renormalize = 2; }, "routing.renormalize: have 2, need 0 or 1");
  refused([](Call& c) { c.routing.num_groups = 0; }, "routing.num_groups: have 0");
  refused([](Call& c) { c.routing.num_groups = 3; }, "routing.num_groups: have 3");
  refused([](Call& c) { c.routing.topk_groups = 2; }, "routing.topk_groups: have 2, need 1..1");
  refused([](Call& c) { c.routing.group_rank = 2; }, "routing.group_rank: have 2");
  refused([](Call& c) { c.routing.scale = kNan; }, "routing.scale");
  refused([](Call& c) { c.data = nullptr; }, "logits: is null");
  refused([](Call& c) { c.dtype = SNUG_F16; }, "logits: have dtype f16, need f32 or bf16");
  refused([](Call& c) { c.dtype = -5; }, "logits: have dtype unknown");
  refused([](Call& c) { c.stride = 3; }, "logits_stride: have 3, need 4");
  refused([](Call& c) { c.stride = INT64_MAX; }, "logits_stride");
  refused([](Call& c) { c.num_tokens = -1; }, "num_tokens: have -1");
  refused([](Call& c) { c.num_tokens = INT64_MAX; }, "num_tokens");
  refused([](Call& c) { c.num_experts = 0; }, "num_experts: have 0");
  refused([](Call& c) { c.num_experts = 4097; }, "num_experts: have 4097");
  refused([](Call& c) { c.top_k = 0; }, "top_k: have 0");
  refused([](Call& c) { c.top_k = 5; }, "top_k: have 5");
  Call call;
  const auto bad = SNUG_INVALID_ARGUMENT;
  EXPECT_REFUSED(snug_route(nullptr, call.data, SNUG_F32, 4, nullptr, 2, 4, 2, call.ids.data(),
                            call.weights.data(), error),
                 bad, "routing: is null");
  EXPECT_REFUSED(snug_route(&call.routing, call.data, SNUG_F32, 4, nullptr, 2, 4, 2, nullptr,
                            call.weights.data(), error),
                 bad, "topk_ids: is null");
  EXPECT_REFUSED(snug_route(&call.routing, call.data, SNUG_F32, 4, nullptr, 2, 4, 2,
                            call.ids.data(), nullptr, error),
                 bad, "topk_weights: is null");
}

TEST(Route, ZeroTokensLookAtNoPointer) {
  Call call;
  EXPECT_EQ(
      snug_route(&call.routing, nullptr, SNUG_BF16, 0, nullptr, 0, 4, 2, nullptr, nullptr, nullptr),
      SNUG_OK);
}

}  // namespace
}  // namespace snug
