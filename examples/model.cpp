// SPDX-License-Identifier: Apache-2.0
// An expert layer of a real model in C++: open, route, plan, load, bind, run.
//   example_model <model folder with golden.safetensors>
#include <cstdio>
#include <cstdlib>
#include <snug/snug.hpp>
#include <string>
#include <vector>

namespace {

/// The value, or the end of the program with its error.
template <class T>
T take(snug::Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s: %s\n", result.error().code_name(), result.error().message());
    std::exit(1);
  }
  return std::move(result).value();
}

void take(const snug::Error& error) {
  if (!error.ok()) take(snug::Result<int>(error));
}

std::vector<std::byte> memory(uint64_t nbytes) { return std::vector<std::byte>(nbytes + 128); }

void* aligned(std::vector<std::byte>& bytes) {
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  return reinterpret_cast<void*>((address + 127) / 128 * 128);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "examples/kjv-moe";
  const auto model = take(snug::Checkpoint::open(folder.c_str()));
  const auto golden = take(snug::Checkpoint::open((folder + "/golden.safetensors").c_str()));
  const auto x = take(golden.tensor("layers.0.x"));
  const auto logits = take(golden.tensor("layers.0.router_logits"));
  const snug_model_info info = model.model();
  const snug_layer_info layer = take(model.layer(0));
  const int64_t tokens = x.shape[0];

  std::vector<int32_t> ids(static_cast<size_t>(tokens * info.top_k));
  std::vector<float> weights(ids.size());
  take(snug::route(info.routing, logits.data, SNUG_F32, layer.num_experts, nullptr, tokens,
                   layer.num_experts, info.top_k, ids.data(), weights.data()));

  snug_caps caps = snug::make_caps();
  caps.hidden = layer.hidden;
  caps.intermediate = layer.intermediate;
  caps.num_experts = caps.num_local_experts = layer.num_experts;
  caps.top_k = info.top_k;
  caps.format = layer.format;
  caps.activation = info.activation;
  caps.output_dtype = SNUG_F32;
  caps.max_tokens = tokens;
  const auto plan = take(snug::Plan::make(caps, take(snug::device_by_name("cpu"))));
  auto storage = memory(plan.weights_nbytes());
  auto experts = take(snug::Weights::make(plan, aligned(storage), plan.weights_nbytes()));
  take(experts.load(model, 0));

  auto arena = memory(plan.required_nbytes());
  std::vector<float> y(static_cast<size_t>(tokens * layer.hidden));
  snug_io io = snug::make_io();
  io.num_tokens = tokens;
  io.x = x.data, io.topk_ids = ids.data(), io.topk_weights = weights.data(), io.output = y.data();
  io.x_stride = io.output_stride = layer.hidden;
  io.ids_stride = io.weights_stride = info.top_k;
  io.arena = aligned(arena), io.arena_nbytes = plan.required_nbytes();
  take(take(snug::Binding::make(plan, experts, io)).run());
  std::printf("layer %d, %lld tokens, arena %llu bytes, y[0][0] = %g\n", layer.layer,
              static_cast<long long>(tokens),
              static_cast<unsigned long long>(plan.required_nbytes()), static_cast<double>(y[0]));
}
