// SPDX-License-Identifier: Apache-2.0
// snug.hpp: handles, results and errors over the shared library.
#include <gtest/gtest.h>

#include <snug/snug.hpp>
#include <type_traits>
#include <utility>

namespace {

snug_caps small_caps() {
  snug_caps caps = snug::make_caps();
  caps.hidden = 64;
  caps.intermediate = 32;
  caps.num_experts = caps.num_local_experts = 4;
  caps.top_k = 2;
  caps.max_tokens = 8;
  return caps;
}

TEST(Hpp, HandlesMoveAndDoNotCopy) {
  static_assert(!std::is_copy_constructible_v<snug::Plan>);
  static_assert(std::is_nothrow_move_constructible_v<snug::Plan>);
  static_assert(!std::is_copy_constructible_v<snug::Checkpoint>);
  static_assert(!std::is_copy_constructible_v<snug::Weights>);
  static_assert(std::is_trivially_copyable_v<snug::Binding>);
  const auto device = snug::device_by_name("cpu");
  ASSERT_TRUE(device);
  auto plan = snug::Plan::make(small_caps(), *device);
  ASSERT_TRUE(plan);
  const uint64_t nbytes = plan->required_nbytes();
  const snug::Plan moved = std::move(plan).value();
  EXPECT_EQ(moved.required_nbytes(), nbytes);
  EXPECT_EQ(*snug::required_nbytes(small_caps(), *device), nbytes);
}

TEST(Hpp, ErrorsCarryCodeAndMessage) {
  snug_caps caps = small_caps();
  caps.intermediate = 40;
  const auto plan = snug::Plan::make(caps, *snug::device_by_name("cpu"));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), SNUG_UNSUPPORTED);
  EXPECT_STREQ(plan.error().code_name(), "unsupported");
  EXPECT_STREQ(plan.error().message(), "intermediate: have 40, nvfp4 needs a multiple of 16");
}

TEST(Hpp, TextHasItsExactLength) {
  const auto plan = snug::Plan::make(small_caps(), *snug::device_by_name("h200"));
  ASSERT_TRUE(plan);
  const auto text = plan->explain();
  ASSERT_TRUE(text);
  EXPECT_EQ(text->find('\0'), std::string::npos);
  EXPECT_NE(text->find("priced only"), std::string::npos);
  EXPECT_EQ(plan->explain(true)->front(), '{');
}

TEST(Hpp, ProgressCanCancel) {
  const auto model = snug::Checkpoint::open(SNUG_MODEL_DIR);
  ASSERT_TRUE(model) << model.error().message();
  const snug_layer_info layer = *model->layer(0);
  snug_caps caps = small_caps();
  caps.hidden = layer.hidden;
  caps.intermediate = layer.intermediate;
  caps.num_experts = caps.num_local_experts = layer.num_experts;
  caps.format = layer.format;
  const auto plan = snug::Plan::make(caps, *snug::device_by_name("cpu"));
  ASSERT_TRUE(plan);
  std::vector<std::byte> bytes(plan->weights_nbytes() + 64);
  void* storage =
      reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
  auto weights = snug::Weights::make(*plan, storage, plan->weights_nbytes());
  ASSERT_TRUE(weights);
  int64_t seen = 0;
  const snug::Error error = weights->load(*model, 0, nullptr, 1, [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, layer.num_experts);
    seen = done;
    return done < 3;
  });
  EXPECT_EQ(error.code(), SNUG_CANCELLED);
  EXPECT_EQ(seen, 3);
  EXPECT_FALSE(weights->check().ok());
}

}  // namespace
