// SPDX-License-Identifier: Apache-2.0
// Time of a price: snug_required_nbytes for named shapes and devices. The promise is below 1 ms.
#include <benchmark/benchmark.h>

#include <string>

#include "shapes.h"

namespace {

void price(benchmark::State& state, snug_caps caps, const char* device_name) {
  const snug_device device = *snug::device_by_name(device_name);
  uint64_t nbytes = 0;
  for (auto _ : state) {
    snug_error error;
    if (snug_required_nbytes(&caps, &device, &nbytes, &error) != SNUG_OK) {
      state.SkipWithError(error.message);
      break;
    }
    benchmark::DoNotOptimize(nbytes);
  }
  state.counters["arena_nbytes"] = static_cast<double>(nbytes);
}

const bool kRegistered = [] {
  for (const snug::cli::NamedShape& shape : snug::cli::kShapes) {
    for (const char* device : {"h200", "rtx-pro-6000", "cpu"}) {
      for (const int64_t tokens : {64, 8192, 131072}) {
        snug_caps caps = snug::cli::caps_of(shape);
        caps.max_tokens = tokens;
        const std::string name =
            "price/" + std::string(shape.name) + "/" + device + "/" + std::to_string(tokens);
        benchmark::RegisterBenchmark(name.c_str(), price, caps, device)
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
  return true;
}();

}  // namespace
