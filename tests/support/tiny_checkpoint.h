// SPDX-License-Identifier: Apache-2.0
// A tiny checkpoint on disk and a rank that loads and runs it, all through snug.h.
#pragma once

#include <gtest/gtest.h>
#include <snug/snug.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/bf16.h"
#include "support/expert_tensors.h"
#include "support/guarded_memory.h"
#include "support/safetensors_writer.h"

namespace snug::test {

/// make_layer with bytes that are weights of order 1 / 8: finite scales, globals and biases.
inline std::vector<StoredTensor> make_weights(const LayerSpec& spec) {
  const Scheme& scheme = kSchemes[spec.scheme];
  std::vector<StoredTensor> tensors = make_layer(spec);
  for (StoredTensor& t : tensors) {
    const auto ends_with = [&](Component c) {
      const char* part = scheme.components[static_cast<int>(c)].part;
      return part != nullptr && std::string_view(t.name).ends_with(part);
    };
    const bool scales = ends_with(Component::scales);
    for (size_t i = 0; i < t.bytes.size(); ++i) {
      const auto noise = static_cast<uint8_t>(t.bytes[i]);
      if (scales)
        t.bytes[i] = static_cast<char>(t.dtype == "U8" ? 121 + noise % 4 : 0x50 + noise % 16);
      if (t.dtype == "BF16" && i % 2 == 1) t.bytes[i] = static_cast<char>(0x3E | (noise & 0x80));
    }
    if (t.dtype == "F32" && scheme.global_scale_use == GlobalScaleUse::divide) {
      float global;
      std::memcpy(&global, t.bytes.data(), 4);
      t.bytes = f32_bytes(1 / global);
    }
  }
  return tensors;
}

struct CloseCheckpoint {
  void operator()(snug_checkpoint* c) const { snug_checkpoint_close(c); }
};
using CheckpointHandle = std::unique_ptr<snug_checkpoint, CloseCheckpoint>;

/// Writes the tensors to a file of `dir` and opens it; a failure fails the test.
inline CheckpointHandle open_tensors(const TempDir& dir, const std::vector<StoredTensor>& tensors) {
  const std::string path = dir.write("model.safetensors", safetensors_bytes(tensors));
  snug_checkpoint* checkpoint = nullptr;
  snug_error error = {};
  EXPECT_EQ(snug_checkpoint_open(path.c_str(), &checkpoint, &error), SNUG_OK) << error.message;
  return CheckpointHandle(checkpoint);
}

/// The caps that fit a whole layer of the spec: top_k 2, 8 tokens, f32 output, 2 threads.
inline snug_caps caps_of(const LayerSpec& spec) {
  snug_caps caps;
  snug_caps_init(&caps);
  caps.hidden = spec.hidden;
  caps.intermediate = spec.intermediate;
  caps.num_experts = caps.num_local_experts = spec.num_experts;
  caps.top_k = 2;
  caps.format = static_cast<int32_t>(kSchemes[spec.scheme].format);
  if (!spec.gated) caps.activation.kind = SNUG_RELU2;
  caps.has_bias = spec.biased ? 1 : 0;
  caps.output_dtype = SNUG_F32;
  caps.num_threads = 2;
  caps.max_tokens = 8;
  return caps;
}

inline snug_device c_device(const char* name) {
  snug_device device = {};
  snug_error error = {};
  EXPECT_EQ(snug_device_by_name(name, &device, &error), SNUG_OK) << error.message;
  return device;
}

/// 8 tokens for caps_of a spec; a token's ids may repeat.
struct Tokens {
  std::vector<bf16> x;
  std::vector<int32_t> ids;
  std::vector<float> weights;

  explicit Tokens(const snug_caps& caps) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < caps.max_tokens * caps.hidden; ++i) {
      x.push_back(f32_to_bf16(normal(random)));
    }
    for (int64_t i = 0; i < caps.max_tokens * caps.top_k; ++i) {
      ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(caps.num_experts)));
      weights.push_back(0.25f + static_cast<float>(random() % 64) / 64);
    }
  }
};

