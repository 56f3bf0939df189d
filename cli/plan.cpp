// SPDX-License-Identifier: Apache-2.0
// snug plan: what a layer, or all expert layers of a model, cost on a device that need not be here.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "layer_runner.h"
#include "text.h"
#include "words.h"

namespace snug::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  snug_caps caps = make_caps();
  int32_t activation = SNUG_SILU;
  float limit = 0;
  int32_t format = -1;  // -1: every format that the model has
  std::string device = "cpu";
  int32_t tp = 1;
  int32_t ep = 1;
  bool has_bias = false, batch_invariant = false, router_weight_on_input = false;
  bool compare = false, explain = false, json = false;
};

/// Layers of one shape and format, planned once.
struct Group {
  snug_layer_info shape;
  std::vector<int32_t> layers;
};

/// This rank's caps: a TP share of intermediate, the largest EP share of experts. None when the
/// ranks do not divide the intermediate size.
std::optional<snug_caps> rank_caps(const Options& options, snug_caps caps) {
  if (caps.intermediate % options.tp != 0) return {};
  caps.intermediate /= options.tp;
  caps.num_local_experts = (caps.num_experts + options.ep - 1) / options.ep;
  return caps;
}

struct Priced {
  Plan plan;
  uint64_t reference_nbytes = 0;
  uint64_t reference_unbounded_nbytes = 0;
  bool compared = false;  // the reference geometry has no plan for every layer
};

Result<Priced> price(const snug_caps& caps, const snug_device& device) {
  Result<Plan> plan = Plan::make(caps, device);
  if (!plan) return plan.error();
  Priced priced{std::move(plan).value()};
  const Result<uint64_t> bounded = reference_nbytes(caps, device, false);
  const Result<uint64_t> unbounded = reference_nbytes(caps, device, true);
  if (bounded && unbounded) {
    priced.compared = true;
    priced.reference_nbytes = *bounded;
    priced.reference_unbounded_nbytes = *unbounded;
  }
  return priced;
}

Json plan_json(const Priced& priced) {
  Json json = Json::parse(*priced.plan.explain(true));
  if (priced.compared) {
    json["reference_nbytes"] = priced.reference_nbytes;
    json["reference_unbounded_nbytes"] = priced.reference_unbounded_nbytes;
  } else {
    json["reference_nbytes"] = nullptr;
    json["reference_unbounded_nbytes"] = nullptr;
  }
  return json;
}

void print_comparison(const Priced& priced) {
  if (!priced.compared) {
    fmt::print("the reference geometry cannot price this layer\n");
    return;
  }
  const auto ours = static_cast<double>(priced.plan.required_nbytes());
  Table table({"scratch", "bytes", "", "times ours"});
  table.add({"snug", grouped(priced.plan.required_nbytes()),
             bytes_text(priced.plan.required_nbytes()), "1.0"});
  table.add({"reference geometry, reachable tiles", grouped(priced.reference_nbytes),
             bytes_text(priced.reference_nbytes),
             fmt::format("{:.1f}", static_cast<double>(priced.reference_nbytes) / ours)});
  table.add({"reference geometry, all tiles", grouped(priced.reference_unbounded_nbytes),
             bytes_text(priced.reference_unbounded_nbytes),
             fmt::format("{:.1f}", static_cast<double>(priced.reference_unbounded_nbytes) / ours)});
  fmt::print("{}", table.text());
}

int plan_layer(const Options& options, const snug_device& device) {
  snug_caps caps = options.caps;
  caps.format = options.format < 0 ? SNUG_NVFP4 : options.format;
  const std::optional<snug_caps> local = rank_caps(options, caps);
  if (!local) {
    return report(fmt::format("intermediate: have {}, not a multiple of {} ranks (--tp)",
                              caps.intermediate, options.tp));
  }
  const Result<Priced> priced = price(*local, device);
  if (!priced) {
    const int code = report(priced.error());
    const Result<std::string> reasons = refusals(*local, device);
    if (reasons) fmt::print(stderr, "{}", *reasons);
    return code;
  }
  if (options.json) {
    fmt::print("{}\n", plan_json(*priced).dump(1));
    return kExitOk;
  }
  if (options.explain) {
    fmt::print("{}", *priced->plan.explain());
  } else {
    fmt::print("arena    {:>16} bytes  {}\n", grouped(priced->plan.required_nbytes()),
               bytes_text(priced->plan.required_nbytes()));
    fmt::print("weights  {:>16} bytes  {}\n", grouped(priced->plan.weights_nbytes()),
               bytes_text(priced->plan.weights_nbytes()));
  }
  if (options.compare) {
    fmt::print("\n");
    print_comparison(*priced);
  }
  return kExitOk;
}

