// SPDX-License-Identifier: Apache-2.0
#include "golden.h"

#include <fmt/core.h>

#include <cstring>
#include <filesystem>

namespace snug::cli {

namespace {

/// layers.N.name with the given dtype and shape, or null when absent.
Result<const void*> matrix(const Checkpoint& file, int32_t layer, const std::string& name,
                           int32_t dtype, int64_t rows, int64_t columns, int64_t* rows_out) {
  const std::string full = fmt::format("layers.{}.{}", layer, name);
  const Result<snug_tensor> tensor = file.tensor(full.c_str());
  if (!tensor) {
    if (tensor.error().code() == SNUG_INVALID_ARGUMENT) return static_cast<const void*>(nullptr);
    return tensor.error();
  }
  const bool fits = tensor->dtype == dtype && tensor->rank == 2 && tensor->shape[1] == columns &&
                    (rows < 0 || tensor->shape[0] == rows);
  if (!fits) {
    return make_error(SNUG_CORRUPT_CHECKPOINT,
                      fmt::format("{}: has another dtype or shape than [{}, {}]", full,
                                  rows < 0 ? "tokens" : std::to_string(rows), columns));
  }
  if (reinterpret_cast<uintptr_t>(tensor->data) % 4 != 0) {
    return make_error(SNUG_CORRUPT_CHECKPOINT, full + ": is not aligned to 4 bytes in its file");
  }
  if (rows_out != nullptr) *rows_out = tensor->shape[0];
  return tensor->data;
}

}  // namespace

Error make_error(snug_status code, const std::string& message) {
  Error error;
  error.out()->code = code;
  std::strncpy(error.out()->message, message.c_str(), sizeof error.out()->message - 1);
  return error;
}

Result<Golden> Golden::open(const std::string& path) {
  Result<Checkpoint> file = Checkpoint::open(path.c_str());
  if (!file) return file.error();
  return Golden(std::move(file).value());
}

Result<std::optional<LayerInputs>> Golden::inputs(int32_t layer, int64_t hidden,
                                                  int64_t top_k) const {
  LayerInputs inputs;
  int64_t tokens = -1;
  const Result<const void*> x = matrix(file_, layer, "x", SNUG_BF16, -1, hidden, &tokens);
  if (!x) return x.error();
  if (*x == nullptr) return std::optional<LayerInputs>();
  const Result<const void*> ids =
      matrix(file_, layer, "topk_ids", SNUG_S32, tokens, top_k, nullptr);
  if (!ids) return ids.error();
  const Result<const void*> weights =
      matrix(file_, layer, "topk_weights", SNUG_F32, tokens, top_k, nullptr);
  if (!weights) return weights.error();
  if (*ids == nullptr || *weights == nullptr) {
    return make_error(SNUG_CORRUPT_CHECKPOINT,
                      fmt::format("layers.{}: has x but lacks topk_ids or topk_weights", layer));
  }
  inputs.num_tokens = tokens;
  inputs.x = *x;
  inputs.topk_ids = static_cast<const int32_t*>(*ids);
  inputs.topk_weights = static_cast<const float*>(*weights);
  return std::optional<LayerInputs>(inputs);
}

Result<const float*> Golden::output(int32_t layer, const std::string& name, int64_t tokens,
                                    int64_t hidden) const {
  const Result<const void*> y = matrix(file_, layer, name, SNUG_F32, tokens, hidden, nullptr);
  if (!y) return y.error();
  return static_cast<const float*>(*y);
}

std::string golden_inputs_path(const std::string& model) {
  return (std::filesystem::path(model) / "golden.safetensors").string();
}

std::string golden_outputs_path(const std::string& model) {
  return (std::filesystem::path(model) / "golden-4bit.safetensors").string();
}

}  // namespace snug::cli