/// A plan with storage and weights for it; nothing is loaded yet.
class Rank {
 public:
  snug_caps caps;
  snug_plan* plan = nullptr;
  snug_weights* weights = nullptr;

  Rank(const snug_caps& c, const char* device_name) : caps(c) {
    const snug_device device = c_device(device_name);
    snug_error error = {};
    EXPECT_EQ(snug_plan_create(&caps, &device, &plan, &error), SNUG_OK) << error.message;
    storage_ = std::make_unique<GuardedMemory>(snug_plan_weights_nbytes(plan),
                                               snug_weights_alignment(), GuardedMemory::Edge::back);
    arena_ = std::make_unique<GuardedMemory>(snug_plan_required_nbytes(plan),
                                             snug_arena_alignment(), GuardedMemory::Edge::back);
    output.resize(static_cast<size_t>(caps.max_tokens * caps.hidden), NAN);
    EXPECT_EQ(snug_weights_create(plan, storage_->data(), storage_->nbytes(), &weights, &error),
              SNUG_OK)
        << error.message;
  }
  ~Rank() {
    snug_weights_destroy(weights);
    snug_plan_destroy(plan);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  GuardedMemory& storage() { return *storage_; }

  /// Loads the first layer of the checkpoint; a failure fails the test.
  void load(const CheckpointHandle& checkpoint, const snug_shard* shard = nullptr) {
    snug_error error = {};
    EXPECT_EQ(snug_weights_load(weights, checkpoint.get(), 0, shard, 2, nullptr, nullptr, &error),
              SNUG_OK)
        << error.message;
  }

  /// The descriptor of a call with all 8 tokens; memory starts as NaN.
  snug_io io(const Tokens& tokens, const int32_t* map = nullptr) {
    arena_->fill(0xFF);
    output.assign(output.size(), NAN);
    snug_io io;
    snug_io_init(&io);
    io.num_tokens = caps.max_tokens;
    io.x = tokens.x.data();
    io.topk_ids = tokens.ids.data();
    io.topk_weights = tokens.weights.data();
    io.x_stride = io.output_stride = caps.hidden;
    io.ids_stride = io.weights_stride = caps.top_k;
    io.expert_map = map;
    io.output = output.data();
    io.arena = arena_->data();
    io.arena_nbytes = arena_->nbytes();
    return io;
  }

  /// The f32 output of the tokens; a failure fails the test.
  std::vector<float> run(const Tokens& tokens, const int32_t* map = nullptr) {
    const snug_io call = io(tokens, map);
    snug_binding binding;
    snug_error error = {};
    EXPECT_EQ(snug_bind(plan, weights, &call, &binding, &error), SNUG_OK) << error.message;
    EXPECT_EQ(snug_run(&binding, nullptr, &error), SNUG_OK) << error.message;
    return output;
  }

  std::vector<float> output;  // [max_tokens, hidden]

 private:
  std::unique_ptr<GuardedMemory> storage_, arena_;
};

/// |have - want|_2 / |want|_2; infinity when either holds a NaN or want is zero.
inline double relative_error(const std::vector<float>& have, const std::vector<float>& want) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(have[i]) - static_cast<double>(want[i]);
    difference += d * d;
    norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  const double error = std::sqrt(difference / norm);
  return std::isnan(error) ? INFINITY : error;
}

/// Expects that `call`, which writes to the snug_error* `error`, fails with this status and a
/// message that begins with `argument`.
#define EXPECT_REFUSED(call, status, argument)                                                \
  do {                                                                                        \
    snug_error snug_refusal = {};                                                             \
    snug_error* const error = &snug_refusal;                                                  \
    EXPECT_EQ((call), (status)) << snug_refusal.message;                                      \
    EXPECT_EQ(snug_refusal.code, (status));                                                   \
    EXPECT_EQ(std::string(snug_refusal.message).substr(0, std::string_view(argument).size()), \
              std::string(argument));                                                         \
  } while (false)

}  // namespace snug::test
