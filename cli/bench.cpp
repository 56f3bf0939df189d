// SPDX-License-Identifier: Apache-2.0
// snug bench: layers of published shapes against what this machine can do, measured in the same
// run; and two result files side by side.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench_layer.h"
#include "commands.h"
#include "floors.h"
#include "shapes.h"
#include "text.h"
#include "words.h"

namespace snug::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string device = "cpu";
  std::vector<std::string> shapes = {"qwen3", "gptoss", "glm"};
  std::vector<int32_t> formats = {SNUG_MXFP4};
  std::vector<int64_t> tokens = {1, 4, 16, 64, 256, 1024};
  std::vector<int32_t> threads = {
      static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()))};
  int32_t cpu_path = SNUG_CPU_AUTOMATIC;
  int samples = 9;
  int copies = 0;
  bool batch_invariant = false;
  std::string json;
  std::vector<std::string> compare;
};

struct Floors {
  double read = 0;    // GB/s
  double matrix = 0;  // GFLOP/s
};

struct Row {
  std::string shape, format;
  int64_t num_tokens = 0;
  int32_t threads = 0;
  double us = 0, floor_us = 0, weight_gbps = 0, gflops = 0;
  Floors floors;

  double fraction() const { return floor_us / us; }
};

void to_json(Json& to, const Row& row) {
  to = {{"shape", row.shape},
        {"format", row.format},
        {"num_tokens", row.num_tokens},
        {"threads", row.threads},
        {"us", row.us},
        {"floor_us", row.floor_us},
        {"fraction", row.fraction()},
        {"weight_gbps", row.weight_gbps},
        {"gflops", row.gflops},
        {"read_gbps", row.floors.read},
        {"matrix_gflops", row.floors.matrix}};
}

template <class T>
T median(std::vector<T> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

uint64_t cache_nbytes() {
  const long level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return level3 > 0 ? static_cast<uint64_t>(level3) : uint64_t{32} << 20;
}

Floors measure(int threads) {
  const uint64_t nbytes = std::max<uint64_t>(2 * cache_nbytes(), uint64_t{256} << 20);
  return {read_gbps(threads, nbytes), matrix_gflops(threads, best_matrix_unit())};
}

/// The better of two readings, so that a neighbour's burst does not flatter us.
Floors better(const Floors& a, const Floors& b) {
  return {std::max(a.read, b.read), std::max(a.matrix, b.matrix)};
}

Result<Row> measure_cell(BenchLayer& layer, const snug_caps& caps, const snug_device& device,
                         int64_t tokens, int samples) {
  const Floors before = measure(caps.num_threads);
  const Result<std::vector<Sample>> taken = layer.run(caps, device, tokens, samples);
  if (!taken) return taken.error();
  Row row;
  row.floors = better(before, measure(caps.num_threads));
  row.num_tokens = tokens;
  row.threads = caps.num_threads;
  const double matrices = caps.activation.kind == SNUG_RELU2 ? 2 : 3;
  const double flops =
      2.0 * static_cast<double>(tokens) * caps.top_k * matrices * caps.hidden * caps.intermediate;
  std::vector<double> us, floors, rates;
  for (const Sample& sample : *taken) {
    us.push_back(sample.us);
    floors.push_back(std::max(sample.weight_nbytes / (row.floors.read * 1e3),
                              flops / (row.floors.matrix * 1e3)));
    rates.push_back(sample.weight_nbytes / sample.us * 1e-3);
  }
  row.us = median(us);
  row.floor_us = median(floors);
  row.weight_gbps = median(rates);
  row.gflops = flops / row.us * 1e-3;
  return row;
}

/// Copies of a layer, so that the next one is not in a cache; at most a quarter of the memory.
int copies_for(uint64_t layer_nbytes) {
  const uint64_t pages = static_cast<uint64_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L));
  const uint64_t memory = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 4;
  const uint64_t wanted = 3 * cache_nbytes() / layer_nbytes + 2;
  return static_cast<int>(std::clamp<uint64_t>(memory / layer_nbytes, 1, wanted));
}

void print_header(const Options& options) {
  fmt::print("{} thread(s), {} samples a cell; matrix floor: {}; decode {:.1f} GB/s a core\n\n",
             fmt::join(options.threads, ","), options.samples, matrix_unit_name(best_matrix_unit()),
             decode_gbps());
  fmt::print("{:<9} {:<6} {:>7} {:>7} {:>11} {:>11} {:>8} {:>9} {:>9} {:>9} {:>9}\n", "shape",
             "format", "tokens", "threads", "us", "floor us", "fraction", "GB/s", "of GB/s",
             "GFLOP/s", "of GFLOP/s");
}

void print(const Row& row) {
  fmt::print(
      "{:<9} {:<6} {:>7} {:>7} {:>11.1f} {:>11.1f} {:>8.3f} {:>9.1f} {:>9.1f} {:>9.0f} "
      "{:>9.0f}\n",
      row.shape, row.format, row.num_tokens, row.threads, row.us, row.floor_us, row.fraction(),
      row.weight_gbps, row.floors.read, row.gflops, row.floors.matrix);
  std::fflush(stdout);
}

