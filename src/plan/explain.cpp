// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.h"

#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/integers.h"
#include "geometry/schedule.h"

namespace snug {

namespace {

using Json = nlohmann::ordered_json;

void append(std::string& text, const char* format, ...) __attribute__((format(printf, 2, 3)));

void append(std::string& text, const char* format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  text += line;
}

/// The regime whose last count needs the whole arena.
int32_t peak_regime(const Plan& plan) {
  for (int32_t r = 0; r < plan.num_regimes; ++r) {
    const Schedule s = make_schedule(plan, plan.regimes[r].last_tokens);
    if (s.layout.required_nbytes == plan.required_nbytes) return r;
  }
  return 0;
}

/// Work items of a step: CTAs of a persistent CUDA launch, tasks of a CPU chunk.
int64_t grid_of(const Plan& plan, const Schedule& s, Step step) {
  const KernelFamily& family = plan.families[s.policy.family];
  if (family.machine != Machine::cpu) return step == Step::route ? 1 : s.num_workers;
  const PackedLayout layout = packed_layout(plan);
  switch (step) {
    case Step::route:
      return 1;
    case Step::fc1:
      return fc1_panels(layout) *
             min_of<int64_t>(plan.caps.shape.num_local_experts, s.chunk_routes);
    default:
      return fc2_panels(layout);
  }
}

Json slices_json(const ArenaLayout& layout) {
  Json slices = Json::array();
  for (int i = 0; i < kNumSlices; ++i) {
    const Slice& slice = layout.slices[i];
    if (slice.nbytes == 0) continue;
    slices.push_back({{"name", slice_name(static_cast<SliceId>(i))},
                      {"offset", slice.offset},
                      {"nbytes", slice.nbytes},
                      {"dtype", dtype_name(slice.dtype)},
                      {"first", step_name(slice.first)},
                      {"last", step_name(slice.last)}});
  }
  return slices;
}

Json regime_json(const Plan& plan, const Regime& regime) {
  const Schedule s = make_schedule(plan, regime.last_tokens);
  const Prediction p = predict(plan, regime.last_tokens);
  Json steps = Json::array();
  for (int i = 0; i < kNumSteps; ++i) {
    const Step step = static_cast<Step>(i);
    steps.push_back({{"step", step_name(step)},
                     {"kernel", kernel_id(plan, s.policy, step)},
                     {"grid", grid_of(plan, s, step)},
                     {"nbytes", p.steps[i].nbytes},
                     {"flops", p.steps[i].flops},
                     {"us", p.steps[i].us}});
  }
  return {{"first_tokens", regime.first_tokens},
          {"last_tokens", regime.last_tokens},
          {"family", plan.families[regime.policy.family].name},
          {"route_tile", regime.policy.route_tile},
          {"chunk_tokens", regime.policy.chunk_tokens},
          {"column_block", regime.policy.column_block},
          {"required_nbytes", s.layout.required_nbytes},
          {"predicted_us", p.us},
          {"floor_us", p.floor_us},
          {"steps", std::move(steps)}};
}

Json caps_json(const Caps& caps) {
  return {{"hidden", caps.shape.hidden},
          {"intermediate", caps.shape.intermediate},
          {"num_experts", caps.shape.num_experts},
          {"num_local_experts", caps.shape.num_local_experts},
          {"top_k", caps.shape.top_k},
          {"format", format_info(caps.format).name},
          {"activation", activation_name(caps.activation.kind)},
          {"has_bias", caps.has_bias},
          {"router_weight_on_input", caps.router_weight_on_input},
          {"batch_invariant", caps.batch_invariant},
          {"output_dtype", dtype_name(caps.output_dtype)},
          {"max_tokens", caps.max_tokens},
          {"expected_tokens", caps.expected_tokens},
          {"arena_limit", caps.arena_limit},
          {"route_tile_pin", caps.route_tile_pin},
          {"num_threads", caps.num_threads},
          {"cpu_path", cpu_path_name(caps.cpu_path)}};
}

void append_regime(std::string& text, const Plan& plan, const Regime& regime) {
  const Schedule s = make_schedule(plan, regime.last_tokens);
  const Prediction p = predict(plan, regime.last_tokens);
  append(text, "\n%lld..%lld tokens: %s, route tile %d, chunks of %lld tokens",
         static_cast<long long>(regime.first_tokens), static_cast<long long>(regime.last_tokens),
         plan.families[regime.policy.family].name, regime.policy.route_tile,
         static_cast<long long>(regime.policy.chunk_tokens));
  if (regime.policy.column_block > 0) {
    append(text, ", %d column block%s of %d", s.column_blocks, s.column_blocks == 1 ? "" : "s",
           regime.policy.column_block);
  }
  append(text, "\n  at %lld tokens: %llu arena bytes, predicted %.1f us (floor %.1f us)\n",
         static_cast<long long>(regime.last_tokens),
         static_cast<unsigned long long>(s.layout.required_nbytes), p.us, p.floor_us);
  for (int i = 0; i < kNumSteps; ++i) {
    const Step step = static_cast<Step>(i);
    append(text, "  %-8s %-44s grid %-6lld %10.2f MB %10.3f GFLOP %9.1f us\n", step_name(step),
           kernel_id(plan, s.policy, step).c_str(), static_cast<long long>(grid_of(plan, s, step)),
           p.steps[i].nbytes * 1e-6, p.steps[i].flops * 1e-9, p.steps[i].us);
  }
}

}  // namespace

std::string kernel_id(const Plan& plan, const Policy& policy, Step step) {
  const std::string_view name = plan.families[policy.family].name;  // "<arch>.<loop>"
  const size_t dot = name.find('.');
  const std::string_view arch = name.substr(0, dot);
  std::string id = machine_name(plan.device.machine);
  id.append(".").append(arch).append(".").append(step_name(step)).append(".w4a16.");
  id.append(format_info(plan.caps.format).name);
  if (dot != std::string_view::npos) id.append(name.substr(dot));
  return id.append(".t").append(std::to_string(policy.route_tile));
}

std::string explain_text(const Plan& plan, bool can_run) {
  const Caps& caps = plan.caps;
  std::string text;
  append(text, "layer     %d experts (%d here), top-%d, hidden %d, intermediate %d, %s, %s\n",
         caps.shape.num_experts, caps.shape.num_local_experts, caps.shape.top_k, caps.shape.hidden,
         caps.shape.intermediate, format_info(caps.format).name,
         activation_name(caps.activation.kind));
  append(text, "device    %s: %d units, %.0f GB/s, %.4g TFLOP/s%s\n", plan.device.name,
         plan.device.num_units, plan.device.read_gbps, plan.device.matrix_tflops,
         can_run ? "" : " (priced only: this build has no kernels for it)");
  append(text, "weights   %llu bytes\n", static_cast<unsigned long long>(plan.weights_nbytes));
  append(text, "arena     %llu bytes for up to %lld tokens\n",
         static_cast<unsigned long long>(plan.required_nbytes),
         static_cast<long long>(caps.max_tokens));
  if (plan.predicted_us > plan.unlimited_us * 1.0001) {
    append(text, "limit     %llu bytes: predicted %.3f times the time without a limit\n",
           static_cast<unsigned long long>(caps.arena_limit),
           plan.predicted_us / plan.unlimited_us);
  }
  for (int32_t r = 0; r < plan.num_regimes; ++r) append_regime(text, plan, plan.regimes[r]);

  const Regime& peak = plan.regimes[peak_regime(plan)];
  append(text, "\narena map at %lld tokens (the peak)\n", static_cast<long long>(peak.last_tokens));
  const Schedule s = make_schedule(plan, peak.last_tokens);
  for (int i = 0; i < kNumSlices; ++i) {
    const Slice& slice = s.layout.slices[i];
    if (slice.nbytes == 0) continue;
    append(text, "  %12llu %12llu  %-5s %-14s live %s..%s\n",
           static_cast<unsigned long long>(slice.offset),
           static_cast<unsigned long long>(slice.nbytes), dtype_name(slice.dtype),
           slice_name(static_cast<SliceId>(i)), step_name(slice.first), step_name(slice.last));
  }
  append(text, "\nkernel families\n");
  for (int32_t f = 0; f < plan.num_families; ++f) {
    append(text, "  %-16s %s\n", plan.families[f].name,
           plan.verdicts[f].accepted() ? "accepted" : plan.verdicts[f].reason);
  }
  return text;
}

std::string explain_json(const Plan& plan, bool can_run) {
  Json regimes = Json::array();
  for (int32_t r = 0; r < plan.num_regimes; ++r) {
    regimes.push_back(regime_json(plan, plan.regimes[r]));
  }
  Json families = Json::array();
  for (int32_t f = 0; f < plan.num_families; ++f) {
    families.push_back({{"name", plan.families[f].name},
                        {"accepted", plan.verdicts[f].accepted()},
                        {"reason", plan.verdicts[f].reason}});
  }
  const Regime& peak = plan.regimes[peak_regime(plan)];
  const Json json = {
      {"device",
       {{"name", plan.device.name},
        {"backend", machine_name(plan.device.machine)},
        {"arch", plan.device.arch},
        {"num_units", plan.device.num_units},
        {"l2_nbytes", plan.device.l2_nbytes},
        {"read_gbps", plan.device.read_gbps},
        {"matrix_tflops", plan.device.matrix_tflops}}},
      {"caps", caps_json(plan.caps)},
      {"can_run", can_run},
      {"required_nbytes", plan.required_nbytes},
      {"weights_nbytes", plan.weights_nbytes},
      {"predicted_us", plan.predicted_us},
      {"slowdown", plan.unlimited_us > 0 ? plan.predicted_us / plan.unlimited_us : 1.0},
      {"peak_tokens", peak.last_tokens},
      {"slices", slices_json(make_schedule(plan, peak.last_tokens).layout)},
      {"regimes", std::move(regimes)},
      {"families", std::move(families)},
  };
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace snug
