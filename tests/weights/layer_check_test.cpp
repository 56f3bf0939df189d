// SPDX-License-Identifier: Apache-2.0
#include "weights/layer_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/expert_tensors.h"

namespace snug {
namespace {

using test::LayerSpec;
using test::make_layer;
using test::scheme_id;
using test::StoredTensor;

Result<MoeLayer> check(const LayerSpec& spec, const std::vector<StoredTensor>& tensors,
                       const ModelConfig& config = {}) {
  const std::vector<TensorView> views = test::views_of(tensors);
  std::vector<LayerTensor> layer;
  for (const TensorView& v : views) {
    const ExpertName name = parse_tensor_name(v.name);
    layer.push_back({name, *component_of(kSchemes[spec.scheme], name.part), &v});
  }
  return check_layer(spec.scheme, &layer, config);
}

/// The message after `change` was made to the one tensor whose name ends so.
std::string error_after(const LayerSpec& spec, const std::string& ending,
                        const std::function<void(StoredTensor*)>& change,
                        const ModelConfig& config = {}) {
  std::vector<StoredTensor> tensors = make_layer(spec);
  int changed = 0;
  for (StoredTensor& t : tensors) {
    if (!t.name.ends_with(ending)) continue;
    change(&t);
    ++changed;
  }
  EXPECT_EQ(changed, 1) << ending;
  const auto result = check(spec, tensors, config);
  return result.has_value() ? "" : result.error().message;
}

#define EXPECT_HAS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "have: " << (text)

const LayerSpec kNvfp4{.scheme = 0, .num_experts = 3, .hidden = 64, .intermediate = 48};
const LayerSpec kGptOss{
    .scheme = 3, .num_experts = 3, .hidden = 64, .intermediate = 32, .biased = true};

TEST(LayerCheck, WrongShapesAreNamed) {
  ASSERT_EQ(kNvfp4.scheme, scheme_id("modelopt_nvfp4"));
  ASSERT_EQ(kGptOss.scheme, scheme_id("gpt_oss_mxfp4"));
  EXPECT_HAS(error_after(kNvfp4, "2.up_proj.weight_scale",
                         [](auto* t) {
                           t->shape = {48, 3};
                         }),
             "layers.0 expert 2 up: weight_scale is [48, 3], need [48, 4]");
  EXPECT_HAS(error_after(kNvfp4, "1.down_proj.weight",
                         [](auto* t) {
                           t->shape = {24, 64};
                         }),
             "layers.0 expert 1 down: weight is [24, 64], need [64, 24]");
  EXPECT_HAS(error_after(kNvfp4, "1.up_proj.weight", [](auto* t) { t->shape = {48 * 32}; }),
             "layers.0 expert 1 up: weight is [1536], need [48, 32]");
  EXPECT_HAS(error_after(kNvfp4, "0.gate_proj.weight", [](auto* t) { t->shape = {48 * 32}; }),
             "expert 0 gate: weight is [1536], need 2 dimensions");
  EXPECT_HAS(error_after(kNvfp4, "0.gate_proj.weight",
                         [](auto* t) {
                           t->shape = {0, 32};
                         }),
             "expert 0 gate: weight is [0, 32], sizes must be");
  EXPECT_HAS(error_after(kNvfp4, "1.up_proj.weight_scale_2", [](auto* t) { t->shape = {2}; }),
             "expert 1 up: weight_scale_2 is [2], need [1]");
  EXPECT_HAS(error_after(kGptOss, "down_proj_scales",
                         [](auto* t) {
                           t->shape = {3, 1, 64};
                         }),
             "layers.0 down: scales is [3, 1, 64], need [3, 64, 1]");
  EXPECT_HAS(error_after(kGptOss, "gate_up_proj_blocks",
                         [](auto* t) {
                           t->shape = {3, 64, 64};
                         }),
             "layers.0 gate_up: blocks is [3, 64, 64], need 4 dimensions");
  EXPECT_HAS(error_after(kGptOss, "gate_up_proj_bias",
                         [](auto* t) {
                           t->shape = {2, 96};
                         }),
             "layers.0 gate_up: bias is [2, 96], need [3, 64]");
  EXPECT_HAS(error_after(kGptOss, "down_proj_blocks", [](auto* t) { t->shape[0] = 2; }),
             "layers.0 down: blocks is [2, 64, 1, 16], need [3, 64, 1, 16]");
}

TEST(LayerCheck, WrongDtypesAreNamed) {
  EXPECT_HAS(error_after(kNvfp4, "1.up_proj.weight_scale_2", [](auto* t) { t->dtype = "BF16"; }),
             "expert 1 up: weight_scale_2 is BF16, modelopt_nvfp4 needs f32");
  EXPECT_HAS(error_after(kNvfp4, "1.up_proj.weight_scale", [](auto* t) { t->dtype = "U8"; }),
             "expert 1 up: weight_scale is U8, modelopt_nvfp4 needs e4m3");
  EXPECT_HAS(error_after(kNvfp4, "2.down_proj.weight", [](auto* t) { t->dtype = "F8_E5M2"; }),
             "expert 2 down: weight is F8_E5M2, modelopt_nvfp4 needs u8 or e2m1x2");
  EXPECT_HAS(error_after(kGptOss, "down_proj_bias", [](auto* t) { t->dtype = "F16"; }),
             "layers.0 down: bias is F16, gpt_oss_mxfp4 needs bf16 or f32");
  EXPECT_EQ(error_after(kNvfp4, "2.down_proj.weight", [](auto* t) { t->dtype = "F4"; }), "");
  EXPECT_EQ(error_after(kGptOss, "down_proj_scales", [](auto* t) { t->dtype = "F8_E8M0"; }), "");
}

TEST(LayerCheck, GlobalScalesMustBeFiniteAndPositive) {
  const std::pair<float, const char*> kBad[] = {
      {0.0f, "is 0,"},
      {-0.5f, "is -0.5,"},
      {std::numeric_limits<float>::infinity(), "is inf,"},
      {std::numeric_limits<float>::quiet_NaN(), "nan,"},
  };
  for (const auto& [value, text] : kBad) {
    const std::string message =
        error_after(kNvfp4, "1.down_proj.weight_scale_2",
                    [&v = value](auto* t) { t->bytes = test::f32_bytes(v); });
    EXPECT_HAS(message, "layers.0 expert 1 down: weight_scale_2 is ");
    EXPECT_HAS(message, text);
  }
}

TEST(LayerCheck, TheConfigIsHeldAgainstTheTensors) {
  ModelConfig config;
  config.num_experts = 3;
  config.hidden = 64;
  config.intermediate = 48;
  EXPECT_TRUE(check(kNvfp4, make_layer(kNvfp4), config).has_value());
  config.hidden = 96;
  EXPECT_HAS(check(kNvfp4, make_layer(kNvfp4), config).error().message,
             "expert 0 gate: weight is [48, 32], need [48, 48] (hidden 96, intermediate 48 by "
             "config.json)");
  config.hidden = 64;
  config.intermediate = 32;
  EXPECT_HAS(check(kNvfp4, make_layer(kNvfp4), config).error().message, "need [32, 32]");
  config.intermediate = 48;
  config.num_experts = 4;
  EXPECT_HAS(check(kNvfp4, make_layer(kNvfp4), config).error().message,
             "layers.0 expert 3 gate: weight is missing");
  config.num_experts = 2;
  EXPECT_HAS(check(kNvfp4, make_layer(kNvfp4), config).error().message,
             "has 3 experts (modelopt_nvfp4), config.json says 2");
  config.intermediate = 32;
  EXPECT_HAS(check(kGptOss, make_layer(kGptOss), config).error().message,
             "has 3 experts (gpt_oss_mxfp4), config.json says 2");
}

TEST(LayerCheck, SizesAreMultiplesOfTheGroup) {
  LayerSpec spec = kGptOss;
  spec.intermediate = 48;  // fine for NVFP4 only
  spec.scheme = scheme_id("deepseek_v4_mxfp4");
  const auto result = check(spec, make_layer(spec));
  EXPECT_EQ(result.error().code, Code::unsupported);
  EXPECT_HAS(result.error().message, "layers.0: intermediate is 48, need a multiple of 32");
  spec.intermediate = 64;
  spec.hidden = 40;
  EXPECT_HAS(check(spec, make_layer(spec)).error().message, "hidden is 40");
}

TEST(LayerCheck, BiasOnAllOrNone) {
  std::vector<StoredTensor> tensors = make_layer(kGptOss);
  std::erase_if(tensors, [](const StoredTensor& t) { return t.name.ends_with("down_proj_bias"); });
  EXPECT_HAS(check(kGptOss, tensors).error().message, "layers.0 down: bias is missing");
}

}  // namespace
}  // namespace snug
