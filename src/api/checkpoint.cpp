// SPDX-License-Identifier: Apache-2.0
// snug.h: checkpoints.
#include <string>

#include "api/convert.h"
#include "api/handles.h"
#include "weights/naming.h"

using namespace snug;
using namespace snug::api;

namespace {

/// "modelopt NVFP4", "mxfp4", "compressed-tensors nvfp4-pack-quantized": what the config says.
std::string quantization_of(const ModelConfig& config) {
  std::string text = config.quant_method;
  for (const std::string& part : {config.quant_algo, config.quant_format}) {
    if (part.empty()) continue;
    if (!text.empty()) text += " ";
    text += part;
  }
  return text;
}

Status check_layer_index(const Checkpoint& checkpoint, int32_t index) {
  const int32_t count = static_cast<int32_t>(checkpoint.layers().size());
  if (index >= 0 && index < count) return {};
  return make_error(Code::invalid_argument, "layer index: have %d, the checkpoint has %d", index,
                    count);
}

Status fill_tensor(const Checkpoint& checkpoint, const char* name, snug_tensor* tensor) {
  SNUG_RETURN_IF_ERROR(check_descriptor("tensor", tensor));
  if (name == nullptr) return null_argument("name");
  const TensorView* view = checkpoint.find(name);
  if (view == nullptr) {
    return make_error(Code::invalid_argument, "name: no tensor \"%.120s\" in the checkpoint", name);
  }
  if (!view->dtype.has_value()) {
    return make_error(Code::unsupported, "%.120s: dtype %.*s has no word in Snug", name,
                      static_cast<int>(view->stored_dtype.size()), view->stored_dtype.data());
  }
  tensor->dtype = static_cast<int32_t>(*view->dtype);
  tensor->rank = view->rank;
  std::memcpy(tensor->shape, view->shape, sizeof tensor->shape);
  tensor->data = view->data;
  tensor->nbytes = view->nbytes;
  return {};
}

}  // namespace

extern "C" {

snug_status snug_checkpoint_open(const char* path, snug_checkpoint** checkpoint,
                                 snug_error* error) {
  if (checkpoint == nullptr) return finish(null_argument("checkpoint"), error);
  *checkpoint = nullptr;
  if (path == nullptr) return finish(null_argument("path"), error);
  Result<Checkpoint> opened = Checkpoint::open(path);
  if (!opened.has_value()) return finish(opened.error(), error);
  *checkpoint = new snug_checkpoint{std::move(opened).value()};
  return SNUG_OK;
}

void snug_checkpoint_close(snug_checkpoint* checkpoint) { delete checkpoint; }

snug_status snug_checkpoint_model(const snug_checkpoint* checkpoint, snug_model_info* info,
                                  snug_error* error) {
  if (checkpoint == nullptr) return finish(null_argument("checkpoint"), error);
  const Status status = check_descriptor("info", info);
  if (!status.ok()) return finish(status, error);
  const ModelConfig& config = checkpoint->value.config();
  size_t num_tensors = 0;
  for (const SafetensorsFile& shard : checkpoint->value.shards()) {
    num_tensors += shard.tensors().size();
  }
  info->has_config = config.has_config ? 1 : 0;
  info->hidden = config.hidden;
  info->intermediate = config.intermediate;
  info->num_experts = config.num_experts;
  info->top_k = config.top_k;
  info->num_layers = config.num_layers;
  info->num_tensors = static_cast<int32_t>(num_tensors);
  info->num_shards = static_cast<int32_t>(checkpoint->value.shards().size());
  info->activation = write_activation(config.activation);
  info->routing = write_routing(config.routing);
  copy_text(info->model_type, config.model_type);
  copy_text(info->quantization, quantization_of(config));
  return SNUG_OK;
}

int32_t snug_checkpoint_num_layers(const snug_checkpoint* checkpoint) {
  return checkpoint != nullptr ? static_cast<int32_t>(checkpoint->value.layers().size()) : 0;
}

snug_status snug_checkpoint_layer(const snug_checkpoint* checkpoint, int32_t index,
                                  snug_layer_info* info, snug_error* error) {
  if (checkpoint == nullptr) return finish(null_argument("checkpoint"), error);
  Status status = check_descriptor("info", info);
  if (status.ok()) status = check_layer_index(checkpoint->value, index);
  if (!status.ok()) return finish(status, error);
  const MoeLayer& layer = checkpoint->value.layers()[static_cast<size_t>(index)];
  info->layer = layer.layer;
  info->format = static_cast<int32_t>(layer.format);
  info->num_experts = layer.num_experts;
  info->hidden = layer.hidden;
  info->intermediate = layer.intermediate;
  info->gated = layer.gated ? 1 : 0;
  info->has_bias = layer.has_bias ? 1 : 0;
  info->source_nbytes = checkpoint->value.source_nbytes(layer);
  copy_text(info->scheme, kSchemes[layer.scheme].name);
  return SNUG_OK;
}

snug_status snug_checkpoint_tensor(const snug_checkpoint* checkpoint, const char* name,
                                   snug_tensor* tensor, snug_error* error) {
  if (checkpoint == nullptr) return finish(null_argument("checkpoint"), error);
  return finish(fill_tensor(checkpoint->value, name, tensor), error);
}

}  // extern "C"
