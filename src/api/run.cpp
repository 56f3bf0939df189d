// SPDX-License-Identifier: Apache-2.0
// snug.h: bind and run.
#include <new>

#include "api/convert.h"
#include "api/handles.h"

using namespace snug;
using namespace snug::api;

namespace {

/// What a snug_binding holds. The magic word tells a bound one from uninitialised memory.
struct Binding {
  static constexpr uint64_t kMagic = 0x736e7567'62696e64;  // "snugbind"
  uint64_t magic;
  Status (*run)(const Bound& bound, void* stream);
  bool takes_stream;
  Bound bound;
};
static_assert(sizeof(Binding) <= sizeof(snug_binding), "the caller's plain data holds it");
static_assert(std::is_trivially_copyable_v<Binding>);

Status read_io(const snug_io* from, IoView* io) {
  SNUG_RETURN_IF_ERROR(check_descriptor("io", from));
  io->num_tokens = from->num_tokens;
  io->x = from->x;
  io->x_stride = from->x_stride;
  io->topk_ids = from->topk_ids;
  io->ids_dtype = static_cast<DType>(from->ids_dtype);
  io->ids_stride = from->ids_stride;
  io->topk_weights = from->topk_weights;
  io->weights_dtype = static_cast<DType>(from->weights_dtype);
  io->weights_stride = from->weights_stride;
  io->expert_map = from->expert_map;
  io->output = from->output;
  io->output_stride = from->output_stride;
  io->arena = from->arena;
  io->arena_nbytes = from->arena_nbytes;
  return read_flag("io.allow_replicas", from->allow_replicas, &io->allow_replicas);
}

Status bind_io(const Plan& plan, const WeightsBuilder& weights, const snug_io* from,
               Binding* binding) {
  const Backend& backend = backend_of(plan.device.machine);
  if (backend.run == nullptr) {
    return make_error(Code::unsupported, "plan: is for %s (%s), this build has no kernels for it",
                      plan.device.name, machine_name(backend.machine));
  }
  SNUG_RETURN_IF_ERROR(weights.check_complete());
  IoView io;
  SNUG_RETURN_IF_ERROR(read_io(from, &io));
  const Executor executor = {from->parallel, from->parallel_context};
  SNUG_RETURN_IF_ERROR(
      bind(plan, {weights.layout(), weights.data()}, io, executor, &binding->bound));
  binding->run = backend.run;
  binding->takes_stream = backend.machine == Machine::cuda;
  binding->magic = Binding::kMagic;
  return {};
}

}  // namespace

extern "C" {

void snug_io_init(snug_io* io) {
  if (io == nullptr) return;
  std::memset(io, 0, sizeof *io);
  io->struct_size = sizeof *io;
  io->ids_dtype = SNUG_S32;
  io->weights_dtype = SNUG_F32;
}

snug_status snug_bind(const snug_plan* plan, const snug_weights* weights, const snug_io* io,
                      snug_binding* binding, snug_error* error) {
  if (binding == nullptr) return finish(null_argument("binding"), error);
  Binding* to = new (binding->opaque) Binding;
  to->magic = 0;
  if (plan == nullptr) return finish(null_argument("plan"), error);
  if (weights == nullptr) return finish(null_argument("weights"), error);
  return finish(bind_io(plan->value, weights->builder, io, to), error);
}

snug_status snug_run(const snug_binding* binding, void* stream, snug_error* error) {
  if (binding == nullptr) return finish(null_argument("binding"), error);
  const Binding& bound = *reinterpret_cast<const Binding*>(binding->opaque);
  if (bound.magic != Binding::kMagic) {
    return finish(make_error(Code::invalid_argument, "binding: was not made by snug_bind"), error);
  }
  if (stream != nullptr && !bound.takes_stream) {
    return finish(make_error(Code::invalid_argument, "stream: must be null on this backend"),
                  error);
  }
  return finish(bound.run(bound.bound, stream), error);
}

}  // extern "C"
