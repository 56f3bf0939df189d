// SPDX-License-Identifier: Apache-2.0
// snug inspect: what a checkpoint holds, and by which conventions it is read.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "text.h"
#include "words.h"

namespace snug::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  bool json = false;
};

Json routing_json(const snug_routing& routing) {
  constexpr const char* kScores[] = {"softmax", "sigmoid", "sqrt_softplus"};
  return {{"score", kScores[routing.score]},
          {"renormalize", routing.renormalize != 0},
          {"num_groups", routing.num_groups},
          {"topk_groups", routing.topk_groups},
          {"scale", routing.scale}};
}

Json layer_json(const snug_layer_info& layer) {
  return {{"layer", layer.layer},
          {"format", word_of(format_words(), layer.format)},
          {"scheme", layer.scheme},
          {"num_experts", layer.num_experts},
          {"hidden", layer.hidden},
          {"intermediate", layer.intermediate},
          {"gated", layer.gated != 0},
          {"has_bias", layer.has_bias != 0},
          {"source_nbytes", layer.source_nbytes}};
}

Json to_json(const Options& options, const Checkpoint& checkpoint) {
  const snug_model_info model = checkpoint.model();
  Json layers = Json::array();
  for (int32_t i = 0; i < checkpoint.num_layers(); ++i) {
    layers.push_back(layer_json(*checkpoint.layer(i)));
  }
  return {{"model", options.model},
          {"model_type", model.model_type},
          {"quantization", model.quantization},
          {"num_shards", model.num_shards},
          {"num_tensors", model.num_tensors},
          {"hidden", model.hidden},
          {"intermediate", model.intermediate},
          {"num_experts", model.num_experts},
          {"top_k", model.top_k},
          {"num_layers", model.num_layers},
          {"activation", word_of(activation_words(), model.activation.kind)},
          {"routing", routing_json(model.routing)},
          {"layers", std::move(layers)}};
}

void print_text(const Options& options, const Checkpoint& checkpoint) {
  const snug_model_info model = checkpoint.model();
  fmt::print("model       {}\n", options.model);
  if (model.has_config) {
    fmt::print("config      {}: {} layers, {} experts, top-{}, hidden {}, intermediate {}, {}\n",
               model.model_type, model.num_layers, model.num_experts, model.top_k, model.hidden,
               model.intermediate, word_of(activation_words(), model.activation.kind));
    const Json routing = routing_json(model.routing);
    fmt::print("router      {}, {}, scale {}\n", routing["score"].get<std::string>(),
               model.routing.renormalize ? "renormalised" : "not renormalised",
               model.routing.scale);
  } else {
    fmt::print("config      no config.json\n");
  }
  fmt::print("files       {} shards, {} tensors\n", model.num_shards, model.num_tensors);
  fmt::print("experts     {} layers x formats; every expert, projection and part is there once\n\n",
             checkpoint.num_layers());
  Table table(
      {"layer", "format", "scheme", "experts", "hidden", "intermediate", "gated", "bias", "bytes"});
  for (int32_t i = 0; i < checkpoint.num_layers(); ++i) {
    const snug_layer_info l = *checkpoint.layer(i);
    table.add({std::to_string(l.layer), word_of(format_words(), l.format), l.scheme,
               std::to_string(l.num_experts), std::to_string(l.hidden),
               std::to_string(l.intermediate), l.gated ? "yes" : "no", l.has_bias ? "yes" : "no",
               grouped(l.source_nbytes)});
  }
  fmt::print("{}", table.text());
}

int inspect(const Options& options) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(options.model.c_str());
  if (!checkpoint) return report(checkpoint.error());
  if (options.json) {
    fmt::print("{}\n", to_json(options, *checkpoint).dump(1));
  } else {
    print_text(options, *checkpoint);
  }
  return kExitOk;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("inspect", "Show what a checkpoint holds and check it");
  command->add_option("model,--model", options->model, "Model folder or .safetensors file")
      ->required();
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &exit_code] { exit_code = inspect(*options); });
}

}  // namespace snug::cli
