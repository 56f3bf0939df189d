// SPDX-License-Identifier: Apache-2.0
#include "weights/model_config.h"

#include <gtest/gtest.h>

#include <string>

#include "support/safetensors_writer.h"

namespace snug {
namespace {

ModelConfig parsed(const std::string& text) {
  const auto result = parse_model_config(text);
  EXPECT_TRUE(result.has_value()) << result.error().message << "\n" << text;
  return result.has_value() ? *result : ModelConfig{};
}

Status refused(const std::string& text) {
  const auto result = parse_model_config(text);
  EXPECT_FALSE(result.has_value()) << text;
  return result.error();
}

/// A model of this type with the fewest fields, plus `more`.
std::string model(const std::string& type, const std::string& more = "") {
  return R"({"model_type": ")" + type + R"(", "num_experts": 8, "num_experts_per_tok": 2)" +
         (more.empty() ? "" : ", " + more) + "}";
}

TEST(ModelConfig, Qwen3Moe) {
  const ModelConfig c = parsed(R"({"model_type": "qwen3_moe", "hidden_size": 2048,
      "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
      "num_experts_per_tok": 8, "num_hidden_layers": 48, "hidden_act": "silu",
      "norm_topk_prob": true, "quantization_config": {"quant_method": "compressed-tensors",
      "format": "nvfp4-pack-quantized"}})");
  EXPECT_TRUE(c.has_config);
  EXPECT_EQ(c.model_type, "qwen3_moe");
  EXPECT_EQ(c.hidden, 2048);
  EXPECT_EQ(c.intermediate, 768);
  EXPECT_EQ(c.num_experts, 128);
  EXPECT_EQ(c.top_k, 8);
  EXPECT_EQ(c.num_layers, 48);
  EXPECT_EQ(c.activation.kind, ActivationKind::silu);
  EXPECT_EQ(c.routing.score, Score::softmax);
  EXPECT_TRUE(c.routing.renormalize);
  EXPECT_EQ(c.quant_method, "compressed-tensors");
  EXPECT_EQ(c.quant_format, "nvfp4-pack-quantized");
}

TEST(ModelConfig, GptOss) {
  const ModelConfig c = parsed(R"({"model_type": "gpt_oss", "hidden_size": 2880,
      "intermediate_size": 2880, "num_local_experts": 32, "experts_per_token": 4,
      "num_experts_per_tok": 4, "hidden_act": "silu", "swiglu_limit": 7.0,
      "quantization_config": {"quant_method": "mxfp4"}})");
  EXPECT_EQ(c.intermediate, 2880);
  EXPECT_EQ(c.num_experts, 32);
  EXPECT_EQ(c.activation.kind, ActivationKind::swiglu_oai);
  EXPECT_FLOAT_EQ(c.activation.alpha, 1.702f);
  EXPECT_FLOAT_EQ(c.activation.beta, 1);
  EXPECT_FLOAT_EQ(c.activation.limit, 7);
  EXPECT_EQ(c.quant_method, "mxfp4");
  EXPECT_FLOAT_EQ(parsed(model("gpt_oss", R"("swiglu_limit": 5)")).activation.limit, 5);
}

TEST(ModelConfig, DeepSeekGroupsAndScores) {
  const char* groups =
      R"("n_group": 4, "topk_group": 2, "topk_method": "noaux_tc", "routed_scaling_factor": 2.5)";
  const ModelConfig v3 = parsed(model("deepseek_v3", groups));
  EXPECT_EQ(v3.routing.score, Score::sigmoid);
  EXPECT_TRUE(v3.routing.renormalize);
  EXPECT_EQ(v3.routing.num_groups, 4);
  EXPECT_EQ(v3.routing.topk_groups, 2);
  EXPECT_EQ(v3.routing.group_rank, GroupRank::top2_sum);
  EXPECT_FLOAT_EQ(v3.routing.scale, 2.5f);
  const ModelConfig v2 = parsed(model(
      "deepseek_v2", R"("n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy")"));
  EXPECT_EQ(v2.routing.score, Score::softmax);
  EXPECT_FALSE(v2.routing.renormalize);
  EXPECT_EQ(v2.routing.group_rank, GroupRank::max);
  EXPECT_EQ(
      parsed(model("deepseek_v2", R"("n_group": 4, "topk_method": "greedy")")).routing.num_groups,
      1);
  const ModelConfig v4 =
      parsed(model("deepseek_v4", R"("swiglu_limit": 10.0, "scoring_func": "sqrtsoftplus")"));
  EXPECT_EQ(v4.routing.score, Score::sqrt_softplus);
  EXPECT_EQ(v4.activation.kind, ActivationKind::silu_clamped);
  EXPECT_FLOAT_EQ(v4.activation.limit, 10);
  EXPECT_NE(std::string(refused(model("deepseek_v4")).message).find("swiglu_limit"),
            std::string::npos);
}

