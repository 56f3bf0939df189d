// SPDX-License-Identifier: Apache-2.0
// snug.h: prepared weights.
#include "api/convert.h"
#include "api/handles.h"

using namespace snug;
using namespace snug::api;

namespace {

Status check_layer(const PackedLayout& need, const MoeLayer& have, int32_t tp_size) {
  if (have.format != need.format) {
    return make_error(Code::invalid_argument, "layer: is %s, the plan is for %s",
                      format_info(have.format).name, format_info(need.format).name);
  }
  if (have.hidden != need.hidden || have.intermediate != int64_t{need.intermediate} * tp_size) {
    return make_error(Code::invalid_argument,
                      "layer: has hidden %d, intermediate %d; the plan is for %d, %d on %d ranks",
                      have.hidden, have.intermediate, need.hidden, need.intermediate, tp_size);
  }
  if (have.gated != need.gated || have.has_bias != need.has_bias) {
    return make_error(Code::invalid_argument,
                      "layer: is %sgated with %s bias; the plan is %sgated with %s bias",
                      have.gated ? "" : "un", have.has_bias ? "a" : "no", need.gated ? "" : "un",
                      need.has_bias ? "a" : "no");
  }
  return {};
}

Status check_shard(const snug_shard& shard, const PackedLayout& layout, const MoeLayer& layer) {
  if (shard.tp_size < 1 || shard.tp_rank < 0 || shard.tp_rank >= shard.tp_size) {
    return make_error(Code::invalid_argument, "shard: have tp_rank %d of tp_size %d", shard.tp_rank,
                      shard.tp_size);
  }
  if (shard.experts == nullptr && layout.num_local_experts != layer.num_experts) {
    return make_error(Code::invalid_argument,
                      "shard.experts: is null, but %d of %d experts are local (a list is needed)",
                      layout.num_local_experts, layer.num_experts);
  }
  return {};
}

Status load(WeightsBuilder& builder, const Checkpoint& checkpoint, int32_t layer_index,
            const snug_shard* given, int32_t num_threads, const Progress& progress) {
  if (given != nullptr) SNUG_RETURN_IF_ERROR(check_descriptor("shard", given));
  const snug_shard whole = {sizeof whole, 0, 1, 0, nullptr};
  const snug_shard& shard = given != nullptr ? *given : whole;
  if (layer_index < 0 || layer_index >= static_cast<int32_t>(checkpoint.layers().size())) {
    return make_error(Code::invalid_argument, "layer_index: have %d, the checkpoint has %zu",
                      layer_index, checkpoint.layers().size());
  }
  if (num_threads < 1 || num_threads > kMaxThreads) {
    return make_error(Code::invalid_argument, "num_threads: have %d, need 1..%d", num_threads,
                      kMaxThreads);
  }
  const MoeLayer& layer = checkpoint.layers()[static_cast<size_t>(layer_index)];
  SNUG_RETURN_IF_ERROR(check_shard(shard, builder.layout(), layer));
  SNUG_RETURN_IF_ERROR(check_layer(builder.layout(), layer, shard.tp_size));
  const auto source_of = [&](int32_t local) -> Result<ExpertSource> {
    const int32_t global = shard.experts != nullptr ? shard.experts[local] : local;
    SNUG_ASSIGN_OR_RETURN(const ExpertSource source, checkpoint.expert(layer, global));
    return shard_expert(source, layer.format, layer.intermediate, shard.tp_rank, shard.tp_size);
  };
  return prepare_all(builder, source_of, num_threads, progress);
}

}  // namespace

extern "C" {

void snug_expert_source_init(snug_expert_source* source) {
  if (source == nullptr) return;
  std::memset(source, 0, sizeof *source);
  source->struct_size = sizeof *source;
  for (snug_matrix* matrix : {&source->gate, &source->up, &source->down}) {
    matrix->global_scale = 1;
    matrix->row_step = 1;
    matrix->e8m0_bias = 127;
  }
}

snug_status snug_weights_create(const snug_plan* plan, void* storage, uint64_t storage_nbytes,
                                snug_weights** weights, snug_error* error) {
  if (weights == nullptr) return finish(null_argument("weights"), error);
  *weights = nullptr;
  if (plan == nullptr) return finish(null_argument("plan"), error);
  Result<WeightsBuilder> made = WeightsBuilder::make(
      packed_layout(plan->value), static_cast<uint8_t*>(storage), storage_nbytes);
  if (!made.has_value()) return finish(made.error(), error);
  *weights = new snug_weights{std::move(made).value()};
  return SNUG_OK;
}

void snug_weights_destroy(snug_weights* weights) { delete weights; }

snug_status snug_weights_put(snug_weights* weights, int32_t expert,
                             const snug_expert_source* source, snug_error* error) {
  if (weights == nullptr) return finish(null_argument("weights"), error);
  const Result<ExpertSource> read = read_expert_source(source);
  if (!read.has_value()) return finish(read.error(), error);
  return finish(weights->builder.put(expert, *read), error);
}

snug_status snug_weights_update(snug_weights* weights, int32_t expert,
                                const snug_expert_source* source, snug_error* error) {
  if (weights == nullptr) return finish(null_argument("weights"), error);
  const Result<ExpertSource> read = read_expert_source(source);
  if (!read.has_value()) return finish(read.error(), error);
  return finish(weights->builder.update(expert, *read), error);
}

snug_status snug_weights_load(snug_weights* weights, const snug_checkpoint* checkpoint,
                              int32_t layer_index, const snug_shard* shard, int32_t num_threads,
                              snug_progress progress, void* context, snug_error* error) {
  if (weights == nullptr) return finish(null_argument("weights"), error);
  if (checkpoint == nullptr) return finish(null_argument("checkpoint"), error);
  Progress callback;
  if (progress != nullptr) {
    callback = [=](int64_t done, int64_t total) { return progress(context, done, total); };
  }
  return finish(
      load(weights->builder, checkpoint->value, layer_index, shard, num_threads, callback), error);
}

snug_status snug_weights_check(const snug_weights* weights, snug_error* error) {
  if (weights == nullptr) return finish(null_argument("weights"), error);
  return finish(weights->builder.check_complete(), error);
}

}  // extern "C"
