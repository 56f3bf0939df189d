// SPDX-License-Identifier: Apache-2.0
// What a model's expert layers cost on a GPU that is not here: arena bytes against max_tokens.
//   example_price <model folder> [device]
#include <cstdio>
#include <snug/snug.hpp>

int main(int argc, char** argv) {
  const char* folder = argc > 1 ? argv[1] : "examples/kjv-moe";
  const auto model = snug::Checkpoint::open(folder);
  const auto device = snug::device_by_name(argc > 2 ? argv[2] : "h200");
  if (!model || !device) {
    std::fprintf(stderr, "%s\n", (model ? device.error() : model.error()).message());
    return 1;
  }
  const snug_layer_info layer = *model->layer(0);
  snug_caps caps = snug::make_caps();
  caps.hidden = layer.hidden;
  caps.intermediate = layer.intermediate;
  caps.num_experts = caps.num_local_experts = layer.num_experts;
  caps.top_k = model->model().top_k;
  caps.format = layer.format;
  caps.activation = model->model().activation;
  std::printf("%-10s %14s %14s %12s\n", "tokens", "arena bytes", "reference", "predicted us");
  for (caps.max_tokens = 1; caps.max_tokens <= 131072; caps.max_tokens *= 2) {
    const auto plan = snug::Plan::make(caps, *device);
    const auto reference = snug::reference_nbytes(caps, *device, false);
    if (!plan || !reference) {
      std::fprintf(stderr, "%s\n", (plan ? reference.error() : plan.error()).message());
      return 1;
    }
    std::printf("%-10lld %14llu %14llu %12.1f\n", static_cast<long long>(caps.max_tokens),
                static_cast<unsigned long long>(plan->required_nbytes()),
                static_cast<unsigned long long>(*reference),
                plan->schedule(caps.max_tokens)->predicted_us);
  }
}