std::vector<Group> group_layers(const Options& options, const Checkpoint& checkpoint) {
  std::vector<Group> groups;
  for (int32_t i = 0; i < checkpoint.num_layers(); ++i) {
    const snug_layer_info l = *checkpoint.layer(i);
    if (options.format >= 0 && l.format != options.format) continue;
    const auto same = [&](const Group& g) {
      return g.shape.format == l.format && g.shape.hidden == l.hidden &&
             g.shape.intermediate == l.intermediate && g.shape.num_experts == l.num_experts &&
             g.shape.gated == l.gated && g.shape.has_bias == l.has_bias;
    };
    const auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found != groups.end()) {
      found->layers.push_back(l.layer);
    } else {
      groups.push_back({l, {l.layer}});
    }
  }
  return groups;
}

std::string layers_text(const std::vector<int32_t>& layers) {
  return layers.size() == 1 ? std::to_string(layers[0])
                            : fmt::format("{}..{}", layers.front(), layers.back());
}

/// What one group of layers costs a rank, or why it cannot be planned.
struct GroupPrice {
  Group group;
  std::optional<Priced> priced;
  std::string refusal;
};

GroupPrice price_group(const Options& options, const snug_model_info& model,
                       const snug_device& device, const Group& group) {
  GroupPrice result{group, {}, {}};
  const std::optional<snug_caps> caps =
      rank_caps(options, layer_caps(options.caps, model, group.shape));
  if (!caps) {
    result.refusal = fmt::format("intermediate: have {}, not a multiple of {} ranks",
                                 group.shape.intermediate, options.tp);
    return result;
  }
  Result<Priced> priced = price(*caps, device);
  if (priced) {
    result.priced.emplace(std::move(priced).value());
  } else {
    result.refusal = priced.error().message();
  }
  return result;
}

Json group_json(const GroupPrice& price) {
  Json json = {{"layers", price.group.layers},
               {"format", word_of(format_words(), price.group.shape.format)},
               {"scheme", price.group.shape.scheme}};
  if (price.priced) {
    const uint64_t count = price.group.layers.size();
    json["rank_weights_nbytes"] = price.priced->plan.weights_nbytes() * count;
    json.update(plan_json(*price.priced));
  } else {
    json["error"] = price.refusal;
  }
  return json;
}

void print_groups(const Options& options, const std::vector<GroupPrice>& prices) {
  fmt::print("{} on {}, {} tokens, TP {}, EP {}; bytes are one rank's\n\n", options.model,
             options.device, options.caps.max_tokens, options.tp, options.ep);
  Table table({"layers", "format", "experts here", "intermediate here", "weights (all layers)",
               "arena (shared by layers)", "reference arena", "us a layer"});
  for (const GroupPrice& p : prices) {
    const snug_layer_info& shape = p.group.shape;
    const std::string layers = layers_text(p.group.layers);
    const std::string format = word_of(format_words(), shape.format);
    if (!p.priced) {
      table.add({layers, format, "refused", "-", "-", "-", "-", "-"});
      continue;
    }
    const Json json = plan_json(*p.priced);
    table.add({layers, format, std::to_string(json["caps"]["num_local_experts"].get<int32_t>()),
               std::to_string(json["caps"]["intermediate"].get<int32_t>()),
               bytes_text(p.priced->plan.weights_nbytes() * p.group.layers.size()),
               grouped(p.priced->plan.required_nbytes()),
               p.priced->compared ? grouped(p.priced->reference_nbytes) : "-",
               fmt::format("{:.1f}", json["predicted_us"].get<double>())});
  }
  fmt::print("{}", table.text());
  for (const GroupPrice& p : prices) {
    if (!p.priced) {
      fmt::print("\n{} layers {} are refused: {}\n", word_of(format_words(), p.group.shape.format),
                 layers_text(p.group.layers), p.refusal);
      continue;
    }
    if (options.explain) {
      fmt::print("\n== {} layers {} ==\n{}", word_of(format_words(), p.group.shape.format),
                 layers_text(p.group.layers), *p.priced->plan.explain());
    }
    if (options.compare) {
      fmt::print("\n");
      print_comparison(*p.priced);
    }
  }
}

