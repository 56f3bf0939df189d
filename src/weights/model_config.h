// SPDX-License-Identifier: Apache-2.0
// What a model's config.json says about its routed experts, in Snug's words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "moe/activation.h"
#include "moe/routing.h"

namespace snug {

/// The fields that concern the routed-expert layers. A size of 0 means that the file does not say.
struct ModelConfig {
  bool has_config = false;   // false: no config.json; every other field is at its default
  std::string model_type;    // of the language model where the file nests one
  int32_t hidden = 0;        // width the experts see: the latent width where there is one
  int32_t intermediate = 0;  // of one routed expert
  int32_t num_experts = 0;   // 0: not a mixture-of-experts model
  int32_t top_k = 0;
  int32_t num_layers = 0;
  Activation activation;
  Routing routing;
  std::string quant_method;  // quantization_config.quant_method: "mxfp4", "modelopt", ...
  std::string quant_algo;    // quant_algo there or in hf_quant_config.json: "NVFP4", ...
  std::string quant_format;  // format: "nvfp4-pack-quantized", ...
};

/// Reads the text of a config.json; a nested text_config or llm_config goes before the outer level.
/// Keys read, first found wins; null counts as absent:
///   hidden        moe_latent_size, routed_expert_hidden_size, hidden_size
///   intermediate  moe_intermediate_size, intermediate_size
///   num_experts   num_experts, num_local_experts, n_routed_experts, moe_num_experts
///   top_k         num_experts_per_tok, num_experts_per_token, moe_topk, experts_per_token, moe_k
/// Activation: swiglu_oai for gpt_oss*, minimax_m3*, "swigluoai" or a swiglu_alpha (defaults 1.702,
/// 1, 7); situ for kimi_k3*; else mlp_hidden_act, then hidden_act, by name (relu2 for nemotron_h*,
/// silu otherwise, where neither stands); silu with a swiglu_limit is silu_clamped.
/// Routing: scoring_func, norm_topk_prob, n_group, topk_group, topk_method, routed_scaling_factor
/// and their synonyms, over defaults by model_type.
/// Errors, all beginning with "config.json: " and the key: corrupt_checkpoint for malformed JSON,
/// nesting above 64, a wrong type, a value out of range, a routing that cannot be; unsupported for
/// an activation or scoring function of another name.
Result<ModelConfig> parse_model_config(std::string_view config_json);

/// Reads config.json, and quantization.quant_algo of hf_quant_config.json, of a folder. Either file
/// may be missing. Errors: those of parse_model_config and MappedFile::open; a file above 16 MiB.
Result<ModelConfig> read_model_config(const std::string& folder);

}  // namespace snug
