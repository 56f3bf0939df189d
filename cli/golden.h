// SPDX-License-Identifier: Apache-2.0
// Golden tensors beside a model: inputs of each expert layer and outputs to compare with.
//   layers.N.x             bf16 [tokens, hidden]     layers.N.topk_ids      s32 [tokens, top_k]
//   layers.N.topk_weights  f32 [tokens, top_k]       layers.N.y_FORMAT      f32 [tokens, hidden]
#pragma once

#include <optional>
#include <string>

#include "layer_runner.h"

namespace snug::cli {

/// An opened safetensors file with tensors of this kind.
class Golden {
 public:
  static Result<Golden> open(const std::string& path);

  /// The inputs of a layer, shapes and dtypes checked; empty when the file has none of them.
  Result<std::optional<LayerInputs>> inputs(int32_t layer, int64_t hidden, int64_t top_k) const;

  /// layers.N.<name>, f32 [tokens, hidden], or null when the file does not hold it.
  Result<const float*> output(int32_t layer, const std::string& name, int64_t tokens,
                              int64_t hidden) const;

 private:
  explicit Golden(Checkpoint file) : file_(std::move(file)) {}
  Checkpoint file_;
};

/// The model folder's own golden inputs, and the file of 4-bit outputs beside them.
std::string golden_inputs_path(const std::string& model);
std::string golden_outputs_path(const std::string& model);

/// An Error of the command line's own.
Error make_error(snug_status code, const std::string& message);

}  // namespace snug::cli
