// SPDX-License-Identifier: Apache-2.0
#include "api/convert.h"

#include "backend/cpu/kernels.h"
#include "backend/cpu/run.h"
#include "backend/cuda/kernels.h"
#include "backend/reference/kernels.h"
#include "backend/reference/run.h"

namespace snug::api {

std::span<const Backend> backends() {
  static constexpr Backend kBackends[kNumMachines] = {
      {Machine::reference, reference::kFamilies, reference::run},
      {Machine::cpu, cpu::kFamilies, cpu::run},
      {Machine::cuda, cuda::kFamilies, nullptr},
  };
  return kBackends;
}

const Backend& backend_of(Machine machine) { return backends()[static_cast<size_t>(machine)]; }

Result<Caps> read_caps(const snug_caps* from) {
  SNUG_RETURN_IF_ERROR(check_descriptor("caps", from));
  Caps caps;
  caps.shape = {from->hidden, from->intermediate, from->num_experts, from->num_local_experts,
                from->top_k};
  caps.format = static_cast<Format>(from->format);
  caps.activation = {static_cast<ActivationKind>(from->activation.kind), from->activation.alpha,
                     from->activation.beta, from->activation.limit};
  SNUG_RETURN_IF_ERROR(read_flag("has_bias", from->has_bias, &caps.has_bias));
  SNUG_RETURN_IF_ERROR(read_flag("router_weight_on_input", from->router_weight_on_input,
                                 &caps.router_weight_on_input));
  SNUG_RETURN_IF_ERROR(read_flag("batch_invariant", from->batch_invariant, &caps.batch_invariant));
  caps.output_dtype = static_cast<DType>(from->output_dtype);
  caps.numerics = static_cast<Numerics>(from->numerics);
  caps.route_tile_pin = from->route_tile_pin;
  caps.num_threads = from->num_threads;
  caps.cpu_path = static_cast<CpuPath>(from->cpu_path);
  caps.max_tokens = from->max_tokens;
  caps.expected_tokens = from->expected_tokens;
  caps.arena_limit = from->arena_limit;
  return caps;
}

Result<Device> read_device(const snug_device* from) {
  SNUG_RETURN_IF_ERROR(check_descriptor("device", from));
  Device device;
  device.machine = static_cast<Machine>(from->backend);
  device.arch = from->arch;
  device.num_units = from->num_units;
  device.smem_nbytes = from->smem_nbytes;
  device.l2_nbytes = from->l2_nbytes;
  device.read_gbps = from->read_gbps;
  device.matrix_tflops = from->matrix_tflops;
  device.step_us = from->step_us;
  copy_text(device.name, {from->name, strnlen(from->name, sizeof from->name)});
  SNUG_RETURN_IF_ERROR(check_device(device));
  return device;
}

void write_device(const Device& from, snug_device* to) {
  std::memset(to, 0, sizeof *to);
  to->struct_size = sizeof *to;
  to->backend = static_cast<int32_t>(from.machine);
  to->arch = from.arch;
  to->num_units = from.num_units;
  to->smem_nbytes = from.smem_nbytes;
  to->l2_nbytes = from.l2_nbytes;
  to->read_gbps = from.read_gbps;
  to->matrix_tflops = from.matrix_tflops;
  to->step_us = from.step_us;
  copy_text(to->name, from.name);
}

snug_activation write_activation(const Activation& from) {
  return {static_cast<int32_t>(from.kind), from.alpha, from.beta, from.limit};
}

snug_routing write_routing(const Routing& from) {
  return {sizeof(snug_routing),
          static_cast<int32_t>(from.score),
          from.renormalize ? 1 : 0,
          from.num_groups,
          from.topk_groups,
          static_cast<int32_t>(from.group_rank),
          from.scale};
}

Result<Routing> read_routing(const snug_routing* from) {
  SNUG_RETURN_IF_ERROR(check_descriptor("routing", from));
  Routing routing;
  routing.score = static_cast<Score>(from->score);
  SNUG_RETURN_IF_ERROR(read_flag("routing.renormalize", from->renormalize, &routing.renormalize));
  routing.num_groups = from->num_groups;
  routing.topk_groups = from->topk_groups;
  routing.group_rank = static_cast<GroupRank>(from->group_rank);
  routing.scale = from->scale;
  return routing;
}

namespace {

Status check_choice(const char* matrix, const char* field, int32_t have, int32_t last) {
  if (have >= 0 && have <= last) return {};
  return make_error(Code::invalid_argument, "%s.%s: have %d, need 0..%d", matrix, field, have,
                    last);
}

Status read_matrix(const char* name, const snug_matrix& from, MatrixSource* to) {
  SNUG_RETURN_IF_ERROR(check_choice(name, "nibble_order", from.nibble_order, 1));
  SNUG_RETURN_IF_ERROR(check_choice(name, "scale_order", from.scale_order, 1));
  SNUG_RETURN_IF_ERROR(check_choice(name, "global_scale_use", from.global_scale_use, 2));
  to->codes = from.codes;
  to->code_row_nbytes = from.code_row_nbytes;
  to->scales = from.scales;
  to->scale_row_nbytes = from.scale_row_nbytes;
  to->bias = from.bias;
  to->bias_dtype = static_cast<DType>(from.bias_dtype);
  to->nibble_order = static_cast<NibbleOrder>(from.nibble_order);
  to->scale_order = static_cast<ScaleOrder>(from.scale_order);
  to->global_scale_use = static_cast<GlobalScaleUse>(from.global_scale_use);
  to->global_scale = from.global_scale;
  to->e8m0_bias = from.e8m0_bias;
  to->rows = {from.first_row, from.row_step, from.first_k};
  return {};
}

}  // namespace

Result<ExpertSource> read_expert_source(const snug_expert_source* from) {
  SNUG_RETURN_IF_ERROR(check_descriptor("source", from));
  ExpertSource source;
  SNUG_RETURN_IF_ERROR(read_matrix("gate", from->gate, &source.gate));
  SNUG_RETURN_IF_ERROR(read_matrix("up", from->up, &source.up));
  SNUG_RETURN_IF_ERROR(read_matrix("down", from->down, &source.down));
  return source;
}

}  // namespace snug::api
