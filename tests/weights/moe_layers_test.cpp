// SPDX-License-Identifier: Apache-2.0
#include "weights/moe_layers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "support/expert_tensors.h"

namespace snug {
namespace {

using test::LayerSpec;
using test::make_layer;
using test::scheme_id;
using test::StoredTensor;

/// Runs find_moe_layers over tensors that live as long as this.
struct Finder {
  std::vector<StoredTensor> tensors;
  ModelConfig config;
  std::vector<TensorView> views;

  Result<std::vector<MoeLayerTensors>> find() {
    views = test::views_of(tensors);
    std::vector<const TensorView*> pointers;
    for (const TensorView& v : views) pointers.push_back(&v);
    return find_moe_layers(pointers, config);
  }
  std::string error() {
    const auto result = find();
    return result.has_value() ? "" : result.error().message;
  }
  Code code() { return find().error().code; }
  void add(const std::vector<StoredTensor>& more) {
    tensors.insert(tensors.end(), more.begin(), more.end());
  }
};

#define EXPECT_HAS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "have: " << (text)

TEST(MoeLayers, EverySchemeIsFound) {
  for (int32_t scheme = 0; scheme < kNumSchemes; ++scheme) {
    for (const bool biased : {false, true}) {
      for (const bool short_names : {false, true}) {
        LayerSpec spec{.scheme = scheme,
                       .layer = 5,
                       .num_experts = 3,
                       .hidden = 64,
                       .intermediate = 96,
                       .biased = biased,
                       .short_names = short_names};
        Finder finder{make_layer(spec), {}, {}};
        const auto result = finder.find();
        ASSERT_TRUE(result.has_value()) << result.error().message;
        ASSERT_EQ(result->size(), 1u);
        const MoeLayer& layer = (*result)[0].layer;
        EXPECT_EQ(layer.layer, 5);
        EXPECT_EQ(layer.scheme, scheme) << kSchemes[scheme].name;
        EXPECT_EQ(layer.format, kSchemes[scheme].format);
        EXPECT_EQ(layer.num_experts, 3);
        EXPECT_EQ(layer.hidden, 64);
        EXPECT_EQ(layer.intermediate, 96);
        EXPECT_TRUE(layer.gated);
        EXPECT_EQ(layer.has_bias, biased);
        uint64_t nbytes = 0;
        for (const StoredTensor& t : finder.tensors) nbytes += t.bytes.size();
        EXPECT_EQ(source_nbytes((*result)[0]), nbytes);
      }
    }
  }
}

/// Deleting any tensor, but not a whole kind of them, names expert, projection and component.
TEST(MoeLayers, EveryDeletedTensorIsNamed) {
  for (int32_t scheme = 0; scheme < kNumSchemes; ++scheme) {
    for (const bool biased : {false, true}) {
      const LayerSpec spec{.scheme = scheme, .layer = 2, .num_experts = 3, .biased = biased};
      const std::vector<StoredTensor> all = make_layer(spec);
      for (size_t i = 0; i < all.size(); ++i) {
        Finder finder{all, {}, {}};
        finder.tensors.erase(finder.tensors.begin() + static_cast<std::ptrdiff_t>(i));
        finder.config.num_experts = 3;
        const ExpertName name = parse_tensor_name(all[i].name);
        std::string need = "layers.2 ";
        if (name.expert >= 0) need += "expert " + std::to_string(name.expert) + " ";
        need += std::string(projection_name(name.projection)) + ": " + std::string(name.part) +
                " is missing";
        EXPECT_HAS(finder.error(), need);
        EXPECT_EQ(finder.code(), Code::corrupt_checkpoint);
      }
    }
  }
}

TEST(MoeLayers, AWholeMissingComponentIsNamed) {
  Finder finder{make_layer({.scheme = scheme_id("modelopt_nvfp4")}), {}, {}};
  std::erase_if(finder.tensors, [](const StoredTensor& t) { return t.name.ends_with("scale_2"); });
  EXPECT_HAS(finder.error(), "expert 0 gate: weight_scale_2 is missing (modelopt_nvfp4)");
  std::erase_if(finder.tensors, [](const StoredTensor& t) { return t.name.ends_with("_scale"); });
  EXPECT_HAS(finder.error(), "weight_scale is missing");
}

TEST(MoeLayers, StrayTensorsAreErrors) {
  const LayerSpec spec{.scheme = scheme_id("modelopt_nvfp4"), .num_experts = 3};
  const auto with = [&](LayerSpec stray_spec, int32_t expert) {
    Finder finder{make_layer(spec), {}, {}};
    finder.add({test::make_tensor(stray_spec, expert, 0, Component::codes)});
    return finder;
  };
  EXPECT_HAS(with(spec, 7).error(), "expert 3 gate: weight is missing");
  Finder finder = with(spec, 7);
  finder.config.num_experts = 3;
  EXPECT_HAS(finder.error(), "has 8 experts (modelopt_nvfp4), config.json says 3");
  EXPECT_HAS(with(spec, 4096).error(), "need 1..4096");
  LayerSpec twin = spec;
  twin.short_names = true;
  EXPECT_HAS(with(twin, 1).error(), "expert 1 gate: weight comes twice");
  EXPECT_HAS(with(twin, 1).error(), "experts.1.w1.weight");
  LayerSpec elsewhere = spec;
  elsewhere.prefix = "model.language_model.layers.";
  EXPECT_HAS(with(elsewhere, 2).error(), "expert 2 gate: weight comes twice");
  finder = with(spec, 1);
  finder.tensors.back().name = "model.layers.0.mlp.experts.0.side_proj.weight";
  EXPECT_HAS(finder.error(), "model.layers.0.mlp.experts.0.side_proj.weight: lies under experts");
  finder.tensors.back().name = "model.layers.0.mlp.experts.0.gate_proj.lora_a";
  EXPECT_HAS(finder.error(), "gate_proj.lora_a: is U8 of format 'unknown'");
}

TEST(MoeLayers, NamesOutsideTheExpertsAreSkipped) {
  Finder finder{make_layer({.scheme = scheme_id("compressed_tensors_nvfp4")}), {}, {}};
  for (const char* name :
       {"model.layers.0.mlp.shared_experts.gate_proj.weight", "model.norm.weight",
        "model.layers.0.mlp.experts.0.gate_proj.input_global_scale",
        "mtp.layers.0.mlp.experts.0.gate_proj.weight"}) {
    finder.add({{name, "BF16", {1}, "xx"}});
  }
  EXPECT_EQ(finder.error(), "");
}

TEST(MoeLayers, ForeignFormatsAreRefusedByName) {
  struct Foreign {
    const char* part;
    const char* dtype;
    const char* named;
  };
  const Foreign kForeign[] = {
      {"weight", "BF16", "'unquantised'"},
      {"weight", "F8_E4M3", "'fp8'"},
      {"qweight", "I32", "'GPTQ or AWQ'"},
      {"weight_packed", "I32", "'int4 pack-quantized'"},
      {"weight_shape", "I64", "'int4 pack-quantized'"},
      {"trellis", "I16", "'EXL3'"},
      {"weight_scale_inv", "F32", "'fp8'"},
      {"weight", "F16", "'unquantised'"},
  };
  for (const Foreign& f : kForeign) {
    const std::string name = std::string("model.layers.3.mlp.experts.0.up_proj.") + f.part;
    Finder finder{{{name, f.dtype, {1}, std::string(8, 'x')}}, {}, {}};
    EXPECT_HAS(finder.error(), name + ": is " + f.dtype);
    EXPECT_HAS(finder.error(), f.named);
    EXPECT_EQ(finder.code(), Code::unsupported);
    finder.config.num_layers = 3;  // layer 3 is then a prediction block
    EXPECT_EQ(finder.error(), "");
  }
}

TEST(MoeLayers, TwoFormatsInOneLayer) {
  Finder finder{make_layer({.scheme = scheme_id("gpt_oss_mxfp4")}), {}, {}};
  finder.add(make_layer({.scheme = scheme_id("modelopt_nvfp4")}));
  finder.add(make_layer({.scheme = scheme_id("modelopt_nvfp4"), .layer = 1}));
  const auto result = finder.find();
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_EQ(result->size(), 3u);
  EXPECT_EQ((*result)[0].layer.format, Format::nvfp4);
  EXPECT_EQ((*result)[1].layer.format, Format::mxfp4);
  EXPECT_EQ((*result)[2].layer.layer, 1);
}

TEST(MoeLayers, TwoSchemesOfOneFormatAreAmbiguous) {
  Finder finder{make_layer({.scheme = scheme_id("gpt_oss_mxfp4")}), {}, {}};
  finder.add(make_layer({.scheme = scheme_id("deepseek_v4_mxfp4")}));
  EXPECT_HAS(finder.error(), "holds both gpt_oss_mxfp4 and deepseek_v4_mxfp4");
  EXPECT_EQ(finder.code(), Code::unsupported);
  Finder shared{make_layer({.scheme = scheme_id("modelopt_nvfp4")}), {}, {}};
  shared.add(make_layer({.scheme = scheme_id("deepseek_v4_mxfp4"), .short_names = true}));
  EXPECT_HAS(shared.error(), "may belong to modelopt_nvfp4 or to deepseek_v4_mxfp4");
  Finder mixed{make_layer({.scheme = scheme_id("compressed_tensors_mxfp4")}), {}, {}};
  mixed.add({{"model.layers.0.mlp.experts.0.gate_proj.weight", "I8", {1}, "x"}});
  EXPECT_HAS(mixed.error(), "no scheme has both");
}

TEST(MoeLayers, UngatedExperts) {
  LayerSpec spec{.scheme = scheme_id("modelopt_nvfp4"),
                 .gated = false,
                 .prefix = "backbone.layers.",
                 .block = "mixer"};
  Finder finder{make_layer(spec), {}, {}};
  const auto result = finder.find();
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_FALSE((*result)[0].layer.gated);
  const auto source = expert_source((*result)[0], 1);
  ASSERT_TRUE(source.has_value());
  EXPECT_EQ(source->up.codes, nullptr);
  for (const TensorView& v : finder.views) {
    if (v.name == "backbone.layers.0.mixer.experts.1.up_proj.weight") {
      EXPECT_EQ(source->gate.codes, v.data);
    }
    if (v.name == "backbone.layers.0.mixer.experts.1.down_proj.weight") {
      EXPECT_EQ(source->down.codes, v.data);
    }
  }
  finder.config.num_experts = 2;
  EXPECT_HAS(finder.error(), "gate is missing, silu of config.json needs it");
  finder.config.activation.kind = ActivationKind::relu2;
  EXPECT_EQ(finder.error(), "");
  spec.gated = true;
  finder.tensors = make_layer(spec);
  EXPECT_HAS(finder.error(), "gate is there, relu2 of config.json has none");
}

TEST(MoeLayers, SourcesPointAtTheRightBytes) {
  for (int32_t scheme = 0; scheme < kNumSchemes; ++scheme) {
    const Scheme& s = kSchemes[scheme];
    const LayerSpec spec{
        .scheme = scheme, .num_experts = 3, .hidden = 64, .intermediate = 32, .biased = true};
    Finder finder{make_layer(spec), {}, {}};
    const auto result = finder.find();
    ASSERT_TRUE(result.has_value()) << result.error().message;
    for (int32_t e = 0; e < 3; ++e) {
      const auto source = expert_source((*result)[0], e);
      ASSERT_TRUE(source.has_value());
      const MatrixSource* matrices[] = {&source->gate, &source->up, &source->down};
      for (int p = 0; p < 3; ++p) {
        const MatrixSource& m = *matrices[p];
        const int64_t k = p == 2 ? 32 : 64;
        const int64_t g = format_info(s.format).group_size;
        const int stored = s.fused && p == 1 ? 0 : p;
        const auto data_of = [&](Component c) -> const uint8_t* {
          const std::string name =
              test::tensor_name(spec, e, stored, s.components[static_cast<int>(c)].part);
          for (const TensorView& v : finder.views) {
            if (v.name == name) return v.data + (s.fused ? e * (v.nbytes / 3) : 0);
          }
          return nullptr;
        };
        EXPECT_EQ(m.codes, data_of(Component::codes)) << s.name << " " << e << " " << p;
        EXPECT_EQ(m.scales, data_of(Component::scales));
        EXPECT_EQ(m.bias, data_of(Component::bias));
        EXPECT_EQ(m.bias_dtype, DType::bf16);
        EXPECT_EQ(m.code_row_nbytes, k / 2);
        EXPECT_EQ(m.scale_row_nbytes, k / g);
        EXPECT_EQ(m.nibble_order, NibbleOrder::low_first);
        EXPECT_EQ(m.scale_order, ScaleOrder::linear);
        EXPECT_EQ(m.global_scale_use, s.global_scale_use);
        EXPECT_EQ(m.global_scale, s.format == Format::nvfp4 ? test::global_scale_of(e, p) : 1.0f);
        EXPECT_EQ(m.rows.row_step, s.fused && p < 2 ? 2 : 1);
        EXPECT_EQ(m.rows.first_row, s.fused && p == 1 ? 1 : 0);
      }
    }
    EXPECT_EQ(expert_source((*result)[0], 3).error().code, Code::invalid_argument);
    EXPECT_EQ(expert_source((*result)[0], -1).error().code, Code::invalid_argument);
  }
}

TEST(MoeLayers, SixtyThousandTensorsInWellUnderASecond) {
  Finder finder;
  for (int32_t layer = 0; layer < 26; ++layer) {
    finder.add(make_layer({.scheme = scheme_id("modelopt_nvfp4"),
                           .layer = layer,
                           .num_experts = 256,
                           .hidden = 16,
                           .intermediate = 16}));
  }
  ASSERT_GT(finder.tensors.size(), 59000u);
  finder.views = test::views_of(finder.tensors);
  std::vector<const TensorView*> pointers;
  for (const TensorView& v : finder.views) pointers.push_back(&v);
  const auto start = std::chrono::steady_clock::now();
  const auto result = find_moe_layers(pointers, finder.config);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->size(), 26u);
  EXPECT_LT(time.count(), 5.0);  // quadratic matching would take minutes; sanitizers are slow
  RecordProperty("milliseconds", static_cast<int>(time.count() * 1000));
}

}  // namespace
}  // namespace snug
