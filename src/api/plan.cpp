// SPDX-License-Identifier: Apache-2.0
// snug.h: version, devices, caps, plan.
#include <new>
#include <string>

#include "api/convert.h"
#include "plan/compare.h"
#include "plan/explain.h"

using namespace snug;
using namespace snug::api;

#define SNUG_TEXT_OF(x) #x
#define SNUG_TEXT(x) SNUG_TEXT_OF(x)

extern "C" {

const char* snug_version(void) {
  return SNUG_TEXT(SNUG_VERSION_MAJOR) "." SNUG_TEXT(SNUG_VERSION_MINOR) "." SNUG_TEXT(
      SNUG_VERSION_PATCH);
}

const char* snug_status_name(int32_t status) { return code_name(static_cast<Code>(status)); }

int32_t snug_num_known_devices(void) { return static_cast<int32_t>(known_devices().size()); }

snug_status snug_known_device(int32_t index, snug_device* device, snug_error* error) {
  if (device == nullptr) return finish(null_argument("device"), error);
  if (index < 0 || index >= snug_num_known_devices()) {
    return finish(make_error(Code::invalid_argument, "index: have %d, need 0..%d", index,
                             snug_num_known_devices() - 1),
                  error);
  }
  write_device(known_devices()[static_cast<size_t>(index)], device);
  return SNUG_OK;
}

snug_status snug_device_by_name(const char* name, snug_device* device, snug_error* error) {
  if (name == nullptr) return finish(null_argument("name"), error);
  if (device == nullptr) return finish(null_argument("device"), error);
  const Result<Device> found = device_by_name(name);
  if (found.has_value()) write_device(*found, device);
  return finish(found.error(), error);
}

void snug_caps_init(snug_caps* caps) {
  if (caps == nullptr) return;
  std::memset(caps, 0, sizeof *caps);
  caps->struct_size = sizeof *caps;
  caps->num_experts = caps->num_local_experts = caps->top_k = caps->num_threads = 1;
  caps->activation = write_activation({});
}

}  // extern "C"

namespace {

Result<Plan> plan_of(const snug_caps* caps, const snug_device* device) {
  SNUG_ASSIGN_OR_RETURN(const Caps read, read_caps(caps));
  SNUG_ASSIGN_OR_RETURN(const Device where, read_device(device));
  return make_plan(read, where, backend_of(where.machine).families);
}

Result<uint64_t> reference_nbytes_of(const snug_caps* caps, const snug_device* device,
                                     int32_t unbounded) {
  SNUG_ASSIGN_OR_RETURN(const Caps read, read_caps(caps));
  SNUG_ASSIGN_OR_RETURN(const Device where, read_device(device));
  bool sweep = false;
  SNUG_RETURN_IF_ERROR(read_flag("unbounded", unbounded, &sweep));
  return reference_nbytes(read, where, sweep);
}

Result<std::string> refusals_of(const snug_caps* caps, const snug_device* device) {
  SNUG_ASSIGN_OR_RETURN(const Caps read, read_caps(caps));
  SNUG_ASSIGN_OR_RETURN(const Device where, read_device(device));
  std::string text;
  const Status status = check_caps(read);
  if (!status.ok()) text.append("layer: ").append(status.message).append("\n");
  for (const KernelFamily& family : backend_of(where.machine).families) {
    const Verdict verdict = judge_family(read, where, family);
    text.append(family.name).append(": ");
    text.append(verdict.accepted() ? "accepted" : verdict.reason).append("\n");
  }
  return text;
}

}  // namespace

extern "C" {

snug_status snug_required_nbytes(const snug_caps* caps, const snug_device* device,
                                 uint64_t* required, snug_error* error) {
  if (required == nullptr) return finish(null_argument("required_nbytes"), error);
  const Result<Plan> plan = plan_of(caps, device);
  if (plan.has_value()) *required = plan->required_nbytes;
  return finish(plan.error(), error);
}

snug_status snug_plan_create(const snug_caps* caps, const snug_device* device, snug_plan** plan,
                             snug_error* error) {
  if (plan == nullptr) return finish(null_argument("plan"), error);
  *plan = nullptr;
  const Result<Plan> made = plan_of(caps, device);
  if (made.has_value()) *plan = new snug_plan{*made};
  return finish(made.error(), error);
}

void snug_plan_destroy(snug_plan* plan) { delete plan; }

uint64_t snug_plan_required_nbytes(const snug_plan* plan) {
  return plan != nullptr ? plan->value.required_nbytes : 0;
}

uint64_t snug_plan_weights_nbytes(const snug_plan* plan) {
  return plan != nullptr ? plan->value.weights_nbytes : 0;
}

uint64_t snug_arena_alignment(void) { return kArenaAlignment; }
uint64_t snug_weights_alignment(void) { return kRecordAlignment; }

snug_status snug_plan_schedule(const snug_plan* plan, int64_t num_tokens, snug_schedule* schedule,
                               snug_error* error) {
  if (plan == nullptr) return finish(null_argument("plan"), error);
  const Status status = check_descriptor("schedule", schedule);
  if (!status.ok()) return finish(status, error);
  if (num_tokens < 0 || num_tokens > plan->value.caps.max_tokens) {
    return finish(make_error(Code::invalid_argument, "num_tokens: have %lld, need 0..%lld",
                             static_cast<long long>(num_tokens),
                             static_cast<long long>(plan->value.caps.max_tokens)),
                  error);
  }
  const Schedule made = make_schedule(plan->value, num_tokens);
  const Prediction predicted = predict(plan->value, num_tokens);
  *schedule = {sizeof *schedule,
               made.regime,
               num_tokens,
               made.policy.chunk_tokens,
               made.num_chunks,
               made.policy.route_tile,
               made.policy.column_block,
               made.layout.required_nbytes,
               predicted.us,
               predicted.floor_us};
  return SNUG_OK;
}

snug_status snug_plan_explain(const snug_plan* plan, int32_t json, char* buffer, size_t capacity,
                              size_t* needed, snug_error* error) {
  if (plan == nullptr) return finish(null_argument("plan"), error);
  bool as_json = false;
  const Status status = read_flag("json", json, &as_json);
  if (!status.ok()) return finish(status, error);
  const bool can_run = backend_of(plan->value.device.machine).run != nullptr;
  const std::string text =
      as_json ? explain_json(plan->value, can_run) : explain_text(plan->value, can_run);
  return finish(copy_out(text, buffer, capacity, needed), error);
}

snug_status snug_plan_refusals(const snug_caps* caps, const snug_device* device, char* buffer,
                               size_t capacity, size_t* needed, snug_error* error) {
  const Result<std::string> text = refusals_of(caps, device);
  if (!text.has_value()) return finish(text.error(), error);
  return finish(copy_out(*text, buffer, capacity, needed), error);
}

snug_status snug_reference_nbytes(const snug_caps* caps, const snug_device* device,
                                  int32_t unbounded, uint64_t* nbytes, snug_error* error) {
  if (nbytes == nullptr) return finish(null_argument("nbytes"), error);
  const Result<uint64_t> result = reference_nbytes_of(caps, device, unbounded);
  if (result.has_value()) *nbytes = *result;
  return finish(result.error(), error);
}

}  // extern "C"