TEST(ModelConfig, LatentWidths) {
  const ModelConfig nemotron = parsed(R"({"model_type": "nemotron_h", "hidden_size": 4096,
      "moe_latent_size": 1024, "moe_intermediate_size": 2688, "n_routed_experts": 512,
      "num_experts_per_tok": 22, "mlp_hidden_act": "relu2", "n_group": 1, "topk_group": 1})");
  EXPECT_EQ(nemotron.hidden, 1024);
  EXPECT_EQ(nemotron.activation.kind, ActivationKind::relu2);
  EXPECT_EQ(nemotron.routing.score, Score::sigmoid);
  const ModelConfig kimi = parsed(R"({"model_type": "kimi_k3", "text_config": {
      "model_type": "kimi_k3_text", "hidden_size": 7168, "routed_expert_hidden_size": 3584,
      "moe_intermediate_size": 3072, "num_experts": 896, "num_experts_per_token": 16,
      "moe_renormalize": true, "hidden_act": "silu"}, "hidden_size": 5})");
  EXPECT_EQ(kimi.model_type, "kimi_k3_text");
  EXPECT_EQ(kimi.hidden, 3584);
  EXPECT_EQ(kimi.top_k, 16);
  EXPECT_EQ(kimi.activation.kind, ActivationKind::situ);
  EXPECT_EQ(kimi.routing.score, Score::sigmoid);
  EXPECT_EQ(refused(model("kimi_k3", R"("situ_beta": 3)")).code, Code::unsupported);
}

TEST(ModelConfig, NestedConfigs) {
  for (const char* key : {"text_config", "llm_config"}) {
    const ModelConfig c = parsed(R"({"model_type": "some_vl", "quantization_config":
        {"quant_algo": "NVFP4"}, ")" +
                                 std::string(key) + R"(": {"model_type": "qwen3_5_moe_text",
        "hidden_size": 64, "num_experts": 4, "num_experts_per_tok": 2}})");
    EXPECT_EQ(c.model_type, "qwen3_5_moe_text");
    EXPECT_EQ(c.hidden, 64);
    EXPECT_EQ(c.num_experts, 4);
    EXPECT_EQ(c.quant_algo, "NVFP4");
  }
}

TEST(ModelConfig, ActivationNames) {
  const std::pair<const char*, ActivationKind> kNames[] = {
      {"silu", ActivationKind::silu},   {"swish", ActivationKind::silu},
      {"gelu", ActivationKind::gelu},   {"gelu_pytorch_tanh", ActivationKind::gelu_tanh},
      {"relu2", ActivationKind::relu2}, {"swigluoai", ActivationKind::swiglu_oai},
  };
  for (const auto& [name, kind] : kNames) {
    EXPECT_EQ(parsed(model("x", R"("hidden_act": ")" + std::string(name) + "\"")).activation.kind,
              kind);
  }
  const Status unknown = refused(model("x", R"("hidden_act": "mish")"));
  EXPECT_EQ(unknown.code, Code::unsupported);
  EXPECT_NE(std::string(unknown.message).find("hidden_act: have 'mish'"), std::string::npos);
  EXPECT_EQ(parsed(model("minimax_m3", R"("hidden_act": "silu")")).activation.kind,
            ActivationKind::swiglu_oai);
  EXPECT_EQ(parsed(model("x", R"("swiglu_limit": 3.5)")).activation.kind,
            ActivationKind::silu_clamped);
  EXPECT_EQ(parsed(model("x", R"("swiglu_limit": null)")).activation.kind, ActivationKind::silu);
  EXPECT_FLOAT_EQ(parsed(model("x", R"("swiglu_alpha": 1.5)")).activation.alpha, 1.5f);
}

TEST(ModelConfig, PerLayerListsMustAgree) {
  EXPECT_EQ(parsed(R"({"num_experts": 8, "moe_topk": [2, 2, 2]})").top_k, 2);
  EXPECT_EQ(refused(R"({"num_experts": 8, "moe_topk": [2, 3]})").code, Code::unsupported);
  EXPECT_EQ(parsed(R"({"num_experts": 8, "moe_topk": []})").top_k, 0);
}

TEST(ModelConfig, DenseModelsAreFine) {
  const ModelConfig c = parsed(R"({"model_type": "llama", "hidden_size": 64,
      "hidden_act": "mish", "num_hidden_layers": 2})");
  EXPECT_EQ(c.num_experts, 0);
  EXPECT_EQ(c.num_layers, 2);
  parsed("{}");
}

