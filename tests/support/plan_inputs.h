// SPDX-License-Identifier: Apache-2.0
// Layers, devices and kernel tables that the planner's tests share.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <ostream>
#include <span>
#include <utility>

#include "backend/cpu/kernels.h"
#include "backend/cuda/kernels.h"
#include "backend/reference/kernels.h"
#include "plan/plan.h"

namespace snug {

/// rapidcheck prints a failing layer with this.
inline void showValue(const Caps& c, std::ostream& os) {
  os << "E " << c.shape.num_experts << " (" << c.shape.num_local_experts << " here) k "
     << c.shape.top_k << " H " << c.shape.hidden << " I " << c.shape.intermediate << " "
     << format_info(c.format).name << " " << activation_name(c.activation.kind) << " bias "
     << c.has_bias << " invariant " << c.batch_invariant << " out " << dtype_name(c.output_dtype)
     << " max " << c.max_tokens << " expected " << c.expected_tokens << " limit " << c.arena_limit
     << " pin " << c.route_tile_pin << " threads " << c.num_threads;
}

}  // namespace snug

namespace snug::test {

/// The kernel table of the backend that drives a device.
inline std::span<const KernelFamily> families_of(const Device& device) {
  switch (device.machine) {
    case Machine::reference:
      return reference::kFamilies;
    case Machine::cpu:
      return cpu::kFamilies;
    case Machine::cuda:
      return cuda::kFamilies;
  }
  return {};
}

inline Device device_named(const char* name) {
  const Result<Device> device = device_by_name(name);
  if (!device) ADD_FAILURE() << device.error().message;
  return device ? *device : Device{};
}

/// nvfp4, silu, no bias, all experts local.
inline Caps make_caps(int32_t num_experts, int32_t top_k, int32_t hidden, int32_t intermediate,
                      int64_t max_tokens) {
  Caps caps;
  caps.shape = {hidden, intermediate, num_experts, num_experts, top_k};
  caps.max_tokens = max_tokens;
  return caps;
}

/// The layer of the published byte counts.
inline Caps published_layer(int64_t max_tokens) { return make_caps(160, 8, 6144, 512, max_tokens); }

/// A plan that must exist; a failure is reported and leaves an empty plan.
inline Plan must_plan(const Caps& caps, const Device& device) {
  Result<Plan> plan = make_plan(caps, device, families_of(device));
  if (!plan) ADD_FAILURE() << device.name << ": " << plan.error().message;
  return plan ? *plan : Plan{};
}

/// The same whatever the size that rapidcheck is at: it starts with small ones only.
template <class T>
rc::Gen<T> at_full_size(rc::Gen<T> gen) {
  return rc::gen::resize(rc::kNominalSize, std::move(gen));
}

/// 1..most, small counts as likely as large ones.
inline rc::Gen<int64_t> any_count(int64_t most) {
  return at_full_size(rc::gen::exec([most] {
    const int shift = *rc::gen::inRange(0, 63 - __builtin_clzll(static_cast<uint64_t>(most)) + 1);
    const int64_t low = int64_t{1} << shift;
    return *rc::gen::inRange(low, std::min(2 * low, most + 1));
  }));
}

/// A valid layer without pin, limit and expectation; some of them are ranks without experts.
inline rc::Gen<Caps> any_layer() {
  return at_full_size(rc::gen::exec([] {
    Caps c;
    c.format = *rc::gen::element(Format::nvfp4, Format::mxfp4);
    const int32_t group = format_info(c.format).group_size;
    const auto experts = static_cast<int32_t>(*any_count(512));
    c.shape.num_experts = experts;
    c.shape.num_local_experts =
        *rc::gen::weightedOneOf<int32_t>({{3, rc::gen::just(experts)},
                                          {1, rc::gen::inRange(0, experts + 1)},
                                          {1, rc::gen::just(0)}});
    c.shape.top_k = *rc::gen::inRange(1, kMaxTopK + 1);
    c.shape.hidden = static_cast<int32_t>(*any_count(256)) * group;
    c.shape.intermediate = static_cast<int32_t>(*any_count(128)) * group;
    c.activation =
        *rc::gen::element(Activation{}, Activation{ActivationKind::relu2}, swiglu_oai_default());
    c.has_bias = *rc::gen::arbitrary<bool>();
    c.batch_invariant = *rc::gen::element(false, false, false, true);
    c.output_dtype = *rc::gen::element(DType::bf16, DType::f32);
    c.num_threads = *rc::gen::element(1, 2, 7, 64);
    c.max_tokens = *any_count(200'000);
    return c;
  }));
}

}  // namespace snug::test
