// SPDX-License-Identifier: Apache-2.0
// snug run: expert layers of a model on golden, given or random inputs; prints bytes, time, error.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>

#include "commands.h"
#include "golden.h"
#include "text.h"
#include "words.h"

namespace snug::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  std::string input;          // file with layers.N.x, ...; empty: the model's golden.safetensors
  int32_t layer = -1;         // -1: all
  int32_t format = -1;        // -1: all
  int64_t random_tokens = 0;  // > 0: random inputs in place of a file's
  uint32_t seed = 1;
  int32_t backend = SNUG_BACKEND_CPU;
  int32_t output_dtype = SNUG_BF16;
  int32_t threads = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  int32_t cpu_path = SNUG_CPU_AUTOMATIC;
  int repeats = 5;
  uint64_t arena_limit = 0;
  bool no_check = false;
  bool json = false;
};

/// Random inputs: x ~ N(0, 1) in bf16, distinct uniform experts, weights that sum to 1.
struct RandomInputs {
  std::vector<uint16_t> x;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

RandomInputs make_random(const Options& options, const snug_caps& caps) {
  std::mt19937 generator(options.seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  RandomInputs inputs;
  const int64_t tokens = options.random_tokens;
  for (int64_t i = 0; i < tokens * caps.hidden; ++i) {
    inputs.x.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(generator)) >> 16));
  }
  std::vector<float> logits(static_cast<size_t>(tokens * caps.num_experts));
  for (float& logit : logits) logit = uniform(generator);
  inputs.ids.resize(static_cast<size_t>(tokens * caps.top_k));
  inputs.weights.resize(inputs.ids.size());
  (void)route(make_routing(), logits.data(), SNUG_F32, caps.num_experts, nullptr, tokens,
              caps.num_experts, caps.top_k, inputs.ids.data(), inputs.weights.data());
  return inputs;
}

struct Row {
  snug_layer_info layer;
  int64_t tokens = 0;
  uint64_t arena_nbytes = 0, weights_nbytes = 0;
  double us = 0;
  std::optional<double> against_golden;     // layers.N.y_FORMAT of the model's golden outputs
  std::optional<double> against_reference;  // the float64 reference, run here
};

/// The float64 reference on the same inputs.
Result<double> reference_error(const Checkpoint& checkpoint, int32_t index, snug_caps caps,
                               const LayerInputs& inputs, const std::vector<float>& y,
                               bool progress) {
  const Result<snug_device> device = device_of_backend(SNUG_BACKEND_REFERENCE);
  if (!device) return device.error();
  caps.numerics = SNUG_NUMERICS_FLOAT64;
  caps.output_dtype = SNUG_F32;
  caps.arena_limit = 0;
  caps.cpu_path = SNUG_CPU_AUTOMATIC;
  Result<LayerRunner> runner = LayerRunner::make(checkpoint, index, caps, *device, progress);
  if (!runner) return runner.error();
  const Result<LayerOutcome> outcome = runner->run(inputs, 1);
  if (!outcome) return outcome.error();
  return relative_l2_max_row(y, outcome->y.data(), inputs.num_tokens, caps.hidden);
}

Result<Row> run_layer(const Options& options, const Checkpoint& checkpoint, int32_t index,
                      const snug_layer_info& layer, const snug_caps& caps,
                      const LayerInputs& inputs) {
  const Result<snug_device> device = device_of_backend(options.backend);
  if (!device) return device.error();
  Result<LayerRunner> runner = LayerRunner::make(checkpoint, index, caps, *device, !options.json);
  if (!runner) return runner.error();
  const Result<LayerOutcome> outcome = runner->run(inputs, options.repeats);
  if (!outcome) return outcome.error();
  Row row{layer, inputs.num_tokens, outcome->arena_nbytes, outcome->weights_nbytes, outcome->us, {},
          {}};
  const bool own_inputs = options.random_tokens == 0 && options.input.empty();
  if (own_inputs) {
    const Result<Golden> golden = Golden::open(golden_outputs_path(options.model));
    if (golden) {
      const std::string name = "y_" + word_of(format_words(), layer.format);
      const Result<const float*> want =
          golden->output(layer.layer, name, inputs.num_tokens, layer.hidden);
      if (!want) return want.error();
      if (*want != nullptr) {
        row.against_golden =
            relative_l2_max_row(outcome->y, *want, inputs.num_tokens, layer.hidden);
      }
    }
  }
  if (!options.no_check) {
    const Result<double> error =
        reference_error(checkpoint, index, caps, inputs, outcome->y, !options.json);
    if (!error) return error.error();
    row.against_reference = *error;
  }
  return row;
}

