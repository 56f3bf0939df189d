// SPDX-License-Identifier: Apache-2.0
#include "weights/naming.h"

#include <gtest/gtest.h>

#include <bit>
#include <string>

namespace snug {
namespace {

struct Known {
  const char* name;
  int32_t layer, expert;
  Projection projection;
  const char* part;
};

TEST(Naming, UnderstandsEveryFamily) {
  const Known kKnown[] = {
      {"model.layers.7.mlp.experts.12.gate_proj.weight", 7, 12, Projection::gate, "weight"},
      {"model.language_model.layers.0.mlp.experts.511.up_proj.weight_scale_2", 0, 511,
       Projection::up, "weight_scale_2"},
      {"model.layers.3.mlp.experts.0.down_proj.weight_packed", 3, 0, Projection::down,
       "weight_packed"},
      {"model.layers.1.block_sparse_moe.experts.5.w1.weight_scale", 1, 5, Projection::gate,
       "weight_scale"},
      {"model.layers.1.block_sparse_moe.experts.5.w3.weight", 1, 5, Projection::up, "weight"},
      {"language_model.model.layers.1.block_sparse_moe.experts.5.w2.weight", 1, 5, Projection::down,
       "weight"},
      {"backbone.layers.51.mixer.experts.127.up_proj.weight", 51, 127, Projection::up, "weight"},
      {"layers.2.ffn.experts.255.w1.scale", 2, 255, Projection::gate, "scale"},
      {"model.layers.9.feed_forward.experts.0.w2.input_scale", 9, 0, Projection::down,
       "input_scale"},
      {"model.layers.4.mlp.experts.gate_up_proj_blocks", 4, -1, Projection::gate_up, "blocks"},
      {"model.layers.4.mlp.experts.gate_up_proj_bias", 4, -1, Projection::gate_up, "bias"},
      {"model.layers.4.mlp.experts.down_proj_scales", 4, -1, Projection::down, "scales"},
      {"model.layers.4.mlp.experts.gate_up_proj", 4, -1, Projection::gate_up, ""},
      {"block.35.mlp.mlp1_weight.blocks", 35, -1, Projection::gate_up, "blocks"},
      {"block.35.mlp.mlp2_weight.scales", 35, -1, Projection::down, "scales"},
      {"block.35.mlp.mlp1_bias", 35, -1, Projection::gate_up, "bias"},
      {"block.35.mlp.mlp2_bias", 35, -1, Projection::down, "bias"},
      {"model.layers.0.mlp.experts.0.gate_proj.weight.absmax", 0, 0, Projection::gate,
       "weight.absmax"},
  };
  for (const Known& k : kKnown) {
    const ExpertName n = parse_tensor_name(k.name);
    EXPECT_EQ(n.kind, NameKind::expert) << k.name;
    EXPECT_EQ(n.layer, k.layer) << k.name;
    EXPECT_EQ(n.expert, k.expert) << k.name;
    EXPECT_EQ(n.projection, k.projection) << k.name;
    EXPECT_EQ(n.part, k.part) << k.name;
  }
}

TEST(Naming, OtherTensorsAreNoExperts) {
  for (const char* name :
       {"", ".", "...", "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
        "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.gate.weight",
        "model.layers.0.mlp.gate.e_score_correction_bias",
        "model.layers.0.mlp.gate_proj.weight_packed",
        "model.layers.0.mlp.shared_experts.gate_proj.weight",
        "model.layers.0.mlp.shared_expert.down_proj.weight_scale_2",
        "layers.3.ffn.shared_experts.w1.scale", "block.0.mlp.gate.weight", "block.0.mlp.norm.scale",
        "block.x.mlp.mlp1_bias", "block.0.attn.qkv.weight", "model.layers.0.mlp.router.weight"}) {
    EXPECT_EQ(parse_tensor_name(name).kind, NameKind::other) << name;
  }
}

TEST(Naming, DraftBlocksAreNoLayers) {
  EXPECT_EQ(parse_tensor_name("mtp.layers.0.mlp.experts.0.gate_proj.weight").kind, NameKind::draft);
  EXPECT_EQ(parse_tensor_name("mtp.0.ffn.experts.3.w1.weight").kind, NameKind::draft);
}

TEST(Naming, StrangersUnderExpertsAreUnmatched) {
  for (const char* name :
       {"model.layers.0.mlp.experts.0.gate_proj", "model.layers.0.mlp.experts.x.gate_proj.weight",
        "model.layers.0.mlp.experts.01.gate_proj.weight",
        "model.layers.00.mlp.experts.0.gate_proj.weight",
        "model.layers.-1.mlp.experts.0.gate_proj.weight",
        "model.layers.0.mlp.experts.12345678.gate_proj.weight",
        "model.layers.0.mlp.experts.0.w4.weight", "model.layers.0.attn.experts.0.w1.weight",
        "model.blocks.0.mlp.experts.0.w1.weight", "experts.0.w1.weight",
        "model.layers.0.mlp.experts", "model.layers.0.mlp.experts.", "a.experts..",
        "model.layers.0.mlp.experts.gate_up_projection", "model.layers.0.mlp.experts.bias"}) {
    EXPECT_EQ(parse_tensor_name(name).kind, NameKind::unmatched) << name;
  }
}

int32_t scheme_named(std::string_view name) {
  for (int32_t i = 0; i < kNumSchemes; ++i) {
    if (name == kSchemes[i].name) return i;
  }
  return -1;
}
SchemeSet set_of(std::initializer_list<const char*> names) {
  SchemeSet set = 0;
  for (const char* name : names) set |= SchemeSet{1} << scheme_named(name);
  return set;
}

TEST(Naming, PartsPointToSchemes) {
  EXPECT_EQ(schemes_with_part(false, "weight_scale_2"), set_of({"modelopt_nvfp4"}));
  EXPECT_EQ(schemes_with_part(false, "weight_global_scale"), set_of({"compressed_tensors_nvfp4"}));
  EXPECT_EQ(schemes_with_part(false, "scale"), set_of({"deepseek_v4_mxfp4"}));
  EXPECT_EQ(schemes_with_part(true, "blocks"), set_of({"gpt_oss_mxfp4"}));
  EXPECT_EQ(schemes_with_part(false, "blocks"), 0u);
  EXPECT_EQ(schemes_with_part(false, "qweight"), 0u);
  EXPECT_EQ(schemes_with_part(false, "weight"), set_of({"modelopt_nvfp4", "deepseek_v4_mxfp4"}));
  EXPECT_EQ(schemes_with_part(false, "weight", DType::s8), set_of({"deepseek_v4_mxfp4"}));
  EXPECT_EQ(schemes_with_part(false, "weight", DType::bf16), 0u);
  EXPECT_EQ(schemes_with_part(false, "weight", std::nullopt), 0u);
  EXPECT_EQ(schemes_with_part(false, "weight_packed", DType::s32), 0u);
  EXPECT_EQ(schemes_with_part(false, "weight_scale", DType::u8),
            set_of({"compressed_tensors_mxfp4"}));
  EXPECT_EQ(schemes_with_part(false, "weight_scale", DType::e4m3),
            set_of({"modelopt_nvfp4", "compressed_tensors_nvfp4"}));
}

TEST(Naming, EachSchemeIsConsistent) {
  for (const Scheme& s : kSchemes) {
    const FormatInfo info = format_info(s.format);
    EXPECT_EQ(info.has_global_scale, s.global_scale_use != GlobalScaleUse::none) << s.name;
    EXPECT_EQ(info.has_global_scale, s.components[2].part != nullptr) << s.name;
    EXPECT_NE(s.components[0].part, nullptr);
    EXPECT_NE(s.components[1].part, nullptr);
    EXPECT_EQ(s.fused, s.gate_up != GateUp::separate) << s.name;
    EXPECT_EQ(component_of(s, s.components[1].part), Component::scales);
    EXPECT_EQ(component_of(s, "nonsense"), std::nullopt);
  }
  EXPECT_EQ(kSchemes[scheme_named("modelopt_nvfp4")].global_scale_use, GlobalScaleUse::multiply);
  EXPECT_EQ(kSchemes[scheme_named("compressed_tensors_nvfp4")].global_scale_use,
            GlobalScaleUse::divide);
  EXPECT_TRUE(is_ignored_part("input_scale"));
  EXPECT_TRUE(is_ignored_part("input_global_scale"));
  EXPECT_FALSE(is_ignored_part("weight_scale"));
}

TEST(Naming, ForeignFormatsAreNamed) {
  EXPECT_STREQ(foreign_format("qweight", "I32"), "GPTQ or AWQ");
  EXPECT_STREQ(foreign_format("weight_packed", "I32"), "int4 pack-quantized");
  EXPECT_STREQ(foreign_format("weight_shape", "I64"), "int4 pack-quantized");
  EXPECT_STREQ(foreign_format("trellis", "I16"), "EXL3");
  EXPECT_STREQ(foreign_format("weight", "BF16"), "unquantised");
  EXPECT_STREQ(foreign_format("", "BF16"), "unquantised");
  EXPECT_STREQ(foreign_format("weight", "F8_E4M3"), "fp8");
  EXPECT_STREQ(foreign_format("weight_scale_inv", "F32"), "fp8");
  EXPECT_STREQ(foreign_format("weight.absmax", "F32"), "bitsandbytes");
  EXPECT_STREQ(foreign_format("lora_a", "BF16"), "unknown");
}

TEST(Naming, RowMaps) {
  const auto same = [](RowMap a, RowMap b) {
    return a.first_row == b.first_row && a.row_step == b.row_step && a.first_k == b.first_k;
  };
  EXPECT_TRUE(same(row_map(GateUp::separate, Projection::up, 48), {0, 1, 0}));
  EXPECT_TRUE(same(row_map(GateUp::interleaved_rows, Projection::gate, 48), {0, 2, 0}));
  EXPECT_TRUE(same(row_map(GateUp::interleaved_rows, Projection::up, 48), {1, 2, 0}));
  EXPECT_TRUE(same(row_map(GateUp::gate_then_up, Projection::gate, 48), {0, 1, 0}));
  EXPECT_TRUE(same(row_map(GateUp::gate_then_up, Projection::up, 48), {48, 1, 0}));
}

}  // namespace
}  // namespace snug