int plan_model(const Options& options, const snug_device& device) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(options.model.c_str());
  if (!checkpoint) return report(checkpoint.error());
  const snug_model_info model = checkpoint->model();
  std::vector<GroupPrice> prices;
  bool any = false;
  for (const Group& group : group_layers(options, *checkpoint)) {
    prices.push_back(price_group(options, model, device, group));
    any = any || prices.back().priced.has_value();
  }
  if (prices.empty()) {
    return report(fmt::format("{}: no expert layers{}", options.model,
                              options.format >= 0 ? " in this format" : ""));
  }
  if (options.json) {
    Json plans = Json::array();
    for (const GroupPrice& p : prices) plans.push_back(group_json(p));
    const Json json = {{"model", options.model},
                       {"device", options.device},
                       {"tp", options.tp},
                       {"ep", options.ep},
                       {"plans", std::move(plans)}};
    fmt::print("{}\n", json.dump(1));
  } else {
    print_groups(options, prices);
  }
  return any ? kExitOk : kExitError;
}

int plan(Options options) {
  const Result<snug_device> device = device_by_name(options.device.c_str());
  if (!device) return report(device.error());
  options.caps.activation = make_activation(options.activation, options.limit);
  options.caps.has_bias = options.has_bias;
  options.caps.batch_invariant = options.batch_invariant;
  options.caps.router_weight_on_input = options.router_weight_on_input;
  return options.model.empty() ? plan_layer(options, *device) : plan_model(options, *device);
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<Options>();
  o->caps.max_tokens = 1;
  CLI::App* command = app.add_subcommand(
      "plan", "Price a layer, or all expert layers of a model, on a device that need not be here");
  CLI::Option* model =
      command->add_option("--model", o->model, "Model folder: shapes come from its headers");
  const auto shape = [&](const char* name, int32_t& field, const char* help) {
    return command->add_option(name, field, help)->excludes(model);
  };
  CLI::Option* hidden = shape("--hidden", o->caps.hidden, "Width of a token");
  shape("--experts", o->caps.num_experts, "Experts of the layer, over all ranks")->needs(hidden);
  shape("--intermediate", o->caps.intermediate, "Width of an expert, over all ranks")
      ->needs(hidden);
  command->add_option("--top-k", o->caps.top_k, "Experts a token is routed to");
  command->add_option("--format", o->format, "nvfp4 or mxfp4 (model: every format it has)")
      ->transform(CLI::CheckedTransformer(format_words()));
  command->add_option("--activation", o->activation, "Activation")
      ->transform(CLI::CheckedTransformer(activation_words()));
  command->add_option("--limit", o->limit, "Clamp of swiglu_oai and silu_clamped");
  command->add_flag("--bias", o->has_bias, "The projections have biases");
  command->add_flag("--router-weight-on-input", o->router_weight_on_input,
                    "Router weights multiply FC1's output");
  command->add_flag("--batch-invariant", o->batch_invariant,
                    "A token's bits do not depend on the other tokens");
  command->add_option("--output-dtype", o->caps.output_dtype, "bf16 or f32")
      ->transform(CLI::CheckedTransformer(dtype_words()));
  command->add_option("--max-tokens", o->caps.max_tokens, "Most tokens of one call")->required();
  command->add_option("--expected-tokens", o->caps.expected_tokens,
                      "Usual tokens of one call: the 2% rule is strict up to here");
  command->add_option("--arena-limit", o->caps.arena_limit, "Most arena bytes")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--route-tile", o->caps.route_tile_pin, "Pin the route tile");
  command->add_option("--threads", o->caps.num_threads, "CPU workers");
  command->add_option("--cpu-path", o->caps.cpu_path, "Plan for this instruction set alone")
      ->transform(CLI::CheckedTransformer(path_words()));
  command->add_option(
      "--device", o->device,
      "h200, rtx-pro-6000, a100, l40s, cpu (this one), cpu-amx, cpu-bf16, cpu-vnni, "
      "cpu-avx512, cpu-avx2, cpu-portable, reference");
  command->add_option("--tp", o->tp, "Tensor-parallel ranks")->check(CLI::Range(1, 1024));
  command->add_option("--ep", o->ep, "Expert-parallel ranks")->check(CLI::Range(1, 1024));
  command->add_flag("--compare", o->compare, "Show the reference geometry's bytes beside ours");
  command->add_flag("--explain", o->explain, "Show regimes, steps, slices and refused kernels");
  command->add_flag("--json", o->json, "Print one JSON object");
  command->callback([o, &exit_code] { exit_code = plan(*o); });
}

}  // namespace snug::cli
