// SPDX-License-Identifier: Apache-2.0
// snug verify: a backend's outputs against golden ones. Inputs come from the model folder's own
// golden.safetensors; layers that the golden file does not hold are skipped, all of them is an
// error.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "commands.h"
#include "golden.h"
#include "text.h"
#include "words.h"

namespace snug::cli {

namespace {

using Json = nlohmann::ordered_json;

// The contract: relative L2 a row against float64 with activated values rounded to bf16; a bf16
// output adds its own rounding.
constexpr double kBoundF32 = 1e-3;
constexpr double kBoundBf16 = 4e-3;

struct Options {
  std::string model;
  std::string golden;
  int32_t format = SNUG_NVFP4;
  int32_t backend = SNUG_BACKEND_CPU;
  int32_t threads = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  int32_t cpu_path = SNUG_CPU_AUTOMATIC;
  bool json = false;
};

struct Row {
  int32_t layer;
  double error_f32, error_bf16, us;
  bool ok() const { return error_f32 <= kBoundF32 && error_bf16 <= kBoundBf16; }
};

/// Runs one layer with f32 and bf16 outputs against `want`.
Result<Row> check_layer(const Options& options, const Checkpoint& checkpoint, int32_t index,
                        const snug_layer_info& layer, const LayerInputs& inputs,
                        const float* want) {
  const Result<snug_device> device = device_of_backend(options.backend);
  if (!device) return device.error();
  snug_caps base = make_caps();
  base.max_tokens = inputs.num_tokens;
  base.num_threads = options.threads;
  base.cpu_path = options.cpu_path;
  Row row{layer.layer, 0, 0, 0};
  for (const int32_t dtype : {SNUG_F32, SNUG_BF16}) {
    base.output_dtype = dtype;
    Result<LayerRunner> runner = LayerRunner::make(
        checkpoint, index, layer_caps(base, checkpoint.model(), layer), *device, !options.json);
    if (!runner) return runner.error();
    const Result<LayerOutcome> outcome = runner->run(inputs, 1);
    if (!outcome) return outcome.error();
    (dtype == SNUG_F32 ? row.error_f32 : row.error_bf16) =
        relative_l2_max_row(outcome->y, want, inputs.num_tokens, layer.hidden);
    row.us = outcome->us;
  }
  return row;
}

Result<std::vector<Row>> check_all(const Options& options) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(options.model.c_str());
  if (!checkpoint) return checkpoint.error();
  const Result<Golden> inputs_file = Golden::open(golden_inputs_path(options.model));
  if (!inputs_file) return inputs_file.error();
  const std::string path =
      options.golden.empty() ? golden_outputs_path(options.model) : options.golden;
  const Result<Golden> outputs_file = Golden::open(path);
  if (!outputs_file) return outputs_file.error();

  const std::string name = "y_" + word_of(format_words(), options.format);
  const int32_t top_k = checkpoint->model().top_k;
  std::vector<Row> rows;
  for (int32_t i = 0; i < checkpoint->num_layers(); ++i) {
    const snug_layer_info layer = *checkpoint->layer(i);
    if (layer.format != options.format) continue;
    const auto inputs = inputs_file->inputs(layer.layer, layer.hidden, top_k);
    if (!inputs) return inputs.error();
    if (!inputs->has_value()) continue;
    const Result<const float*> want =
        outputs_file->output(layer.layer, name, (*inputs)->num_tokens, layer.hidden);
    if (!want) return want.error();
    if (*want == nullptr) continue;
    const Result<Row> row = check_layer(options, *checkpoint, i, layer, **inputs, *want);
    if (!row) return row.error();
    rows.push_back(*row);
  }
  if (rows.empty()) {
    return make_error(SNUG_INVALID_ARGUMENT,
                      fmt::format("golden: {} holds no {} of a layer of this model", path, name));
  }
  return rows;
}

Json to_json(const Options& options, const std::vector<Row>& rows, bool ok) {
  Json layers = Json::array();
  for (const Row& row : rows) {
    layers.push_back({{"layer", row.layer},
                      {"relative_l2_max_row", row.error_f32},
                      {"bound", kBoundF32},
                      {"relative_l2_max_row_bf16", row.error_bf16},
                      {"bound_bf16", kBoundBf16},
                      {"us", row.us},
                      {"ok", row.ok()}});
  }
  return {{"model", options.model},
          {"format", word_of(format_words(), options.format)},
          {"backend", word_of(backend_words(), options.backend)},
          {"layers", std::move(layers)},
          {"ok", ok}};
}

int verify(const Options& options) {
  const Result<std::vector<Row>> rows = check_all(options);
  if (!rows) return report(rows.error());
  const bool ok = std::all_of(rows->begin(), rows->end(), [](const Row& row) { return row.ok(); });
  if (options.json) {
    fmt::print("{}\n", to_json(options, *rows, ok).dump(1));
    return ok ? kExitOk : kExitCheckFailed;
  }
  fmt::print("{} experts of {} on {}: relative L2 of the worst row\n\n",
             word_of(format_words(), options.format), options.model,
             word_of(backend_words(), options.backend));
  Table table({"layer", "f32 output", "bound", "bf16 output", "bound", "us", ""});
  for (const Row& row : *rows) {
    table.add({std::to_string(row.layer), fmt::format("{:.2e}", row.error_f32),
               fmt::format("{:.0e}", kBoundF32), fmt::format("{:.2e}", row.error_bf16),
               fmt::format("{:.0e}", kBoundBf16), fmt::format("{:.0f}", row.us),
               row.ok() ? "ok" : "FAILED"});
  }
  fmt::print("{}", table.text());
  return ok ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("verify", "Check a backend against golden outputs");
  command->add_option("--model", o->model, "Model folder with golden.safetensors")->required();
  command->add_option("--format", o->format, "nvfp4 or mxfp4")
      ->required()
      ->transform(CLI::CheckedTransformer(format_words()));
  command->add_option("--golden", o->golden,
                      "File with layers.N.y_FORMAT (default: the model's golden-4bit.safetensors)");
  command->add_option("--backend", o->backend, "reference, cpu or cuda")
      ->transform(CLI::CheckedTransformer(backend_words()));
  command->add_option("--cpu-path", o->cpu_path, "Use this instruction set or fail")
      ->transform(CLI::CheckedTransformer(path_words()));
  command->add_option("--threads", o->threads, "CPU workers")->check(CLI::Range(1, 1024));
  command->add_flag("--json", o->json, "Print JSON");
  command->callback([o, &exit_code] { exit_code = verify(*o); });
}

}  // namespace snug::cli
