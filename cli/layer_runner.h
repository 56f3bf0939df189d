// SPDX-License-Identifier: Apache-2.0
// One expert layer of a checkpoint, planned, prepared and run on given inputs; golden tensors; and
// the error measure that run and verify print.
#pragma once

#include <snug/snug.hpp>

#include <memory>
#include <string>
#include <vector>

namespace snug::cli {

/// The caps of a checkpoint's layer: shape and format from its tensors, activation and top_k from
/// its config, the rest from `base`.
snug_caps layer_caps(const snug_caps& base, const snug_model_info& model,
                     const snug_layer_info& layer);

/// Aligned bytes of ours.
class Memory {
 public:
  Memory() = default;
  Memory(uint64_t nbytes, uint64_t alignment);
  void fill(int byte);
  void* data() const { return data_.get(); }
  uint64_t nbytes() const { return nbytes_; }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> data_;
  uint64_t nbytes_ = 0;
};

/// The inputs of a layer; views.
struct LayerInputs {
  int64_t num_tokens = 0;
  const void* x = nullptr;              // bf16 [num_tokens, hidden]
  const int32_t* topk_ids = nullptr;    // [num_tokens, top_k]
  const float* topk_weights = nullptr;  // [num_tokens, top_k]
};

/// What came out.
struct LayerOutcome {
  std::vector<float> y;  // [num_tokens, hidden]; bf16 outputs are widened
  double us = 0;         // median of the repeats
  uint64_t arena_nbytes = 0;
  uint64_t weights_nbytes = 0;
};

/// A layer prepared for one backend. Every run starts from an arena and an output full of NaN.
class LayerRunner {
 public:
  static Result<LayerRunner> make(const Checkpoint& checkpoint, int32_t layer_index,
                                  const snug_caps& caps, const snug_device& device, bool progress);
  Result<LayerOutcome> run(const LayerInputs& inputs, int repeats);

 private:
  LayerRunner(snug_caps caps, Plan plan, Memory storage, Weights weights)
      : caps_(caps),
        plan_(std::move(plan)),
        storage_(std::move(storage)),
        weights_(std::move(weights)) {}

  snug_caps caps_;
  Plan plan_;
  Memory storage_;
  Weights weights_;
};

/// The device entry of a backend for running here: "cpu" and "reference" as known, "cuda" as h200.
Result<snug_device> device_of_backend(int32_t backend);

/// max over rows of |y - reference|_2 / |reference|_2; a row of zeros that is not met, and any NaN,
/// gives infinity.
double relative_l2_max_row(const std::vector<float>& y, const float* reference, int64_t rows,
                           int64_t columns);

}  // namespace snug::cli
