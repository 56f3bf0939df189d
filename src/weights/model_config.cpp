// SPDX-License-Identifier: Apache-2.0
#include "weights/model_config.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "moe/shape.h"
#include "weights/mapped_file.h"

namespace snug {

namespace {

using nlohmann::json;
using Keys = std::initializer_list<const char*>;

constexpr int kMaxNesting = 64;
constexpr uint64_t kMaxJsonNbytes = uint64_t{1} << 24;
constexpr int32_t kMaxLayers = 65536;

/// Deepest open bracket outside strings; right for JSON, harmless for anything else.
int nesting_of(std::string_view text) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

/// The top-level object of a JSON text.
Result<json> parse_object(const char* file, std::string_view text) {
  if (const int depth = nesting_of(text); depth > kMaxNesting) {
    return make_error(Code::corrupt_checkpoint, "%s: nested %d deep, at most %d are read", file,
                      depth, kMaxNesting);
  }
  json value = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded() || text.find('\0') != std::string_view::npos) {
    return make_error(Code::corrupt_checkpoint, "%s: malformed JSON", file);
  }
  if (!value.is_object()) {
    return make_error(Code::corrupt_checkpoint, "%s: is %s, need an object", file,
                      value.type_name());
  }
  return value;
}

/// A string value with its control characters replaced: it will stand in messages and tables.
std::string printable(const json& text) {
  std::string result = text.get_ref<const std::string&>();
  for (char& c : result) c = static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  return result;
}

/// A member of an object, or null when absent, JSON's null included.
const json* member(const json* object, const char* key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto it = object->find(key);
  return it == object->end() || it->is_null() ? nullptr : &*it;
}

/// Reads typed values from the nested and the outer level; keeps the first error.
class Fields {
 public:
  Fields(const json* inner, const json* outer) : levels_{inner, outer} {}

  const Status& status() const { return status_; }

  const json* find(Keys keys, const char** found = nullptr) const {
    for (const json* level : levels_) {
      for (const char* key : keys) {
        const json* value = member(level, key);
        if (value != nullptr && found != nullptr) *found = key;
        if (value != nullptr) return value;
      }
    }
    return nullptr;
  }

  int32_t integer(Keys keys, int32_t low, int32_t high, int32_t absent) {
    const char* key = "";
    const json* value = find(keys, &key);
    if (value == nullptr) return absent;
    if (value->is_array()) value = only_value(*value, key);  // one number per layer
    if (value == nullptr) return absent;
    if (!value->is_number_integer()) return wrong_type(key, *value, "an integer"), absent;
    const bool huge = value->is_number_unsigned() &&
                      value->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
    const int64_t have = huge ? std::numeric_limits<int64_t>::max() : value->get<int64_t>();
    if (have < low || have > high) {
      keep(make_error(Code::corrupt_checkpoint, "config.json: %s: have %" PRId64 ", need %d..%d",
                      key, have, low, high));
      return absent;
    }
    return static_cast<int32_t>(have);
  }

  float real(Keys keys, float absent) {
    const char* key = "";
    const json* value = find(keys, &key);
    if (value == nullptr) return absent;
    if (!value->is_number()) return wrong_type(key, *value, "a number"), absent;
    const double have = value->get<double>();
    if (!(std::fabs(have) <= double{std::numeric_limits<float>::max()})) {
      keep(make_error(Code::corrupt_checkpoint, "config.json: %s: have %g, need a finite f32", key,
                      have));
      return absent;
    }
    return static_cast<float>(have);
  }

  bool boolean(Keys keys, bool absent) {
    const char* key = "";
    const json* value = find(keys, &key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) return wrong_type(key, *value, "a boolean"), absent;
    return value->get<bool>();
  }

  std::string text(Keys keys, const char* absent = "") {
    const char* key = "";
    const json* value = find(keys, &key);
    if (value == nullptr) return absent;
    if (!value->is_string()) return wrong_type(key, *value, "a string"), absent;
    return printable(*value);
  }

  void keep(const Status& error) {
    if (status_.ok()) status_ = error;
  }

 private:
  void wrong_type(const char* key, const json& value, const char* need) {
    keep(make_error(Code::corrupt_checkpoint, "config.json: %s: is of type %s, need %s", key,
                    value.type_name(), need));
  }

  const json* only_value(const json& list, const char* key) {
    for (const json& value : list) {
      if (value == list.front()) continue;
      keep(make_error(Code::unsupported, "config.json: %s: differs from layer to layer", key));
      return nullptr;
    }
    return list.empty() ? nullptr : &list.front();
  }