Result<std::vector<Row>> run_all(const Options& options) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(options.model.c_str());
  if (!checkpoint) return checkpoint.error();
  std::optional<Golden> file;
  if (options.random_tokens == 0) {
    Result<Golden> opened =
        Golden::open(options.input.empty() ? golden_inputs_path(options.model) : options.input);
    if (!opened) return opened.error();
    file.emplace(std::move(opened).value());
  }
  std::vector<Row> rows;
  for (int32_t i = 0; i < checkpoint->num_layers(); ++i) {
    const snug_layer_info layer = *checkpoint->layer(i);
    if (options.layer >= 0 && layer.layer != options.layer) continue;
    if (options.format >= 0 && layer.format != options.format) continue;
    snug_caps caps = make_caps();
    caps.num_threads = options.threads;
    caps.cpu_path = options.cpu_path;
    caps.output_dtype = options.output_dtype;
    caps.arena_limit = options.arena_limit;
    caps = layer_caps(caps, checkpoint->model(), layer);
    LayerInputs inputs;
    RandomInputs random;
    if (file) {
      const auto found = file->inputs(layer.layer, layer.hidden, caps.top_k);
      if (!found) return found.error();
      if (!found->has_value()) continue;
      inputs = **found;
    } else {
      random = make_random(options, caps);
      inputs = {options.random_tokens, random.x.data(), random.ids.data(), random.weights.data()};
    }
    caps.max_tokens = std::max<int64_t>(inputs.num_tokens, 1);
    const Result<Row> row = run_layer(options, *checkpoint, i, layer, caps, inputs);
    if (!row) return row.error();
    rows.push_back(*row);
  }
  if (rows.empty()) {
    return make_error(SNUG_INVALID_ARGUMENT,
                      "no layer of the model fits --layer, --format and "
                      "the inputs");
  }
  return rows;
}

Json to_json(const Options& options, const std::vector<Row>& rows) {
  Json layers = Json::array();
  for (const Row& row : rows) {
    const auto number = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
    layers.push_back({{"layer", row.layer.layer},
                      {"format", word_of(format_words(), row.layer.format)},
                      {"num_tokens", row.tokens},
                      {"arena_nbytes", row.arena_nbytes},
                      {"weights_nbytes", row.weights_nbytes},
                      {"us", row.us},
                      {"relative_l2_max_row_golden", number(row.against_golden)},
                      {"relative_l2_max_row_reference", number(row.against_reference)}});
  }
  return {{"model", options.model},
          {"backend", word_of(backend_words(), options.backend)},
          {"output_dtype", word_of(dtype_words(), options.output_dtype)},
          {"threads", options.threads},
          {"layers", std::move(layers)}};
}

void print_text(const Options& options, const std::vector<Row>& rows) {
  Table table({"format", "layer", "tokens", "weights", "arena bytes", "time us", "tokens/s",
               "error vs golden", "error vs float64"});
  const auto number = [](const std::optional<double>& v) {
    return v ? fmt::format("{:.2e}", *v) : std::string("-");
  };
  for (const Row& row : rows) {
    table.add(
        {word_of(format_words(), row.layer.format), std::to_string(row.layer.layer),
         std::to_string(row.tokens), bytes_text(row.weights_nbytes), grouped(row.arena_nbytes),
         fmt::format("{:.0f}", row.us),
         fmt::format("{:.0f}", row.us > 0 ? static_cast<double>(row.tokens) / row.us * 1e6 : 0.0),
         number(row.against_golden), number(row.against_reference)});
  }
  fmt::print("{}\n", table.text());
  fmt::print(
      "weights     prepared 4-bit experts of the layer, one copy\n"
      "arena       scratch the layer may touch: known before the run, exact to the byte\n"
      "time        median of {} runs on {} ({} threads)\n"
      "errors      |y - want| / |want| of the worst token, {} output; 4e-3 is what bf16\n"
      "            rounding costs at most; golden: an independent oracle's file (not every\n"
      "            layer has one), float64: Snug's own reference loops\n",
      options.repeats, word_of(backend_words(), options.backend), options.threads,
      word_of(dtype_words(), options.output_dtype));
}

int run(const Options& options) {
  const Result<std::vector<Row>> rows = run_all(options);
  if (!rows) return report(rows.error());
  if (options.json) {
    fmt::print("{}\n", to_json(options, *rows).dump(1));
  } else {
    print_text(options, *rows);
  }
  return kExitOk;
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "Run expert layers of a model");
  command->add_option("--model", o->model, "Model folder")->required();
  command->add_option("--layer", o->layer, "Only this layer (default: all)");
  command->add_option("--format", o->format, "Only this format (default: all)")
      ->transform(CLI::CheckedTransformer(format_words()));
  CLI::Option* input = command->add_option(
      "--input", o->input,
      "File with layers.N.x, topk_ids, topk_weights (default: the model's golden.safetensors)");
  command->add_option("--tokens", o->random_tokens, "Random inputs of so many tokens")
      ->excludes(input)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command->add_option("--seed", o->seed, "Seed of the random inputs");
  command->add_option("--backend", o->backend, "reference, cpu or cuda")
      ->transform(CLI::CheckedTransformer(backend_words()));
  command->add_option("--output-dtype", o->output_dtype, "bf16 or f32")
      ->transform(CLI::CheckedTransformer(dtype_words()));
  command->add_option("--cpu-path", o->cpu_path, "Use this instruction set or fail")
      ->transform(CLI::CheckedTransformer(path_words()));
  command->add_option("--threads", o->threads, "CPU workers")->check(CLI::Range(1, 1024));
  command->add_option("--repeats", o->repeats, "Timed runs")->check(CLI::Range(1, 10000));
  command->add_option("--arena-limit", o->arena_limit, "Most arena bytes")
      ->transform(CLI::AsSizeValue(false));
  command->add_flag("--no-check", o->no_check, "Skip the float64 reference");
  command->add_flag("--json", o->json, "Print JSON");
  command->callback([o, &exit_code] { exit_code = run(*o); });
}

}  // namespace snug::cli