struct Bad {
  const char* text;
  const char* named;
};

TEST(ModelConfig, RefusesTheCorpusByName) {
  const Bad kCorpus[] = {
      {"", "malformed"},
      {"{", "malformed"},
      {"[]", "is array"},
      {"3", "is number"},
      {"{\"a\": \"\xFF\"}", "malformed"},
      {R"({"hidden_size": -1})", "hidden_size: have -1"},
      {R"({"hidden_size": 0})", "hidden_size: have 0"},
      {R"({"hidden_size": 2.5})", "hidden_size: is of type number"},
      {R"({"hidden_size": "64"})", "hidden_size: is of type string"},
      {R"({"hidden_size": 18446744073709551615})", "hidden_size: have 9223372036854775807"},
      {R"({"hidden_size": 1000000})", "hidden_size: have 1000000"},
      {R"({"hidden_size": {"a": 1}})", "hidden_size: is of type object"},
      {R"({"num_experts": 5000})", "num_experts: have 5000"},
      {R"({"model_type": 3})", "model_type: is of type number"},
      {R"({"num_experts": 8, "num_experts_per_tok": 0})", "num_experts_per_tok: have 0"},
      {R"({"num_experts": 8, "num_experts_per_tok": 33})", "num_experts_per_tok: have 33"},
      {R"({"num_experts": 8, "num_experts_per_tok": 9})", "top_k: have 9"},
      {R"({"num_experts": 8, "num_experts_per_tok": 2, "n_group": 3})", "num_groups: have 3"},
      {R"({"num_experts": 8, "norm_topk_prob": 1})", "norm_topk_prob: is of type number"},
      {R"({"num_experts": 8, "scoring_func": "tanh"})", "scoring_func: have 'tanh'"},
      {R"({"num_experts": 8, "routed_scaling_factor": 1e39})", "routed_scaling_factor: have 1e+39"},
      {R"({"num_experts": 8, "routed_scaling_factor": 1e999})", "malformed"},
      {R"({"num_experts": 8, "swiglu_limit": -1})", "activation.limit: have -1"},
      {R"({"num_experts": 8, "hidden_act": 7})", "hidden_act: is of type number"},
      {R"({"quantization_config": {"quant_method": 4}})", "quant_method: is of type number"},
  };
  for (const Bad& bad : kCorpus) {
    const Status status = refused(bad.text);
    const std::string message = status.message;
    EXPECT_EQ(message.rfind("config.json: ", 0), 0u) << message;
    EXPECT_NE(message.find(bad.named), std::string::npos) << bad.text << "\n gives: " << message;
  }
}

TEST(ModelConfig, DeepNestingIsRefused) {
  EXPECT_NE(std::string(refused("{\"a\": " + std::string(1000000, '[')).message).find("nested"),
            std::string::npos);
  parsed(
      R"({"a": "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"[["})");
}

TEST(ModelConfig, EveryByteFlippedIsOkOrNamed) {
  const std::string good = model("deepseek_v3", R"("n_group": 4, "topk_group": 2,
      "hidden_size": 64, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
      "quantization_config": {"quant_algo": "NVFP4"})");
  parsed(good);
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = good;
      flipped[i] = static_cast<char>(good[i] ^ (1 << bit));
      const auto result = parse_model_config(flipped);
      EXPECT_TRUE(result.has_value() || result.error().message[0] != '\0');
    }
    EXPECT_FALSE(parse_model_config(good.substr(0, i)).has_value());
  }
}

TEST(ModelConfig, ReadsAFolder) {
  test::TempDir dir;
  Result<ModelConfig> none = read_model_config(dir.path());
  ASSERT_TRUE(none.has_value());
  EXPECT_FALSE(none->has_config);
  dir.write("hf_quant_config.json", R"({"quantization": {"quant_algo": "NVFP4"}})");
  EXPECT_EQ(read_model_config(dir.path())->quant_algo, "NVFP4");
  dir.write("config.json", model("qwen3_moe"));
  const Result<ModelConfig> both = read_model_config(dir.path());
  EXPECT_TRUE(both->has_config);
  EXPECT_EQ(both->quant_algo, "NVFP4");
  EXPECT_EQ(both->top_k, 2);
  dir.write("hf_quant_config.json", R"({"quantization": {"quant_algo": 4}})");
  EXPECT_NE(std::string(read_model_config(dir.path()).error().message).find("quant_algo"),
            std::string::npos);
  dir.write("config.json", "");
  EXPECT_EQ(read_model_config(dir.path()).error().code, Code::corrupt_checkpoint);
}

}  // namespace
}  // namespace snug