  const json* levels_[2];
  Status status_;
};

bool starts_with(const std::string& text, std::string_view prefix) {
  return std::string_view(text).substr(0, prefix.size()) == prefix;
}

/// What a model does where its config.json is silent. First matching prefix wins.
/// Source: the models' published modelling code.
struct RoutingDefault {
  const char* model_type;  // prefix
  Score score;
  bool renormalize;
};
constexpr RoutingDefault kRoutingDefaults[] = {
    {"deepseek_v4", Score::sqrt_softplus, true},
    {"deepseek_v3", Score::sigmoid, true},
    {"deepseek_v2", Score::softmax, false},
    {"kimi", Score::sigmoid, true},
    {"glm", Score::sigmoid, true},
    {"minimax_m", Score::sigmoid, true},
    {"nemotron_h", Score::sigmoid, true},
    {"dots1", Score::sigmoid, true},
    {"qwen2_moe", Score::softmax, false},
    {"olmoe", Score::softmax, false},
    {"", Score::softmax, true},  // qwen3_moe, mixtral, gpt_oss
};

Routing read_routing(Fields& fields, const std::string& model_type) {
  const RoutingDefault* preset = kRoutingDefaults;
  while (!starts_with(model_type, preset->model_type)) ++preset;
  Routing routing;
  routing.score = preset->score;
  const std::string score =
      fields.text({"scoring_func", "moe_router_activation_func", "score_function"});
  if (score == "softmax") {
    routing.score = Score::softmax;
  } else if (score == "sigmoid") {
    routing.score = Score::sigmoid;
  } else if (score == "sqrtsoftplus" || score == "sqrt_softplus") {
    routing.score = Score::sqrt_softplus;
  } else if (!score.empty()) {
    fields.keep(make_error(Code::unsupported,
                           "config.json: scoring_func: have '%.60s', need softmax, sigmoid or "
                           "sqrtsoftplus",
                           score.c_str()));
  }
  routing.renormalize = fields.boolean({"norm_topk_prob", "moe_renormalize"}, preset->renormalize);
  routing.scale = fields.real({"routed_scaling_factor"}, 1);
  const std::string method = fields.text({"topk_method"});
  if (method != "greedy") {  // which ignores the groups even where the file lists them
    routing.num_groups = fields.integer({"n_group", "num_expert_group"}, 1, kMaxGroups, 1);
    routing.topk_groups = fields.integer({"topk_group"}, 1, kMaxGroups, routing.num_groups);
  }
  const bool by_max =
      method.empty() ? starts_with(model_type, "deepseek_v2") : method == "group_limited_greedy";
  routing.group_rank = by_max ? GroupRank::max : GroupRank::top2_sum;
  return routing;
}

struct ActivationName {
  const char* name;
  ActivationKind kind;
};
constexpr ActivationName kActivationNames[] = {
    {"silu", ActivationKind::silu},
    {"swish", ActivationKind::silu},
    {"gelu", ActivationKind::gelu},
    {"gelu_pytorch_tanh", ActivationKind::gelu_tanh},
    {"gelu_new", ActivationKind::gelu_tanh},
    {"gelu_tanh", ActivationKind::gelu_tanh},
    {"relu2", ActivationKind::relu2},
    {"relu_squared", ActivationKind::relu2},
    {"swigluoai", ActivationKind::swiglu_oai},
    {"swiglu_oai", ActivationKind::swiglu_oai},
    {"situ", ActivationKind::situ},
};

ActivationKind read_activation_kind(Fields& fields, const std::string& model_type) {
  // These model types keep an older name in hidden_act.
  if (starts_with(model_type, "gpt_oss") || starts_with(model_type, "minimax_m3") ||
      fields.find({"swiglu_alpha"}) != nullptr) {
    return ActivationKind::swiglu_oai;
  }
  if (starts_with(model_type, "kimi_k3")) return ActivationKind::situ;
  const char* silent = starts_with(model_type, "nemotron_h") ? "relu2" : "silu";
  const char* key = "hidden_act";
  fields.find({"mlp_hidden_act", "hidden_act", "hidden_activation"}, &key);
  const std::string name = fields.text({key}, silent);
  for (const ActivationName& candidate : kActivationNames) {
    if (name == candidate.name) return candidate.kind;
  }
  fields.keep(make_error(Code::unsupported,
                         "config.json: %s: have '%.60s', no such activation in "
                         "this build",
                         key, name.c_str()));
  return ActivationKind::silu;
}

Activation read_activation(Fields& fields, const std::string& model_type) {
  Activation activation;
  activation.kind = read_activation_kind(fields, model_type);
  if (activation.kind == ActivationKind::swiglu_oai) {
    const Activation preset = swiglu_oai_default();
    activation.alpha = fields.real({"swiglu_alpha"}, preset.alpha);
    activation.beta = fields.real({"swiglu_beta"}, preset.beta);
    activation.limit = fields.real({"swiglu_limit"}, preset.limit);
  } else if (activation.kind == ActivationKind::silu) {
    activation.limit = fields.real({"swiglu_limit"}, 0);
    if (activation.limit != 0) activation.kind = ActivationKind::silu_clamped;
    if (activation.limit == 0 && starts_with(model_type, "deepseek_v4")) {
      fields.keep(make_error(Code::corrupt_checkpoint,
                             "config.json: swiglu_limit: is missing, %.60s needs it",
                             model_type.c_str()));
    }
  } else if (activation.kind == ActivationKind::situ) {
    const float beta = fields.real({"situ_beta", "activation_situ_beta"}, 4);
    const float linear = fields.real({"situ_linear_beta", "activation_situ_linear_beta"}, 25);
    if (beta != 4 || linear != 25) {
      fields.keep(make_error(Code::unsupported,
                             "config.json: situ_beta, situ_linear_beta: have %g, %g; need 4, 25",
                             static_cast<double>(beta), static_cast<double>(linear)));
    }
  }
  return activation;
}

/// The checks of moe/ speak of arguments; here the file is at fault.
Status blame_config(const Status& status) {
  if (status.ok()) return status;
  return make_error(Code::corrupt_checkpoint, "config.json: %.220s", status.message);
}

Status read_quantization(const json& root, const json* nested, ModelConfig* config) {
  const Fields holders(nested, &root);
  Fields fields(holders.find({"quantization_config", "compression_config"}), nullptr);
  config->quant_method = fields.text({"quant_method"});
  config->quant_algo = fields.text({"quant_algo"});
  config->quant_format = fields.text({"format"});
  return fields.status();
}

/// A JSON file of the folder; no value when it does not exist.
Result<std::optional<MappedFile>> open_json(const std::string& folder, const char* name) {
  Result<MappedFile> file = MappedFile::open(folder + "/" + name);
  if (!file) {
    const bool missing = file.error().code == Code::io && file.error().native_code == ENOENT;
    if (missing) return std::optional<MappedFile>();
    return file.error();
  }
  if (file->nbytes() > kMaxJsonNbytes) {
    return make_error(Code::corrupt_checkpoint,
                      "%s: has %" PRIu64 " bytes, at most %" PRIu64 " are read", name,
                      file->nbytes(), kMaxJsonNbytes);
  }
  return std::optional<MappedFile>(std::move(file).value());
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view config_json) {
  SNUG_ASSIGN_OR_RETURN(const json root, parse_object("config.json", config_json));
  const json* nested = member(&root, "text_config");
  if (nested == nullptr) nested = member(&root, "llm_config");
  Fields fields(nested, &root);
  ModelConfig config;
  config.has_config = true;
  config.model_type = fields.text({"model_type"});
  config.hidden = fields.integer({"moe_latent_size", "routed_expert_hidden_size", "hidden_size"}, 1,
                                 kMaxWidth, 0);
  config.num_experts =
      fields.integer({"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}, 0,
                     kMaxExperts, 0);
  config.num_layers = fields.integer({"num_hidden_layers"}, 1, kMaxLayers, 0);
  SNUG_RETURN_IF_ERROR(read_quantization(root, nested, &config));
  if (config.num_experts == 0) {  // a dense model: its other fields are not about experts
    SNUG_RETURN_IF_ERROR(fields.status());
    return config;
  }
  config.intermediate =
      fields.integer({"moe_intermediate_size", "intermediate_size"}, 1, kMaxWidth, 0);
  config.top_k = fields.integer(
      {"num_experts_per_tok", "num_experts_per_token", "moe_topk", "experts_per_token", "moe_k"}, 1,
      kMaxTopK, 0);
  config.activation = read_activation(fields, config.model_type);
  config.routing = read_routing(fields, config.model_type);
  SNUG_RETURN_IF_ERROR(fields.status());
  SNUG_RETURN_IF_ERROR(blame_config(check_activation(config.activation)));
  if (config.top_k > 0) {
    SNUG_RETURN_IF_ERROR(
        blame_config(check_routing(config.routing, config.num_experts, config.top_k)));
  }
  return config;
}

Result<ModelConfig> read_model_config(const std::string& folder) {
  ModelConfig config;
  SNUG_ASSIGN_OR_RETURN(const std::optional<MappedFile> file, open_json(folder, "config.json"));
  if (file.has_value()) {
    SNUG_ASSIGN_OR_RETURN(config, parse_model_config(file->text()));
  }
  constexpr const char* kQuantFile = "hf_quant_config.json";
  SNUG_ASSIGN_OR_RETURN(const std::optional<MappedFile> quant, open_json(folder, kQuantFile));
  if (quant.has_value() && config.quant_algo.empty()) {
    SNUG_ASSIGN_OR_RETURN(const json root, parse_object(kQuantFile, quant->text()));
    const json* algo = member(member(&root, "quantization"), "quant_algo");
    if (algo != nullptr && !algo->is_string()) {
      return make_error(Code::corrupt_checkpoint,
                        "%s: quantization.quant_algo: is of type %s, need a string", kQuantFile,
                        algo->type_name());
    }
    if (algo != nullptr) config.quant_algo = printable(*algo);
  }
  return config;
}

}  // namespace snug