Error bench_layer(const Options& options, const NamedShape& shape, int32_t format,
                  const snug_device& device, std::vector<Row>& rows) {
  snug_caps caps = caps_of(shape);
  caps.format = format;
  caps.cpu_path = options.cpu_path;
  caps.batch_invariant = options.batch_invariant;
  caps.max_tokens = *std::max_element(options.tokens.begin(), options.tokens.end());
  const Result<Plan> plan = Plan::make(caps, device);
  if (!plan) return plan.error();
  const int copies = options.copies > 0 ? options.copies : copies_for(plan->weights_nbytes());
  Result<BenchLayer> layer = BenchLayer::make(caps, device, copies);
  if (!layer) return layer.error();
  for (const int32_t threads : options.threads) {
    caps.num_threads = threads;
    for (const int64_t tokens : options.tokens) {
      Result<Row> row = measure_cell(*layer, caps, device, tokens, options.samples);
      if (!row) return row.error();
      row->shape = shape.name;
      row->format = word_of(format_words(), format);
      print(*row);
      rows.push_back(*row);
    }
  }
  fmt::print("{:<9} {:<6} prepared at {:.2f} GB/s by one thread ({:.2f} GB/s copy), {} cop{}\n",
             shape.name, word_of(format_words(), format), layer->prepare_gbps(),
             copy_gbps(uint64_t{64} << 20), copies, copies == 1 ? "y" : "ies");
  return {};
}

int bench(const Options& options) {
  const Result<snug_device> device = device_by_name(options.device.c_str());
  if (!device) return report(device.error());
  std::vector<Row> rows;
  print_header(options);
  for (const std::string& name : options.shapes) {
    for (const int32_t format : options.formats) {
      const Error error = bench_layer(options, *find_shape(name), format, *device, rows);
      if (!error.ok()) return report(error);
    }
  }
  if (options.json.empty()) return kExitOk;
  const Json result = {{"snug", snug_version()},
                       {"device", options.device},
                       {"cpu_path", word_of(path_words(), options.cpu_path)},
                       {"matrix_unit", matrix_unit_name(best_matrix_unit())},
                       {"samples", options.samples},
                       {"rows", rows}};
  std::ofstream file(options.json);
  file << result.dump(1) << '\n';
  return file.good() ? kExitOk : report("cannot write " + options.json);
}

std::string key_of(const Json& row) {
  return fmt::format("{} {} M={} threads={}", row.at("shape").get<std::string>(),
                     row.at("format").get<std::string>(), row.at("num_tokens").get<int64_t>(),
                     row.at("threads").get<int32_t>());
}

int compare(const std::string& first, const std::string& second) {
  Json files[2];
  const std::string* names[] = {&first, &second};
  for (int i = 0; i < 2; ++i) {
    std::ifstream stream(*names[i]);
    if (!stream) return report("cannot read " + *names[i]);
    files[i] = Json::parse(stream);
  }
  Table table({"cell", "us A", "us B", "B / A", "fraction A", "fraction B"});
  int missing = 0;
  for (const Json& a : files[0].at("rows")) {
    const Json& others = files[1].at("rows");
    const auto b = std::find_if(others.begin(), others.end(),
                                [&](const Json& row) { return key_of(row) == key_of(a); });
    if (b == others.end()) {
      ++missing;
      continue;
    }
    const double us_a = a.at("us"), us_b = b->at("us");
    table.add({key_of(a), fmt::format("{:.1f}", us_a), fmt::format("{:.1f}", us_b),
               fmt::format("{:.3f}", us_b / us_a),
               fmt::format("{:.3f}", a.at("fraction").get<double>()),
               fmt::format("{:.3f}", b->at("fraction").get<double>())});
  }
  fmt::print("A = {}\nB = {}\n\n{}", first, second, table.text());
  if (missing > 0) fmt::print("{} cells of A are not in B\n", missing);
  return kExitOk;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("bench", "Time layers of published shapes against this machine's floors");
  std::vector<std::string> names;
  for (const NamedShape& shape : kShapes) names.emplace_back(shape.name);
  command->add_option("--device", o->device, "cpu")->check(CLI::IsMember({"cpu"}));
  command->add_option("--shapes", o->shapes, "Shapes, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  command->add_option("--formats", o->formats, "mxfp4, nvfp4")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(format_words()));
  command->add_option("--tokens", o->tokens, "Token counts, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command->add_option("--threads", o->threads, "Thread counts, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command->add_option("--cpu-path", o->cpu_path, "Use this instruction set or fail")
      ->transform(CLI::CheckedTransformer(path_words()));
  command->add_option("--samples", o->samples, "Timed calls a cell; the median counts")
      ->check(CLI::Range(1, 10000));
  command->add_option("--copies", o->copies, "Layers to rotate over (default: past the caches)")
      ->check(CLI::Range(0, 1000));
  command->add_flag("--batch-invariant", o->batch_invariant,
                    "A token's bits do not depend on the other tokens");
  command->add_option("--json", o->json, "Also write the rows to this file");
  command->add_option("--compare", o->compare, "Set two result files side by side")->expected(2);
  command->callback([o, &exit_code] {
    exit_code = o->compare.empty() ? bench(*o) : compare(o->compare[0], o->compare[1]);
  });
}

}  // namespace snug::cli
