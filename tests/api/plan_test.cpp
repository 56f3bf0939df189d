// SPDX-License-Identifier: Apache-2.0
// api/plan.cpp through snug.h.
#include <gtest/gtest.h>
#include <snug/snug.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/tiny_checkpoint.h"

namespace snug {
namespace {

using test::c_device;
using test::LayerSpec;

snug_caps small_caps() { return test::caps_of(LayerSpec{}); }

snug_plan* must_plan(const snug_caps& caps, const char* device_name) {
  const snug_device device = c_device(device_name);
  snug_plan* plan = nullptr;
  snug_error error = {};
  EXPECT_EQ(snug_plan_create(&caps, &device, &plan, &error), SNUG_OK) << error.message;
  return plan;
}

TEST(Version, Text) {
  EXPECT_EQ(std::string(snug_version()), std::to_string(SNUG_VERSION_MAJOR) + "." +
                                             std::to_string(SNUG_VERSION_MINOR) + "." +
                                             std::to_string(SNUG_VERSION_PATCH));
}

TEST(Status, NamesOfAllCodes) {
  const char* names[] = {"ok",          "invalid_argument",
                         "unsupported", "arena_too_small",
                         "misaligned",  "corrupt_checkpoint",
                         "io",          "device",
                         "cancelled",   "internal"};
  for (int32_t i = 0; i < 10; ++i) EXPECT_STREQ(snug_status_name(i), names[i]);
  for (const int32_t outside : {-1, 10, INT32_MIN, INT32_MAX}) {
    EXPECT_STREQ(snug_status_name(outside), "unknown");
  }
}

TEST(Devices, ByIndexAndByNameAreTheSame) {
  const int32_t count = snug_num_known_devices();
  ASSERT_EQ(count, 12);
  for (int32_t i = 0; i < count; ++i) {
    snug_device by_index;
    std::memset(&by_index, 0x5A, sizeof by_index);
    ASSERT_EQ(snug_known_device(i, &by_index, nullptr), SNUG_OK);
    EXPECT_EQ(by_index.struct_size, sizeof by_index);
    EXPECT_EQ(by_index.reserved, 0);
    snug_device by_name;
    std::memset(&by_name, 0x77, sizeof by_name);
    ASSERT_EQ(snug_device_by_name(by_index.name, &by_name, nullptr), SNUG_OK);
    EXPECT_EQ(std::memcmp(&by_index, &by_name, sizeof by_name), 0) << by_index.name;
  }
  snug_device device;
  EXPECT_REFUSED(snug_known_device(count, &device, error), SNUG_INVALID_ARGUMENT,
                 "index: have 12, need 0..11");
  EXPECT_REFUSED(snug_known_device(-1, &device, error), SNUG_INVALID_ARGUMENT, "index: have -1");
  EXPECT_REFUSED(snug_known_device(0, nullptr, error), SNUG_INVALID_ARGUMENT, "device: is null");
  EXPECT_REFUSED(snug_device_by_name(nullptr, &device, error), SNUG_INVALID_ARGUMENT,
                 "name: is null");
  EXPECT_REFUSED(snug_device_by_name("cpu", nullptr, error), SNUG_INVALID_ARGUMENT,
                 "device: is null");
  EXPECT_REFUSED(snug_device_by_name("h100", &device, error), SNUG_INVALID_ARGUMENT,
                 "device: have \"h100\", need one of h200, rtx-pro-6000, a100, l40s, cpu-amx, "
                 "cpu-bf16, cpu-vnni, cpu-avx512, cpu-avx2, cpu-portable, reference, cpu");
  const std::string endless(4000, 'x');
  EXPECT_EQ(snug_device_by_name(endless.c_str(), &device, nullptr), SNUG_INVALID_ARGUMENT);
}

TEST(Caps, InitFillsEveryByte) {
  snug_caps caps;
  std::memset(&caps, 0x5A, sizeof caps);
  snug_caps_init(&caps);
  snug_caps want;
  std::memset(&want, 0, sizeof want);
  want.struct_size = sizeof want;
  want.num_experts = want.num_local_experts = want.top_k = want.num_threads = 1;
  want.activation.alpha = 1;
  EXPECT_EQ(std::memcmp(&caps, &want, sizeof caps), 0);
  snug_caps_init(nullptr);
}

// Each changed field is named; the plan handle is null, other outputs are as they were.
TEST(Caps, EveryFieldIsCheckedByName) {
  struct Case {
    std::function<void(snug_caps&)> change;
    snug_status code;
    const char* begins;
  };
  const Case cases[] = {
      {[](snug_caps& c) { c.struct_size = 0; }, SNUG_INVALID_ARGUMENT, "caps.struct_size: have 0"},
      {[](snug_caps& c) { c.struct_size += 4; }, SNUG_INVALID_ARGUMENT, "caps.struct_size"},
      {[](snug_caps& c) { c.has_bias = 2; }, SNUG_INVALID_ARGUMENT, "has_bias: have 2, need 0 or"},
      {[](snug_caps& c) { c.has_bias = -1; }, SNUG_INVALID_ARGUMENT, "has_bias: have -1"},
      {[](snug_caps& c) { c.router_weight_on_input = 2; }, SNUG_INVALID_ARGUMENT,
       "router_weight_on_input: have 2"},
      {[](snug_caps& c) { c.router_weight_on_input = 1; }, SNUG_UNSUPPORTED,
       "router_weight_on_input: have top_k 2"},
      {[](snug_caps& c) { c.batch_invariant = -1; }, SNUG_INVALID_ARGUMENT,
       "batch_invariant: have -1"},
      {[](snug_caps& c) { c.format = 2; }, SNUG_INVALID_ARGUMENT, "format: have 2, need 0..1"},
      {[](snug_caps& c) { c.format = -1; }, SNUG_INVALID_ARGUMENT, "format: have -1"},
      {[](snug_caps& c) { c.activation.kind = 7; }, SNUG_INVALID_ARGUMENT, "activation"},
      {[](snug_caps& c) { c.activation.kind = -1; }, SNUG_INVALID_ARGUMENT, "activation"},
      {[](snug_caps& c) { c.activation.limit = 1; }, SNUG_INVALID_ARGUMENT, "activation"},
      {[](snug_caps& c) { c.activation.kind = SNUG_SILU_CLAMPED; }, SNUG_INVALID_ARGUMENT,
       "activation"},
      {[](snug_caps& c) { c.output_dtype = SNUG_F16; }, SNUG_INVALID_ARGUMENT,
       "output_dtype: have f16, need bf16 or f32"},
      {[](snug_caps& c) { c.output_dtype = 99; }, SNUG_INVALID_ARGUMENT, "output_dtype: have unkn"},
      {[](snug_caps& c) { c.numerics = 3; }, SNUG_INVALID_ARGUMENT, "numerics: have 3, need 0..2"},
      {[](snug_caps& c) { c.numerics = -1; }, SNUG_INVALID_ARGUMENT, "numerics: have -1"},
      {[](snug_caps& c) { c.numerics = SNUG_NUMERICS_FLOAT64; }, SNUG_UNSUPPORTED, ""},
      {[](snug_caps& c) { c.route_tile_pin = 7; }, SNUG_UNSUPPORTED, ""},
      {[](snug_caps& c) { c.num_threads = 0; }, SNUG_INVALID_ARGUMENT, "num_threads: have 0"},
      {[](snug_caps& c) { c.num_threads = 1025; }, SNUG_INVALID_ARGUMENT, "num_threads: have 1025"},
      {[](snug_caps& c) { c.max_tokens = 0; }, SNUG_INVALID_ARGUMENT, "max_tokens: have 0"},
      {[](snug_caps& c) { c.max_tokens = (1 << 24) + 1; }, SNUG_INVALID_ARGUMENT, "max_tokens"},
      {[](snug_caps& c) { c.max_tokens = INT64_MIN; }, SNUG_INVALID_ARGUMENT, "max_tokens"},
      {[](snug_caps& c) { c.expected_tokens = 9; }, SNUG_INVALID_ARGUMENT,
       "expected_tokens: have 9"},
      {[](snug_caps& c) { c.expected_tokens = -1; }, SNUG_INVALID_ARGUMENT, "expected_tokens"},
      {[](snug_caps& c) { c.hidden = 0; }, SNUG_INVALID_ARGUMENT, "hidden: have 0"},
      {[](snug_caps& c) { c.hidden = 72; }, SNUG_UNSUPPORTED, "hidden: have 72, nvfp4 needs a mul"},
      {[](snug_caps& c) { c.intermediate = 1 << 18; }, SNUG_INVALID_ARGUMENT, "intermediate"},
      {[](snug_caps& c) { c.intermediate = 40; }, SNUG_UNSUPPORTED, "intermediate: have 40"},
      {[](snug_caps& c) { c.num_experts = 4097; }, SNUG_INVALID_ARGUMENT, "num_experts: have 4097"},
      {[](snug_caps& c) { c.num_local_experts = 3; }, SNUG_INVALID_ARGUMENT, "num_local_experts"},
      {[](snug_caps& c) { c.num_local_experts = -1; }, SNUG_INVALID_ARGUMENT, "num_local_experts"},
      {[](snug_caps& c) { c.top_k = 0; }, SNUG_INVALID_ARGUMENT, "top_k: have 0"},
      {[](snug_caps& c) { c.top_k = 33; }, SNUG_INVALID_ARGUMENT, "top_k: have 33, need 1..32"},
      {[](snug_caps& c) { c.arena_limit = 1; }, SNUG_ARENA_TOO_SMALL, "arena_limit: have 1"},
  };
  const snug_device device = c_device("cpu");
  for (const Case& c : cases) {
    SCOPED_TRACE(c.begins);
    snug_caps caps = small_caps();
    c.change(caps);
    auto* plan = reinterpret_cast<snug_plan*>(&caps);
    EXPECT_REFUSED(snug_plan_create(&caps, &device, &plan, error), c.code, c.begins);
    EXPECT_EQ(plan, nullptr);
    uint64_t nbytes = 77;
    EXPECT_REFUSED(snug_required_nbytes(&caps, &device, &nbytes, error), c.code, c.begins);
    EXPECT_EQ(nbytes, 77u);
  }
}

TEST(Caps, DevicesAreChecked) {
  const snug_caps caps = small_caps();
  uint64_t nbytes;
  const auto refused = [&](auto change, const char* begins) {
    snug_device device = c_device("cpu");
    change(device);
    EXPECT_REFUSED(snug_required_nbytes(&caps, &device, &nbytes, error), SNUG_INVALID_ARGUMENT,
                   begins);
  };
  refused([](snug_device& d) { d.struct_size = 8; }, "device.struct_size: have 8");
  refused([](snug_device& d) { d.backend = 3; }, "device.machine: have 3");
  refused([](snug_device& d) { d.backend = -1; }, "device.machine: have -1");
  refused([](snug_device& d) { d.num_units = 0; }, "device.num_units");
  refused([](snug_device& d) { d.read_gbps = std::nan(""); }, "device.read_gbps");
  refused([](snug_device& d) { d.matrix_tflops = -1; }, "device.matrix_tflops");
  refused([](snug_device& d) { d.step_us = std::numeric_limits<double>::infinity(); },
          "device.step_us");
  snug_device named = c_device("cpu");
  std::memset(named.name, 'x', sizeof named.name);  // no final zero
  EXPECT_EQ(snug_required_nbytes(&caps, &named, &nbytes, nullptr), SNUG_OK);
}

TEST(Plan, NullArgumentsAreNamed) {
  const snug_caps caps = small_caps();
  const snug_device device = c_device("cpu");
  snug_plan* plan = must_plan(caps, "cpu");
  snug_plan* made = nullptr;
  uint64_t nbytes;
  size_t needed;
  snug_schedule schedule = {};
  schedule.struct_size = sizeof schedule;
  const auto bad = SNUG_INVALID_ARGUMENT;
  EXPECT_REFUSED(snug_plan_create(nullptr, &device, &made, error), bad, "caps: is null");
  EXPECT_REFUSED(snug_plan_create(&caps, nullptr, &made, error), bad, "device: is null");
  EXPECT_REFUSED(snug_plan_create(&caps, &device, nullptr, error), bad, "plan: is null");
  EXPECT_REFUSED(snug_required_nbytes(nullptr, &device, &nbytes, error), bad, "caps: is null");
  EXPECT_REFUSED(snug_required_nbytes(&caps, nullptr, &nbytes, error), bad, "device: is null");
  EXPECT_REFUSED(snug_required_nbytes(&caps, &device, nullptr, error), bad,
                 "required_nbytes: is null");
  EXPECT_REFUSED(snug_plan_schedule(nullptr, 1, &schedule, error), bad, "plan: is null");
  EXPECT_REFUSED(snug_plan_schedule(plan, 1, nullptr, error), bad, "schedule: is null");
  EXPECT_REFUSED(snug_plan_explain(nullptr, 0, nullptr, 0, &needed, error), bad, "plan: is null");
  EXPECT_REFUSED(snug_plan_refusals(nullptr, &device, nullptr, 0, &needed, error), bad, "caps:");
  EXPECT_REFUSED(snug_plan_refusals(&caps, nullptr, nullptr, 0, &needed, error), bad, "device:");
  EXPECT_REFUSED(snug_reference_nbytes(nullptr, &device, 0, &nbytes, error), bad, "caps: is null");
  EXPECT_REFUSED(snug_reference_nbytes(&caps, nullptr, 0, &nbytes, error), bad, "device: is null");
  EXPECT_REFUSED(snug_reference_nbytes(&caps, &device, 0, nullptr, error), bad, "nbytes: is null");
  EXPECT_EQ(snug_plan_create(nullptr, nullptr, nullptr, nullptr), bad) << "without an error struct";
  EXPECT_EQ(snug_plan_required_nbytes(nullptr), 0u);
  EXPECT_EQ(snug_plan_weights_nbytes(nullptr), 0u);
  snug_plan_destroy(nullptr);
  snug_plan_destroy(plan);
}

TEST(Plan, AnErrorStructIsUntouchedOnSuccess) {
  const snug_caps caps = small_caps();
  const snug_device device = c_device("cpu");
  snug_error error, before;
  std::memset(&error, 0x5A, sizeof error);
  before = error;
  snug_plan* plan = nullptr;
  uint64_t nbytes;
  size_t needed;
  snug_schedule schedule = {};
  schedule.struct_size = sizeof schedule;
  snug_device found;
  EXPECT_EQ(snug_device_by_name("cpu", &found, &error), SNUG_OK);
  EXPECT_EQ(snug_known_device(0, &found, &error), SNUG_OK);
  EXPECT_EQ(snug_plan_create(&caps, &device, &plan, &error), SNUG_OK);
  EXPECT_EQ(snug_required_nbytes(&caps, &device, &nbytes, &error), SNUG_OK);
  EXPECT_EQ(nbytes, snug_plan_required_nbytes(plan));
  EXPECT_EQ(snug_plan_schedule(plan, 1, &schedule, &error), SNUG_OK);
  EXPECT_EQ(snug_plan_explain(plan, 1, nullptr, 0, &needed, &error), SNUG_OK);
  EXPECT_EQ(snug_plan_refusals(&caps, &device, nullptr, 0, &needed, &error), SNUG_OK);
  EXPECT_EQ(snug_reference_nbytes(&caps, &device, 1, &nbytes, &error), SNUG_OK);
  EXPECT_EQ(std::memcmp(&error, &before, sizeof error), 0);
  snug_plan_destroy(plan);
}

// The refusal names the smallest size; that size works and is kept.
TEST(Plan, AnArenaLimitThatCannotBeMetNamesOneThatCan) {
  snug_caps caps = small_caps();
  caps.max_tokens = 300;
  const snug_device device = c_device("cpu");
  caps.arena_limit = 1;
  uint64_t nbytes = 0;
  snug_error error = {};
  ASSERT_EQ(snug_required_nbytes(&caps, &device, &nbytes, &error), SNUG_ARENA_TOO_SMALL);
  const std::string message = error.message;
  const size_t digits = message.find_last_of("0123456789");
  ASSERT_NE(digits, std::string::npos) << message;
  const size_t before = message.find_last_not_of("0123456789", digits);
  const uint64_t smallest = std::stoull(message.substr(before + 1, digits - before));
  caps.arena_limit = smallest;
  ASSERT_EQ(snug_required_nbytes(&caps, &device, &nbytes, &error), SNUG_OK) << error.message;
  EXPECT_EQ(nbytes, smallest);
  caps.arena_limit = smallest - 1;
  EXPECT_EQ(snug_required_nbytes(&caps, &device, &nbytes, &error), SNUG_ARENA_TOO_SMALL);
  caps.arena_limit = 0;
  ASSERT_EQ(snug_required_nbytes(&caps, &device, &nbytes, &error), SNUG_OK);
  EXPECT_GT(nbytes, smallest);
}

TEST(Plan, SchedulesOfAllCounts) {
  snug_caps caps = small_caps();
  caps.max_tokens = 64;
  snug_plan* plan = must_plan(caps, "cpu");
  for (int64_t m = 0; m <= 64; ++m) {
    snug_schedule s;
    std::memset(&s, 0x5A, sizeof s);
    s.struct_size = sizeof s;
    ASSERT_EQ(snug_plan_schedule(plan, m, &s, nullptr), SNUG_OK);
    EXPECT_EQ(s.struct_size, sizeof s);
    EXPECT_EQ(s.num_tokens, m);
    EXPECT_LE(s.arena_nbytes, snug_plan_required_nbytes(plan));
    EXPECT_LT((s.num_chunks - 1) * s.chunk_tokens, std::max<int64_t>(m, 1));
    EXPECT_GE(s.num_chunks * s.chunk_tokens, m);
    if (m > 0) {
      EXPECT_GT(s.predicted_us, s.floor_us);
    }
  }
  snug_schedule s = {};
  s.struct_size = sizeof s;
  EXPECT_REFUSED(snug_plan_schedule(plan, 65, &s, error), SNUG_INVALID_ARGUMENT,
                 "num_tokens: have 65, need 0..64");
  EXPECT_REFUSED(snug_plan_schedule(plan, -1, &s, error), SNUG_INVALID_ARGUMENT,
                 "num_tokens: have -1");
  s.struct_size = 4;
  EXPECT_REFUSED(snug_plan_schedule(plan, 1, &s, error), SNUG_INVALID_ARGUMENT,
                 "schedule.struct_size: have 4");
  snug_plan_destroy(plan);
}

TEST(Plan, Alignments) {
  EXPECT_EQ(snug_arena_alignment(), 128u);
  EXPECT_EQ(snug_weights_alignment(), 64u);
}

using Writer = std::function<snug_status(char*, size_t, size_t*, snug_error*)>;

/// The rules of every function that writes text: 0, one short, exact, more.
std::string check_buffer_rules(const Writer& write) {
  size_t needed = 0;
  EXPECT_EQ(write(nullptr, 0, &needed, nullptr), SNUG_OK);
  EXPECT_GT(needed, 1u);
  std::vector<char> buffer(needed + 8, 'z');
  size_t again = 0;
  EXPECT_EQ(write(buffer.data(), 0, &again, nullptr), SNUG_OK) << "capacity 0 with a buffer";
  EXPECT_EQ(again, needed);
  EXPECT_EQ(buffer[0], 'z');
  for (const size_t shorter : {needed - 1, size_t{1}}) {
    again = 0;
    const std::string begins =
        "capacity: have " + std::to_string(shorter) + ", the text needs " + std::to_string(needed);
    EXPECT_REFUSED(write(buffer.data(), shorter, &again, error), SNUG_INVALID_ARGUMENT,
                   begins.c_str());
    EXPECT_EQ(again, needed);
    EXPECT_EQ(std::string(buffer.begin(), buffer.end()), std::string(needed + 8, 'z'));
  }
  EXPECT_REFUSED(write(nullptr, needed, &again, error), SNUG_INVALID_ARGUMENT, "buffer: is null");
  EXPECT_EQ(write(buffer.data(), needed, nullptr, nullptr), SNUG_OK) << "needed may be null";
  EXPECT_EQ(std::strlen(buffer.data()), needed - 1);
  EXPECT_EQ(std::string(buffer.end() - 8, buffer.end()), std::string(8, 'z'));
  const std::string text = buffer.data();
  EXPECT_EQ(write(buffer.data(), needed + 8, &again, nullptr), SNUG_OK);
  EXPECT_EQ(std::string(buffer.data()), text);
  EXPECT_EQ(buffer.back(), 'z') << "written past the text";
  return text;
}

TEST(Plan, ExplainFollowsTheBufferRules) {
  snug_plan* plan = must_plan(small_caps(), "cpu");
  const auto explain = [&](int32_t json) {
    return [plan, json](char* buffer, size_t capacity, size_t* needed, snug_error* error) {
      return snug_plan_explain(plan, json, buffer, capacity, needed, error);
    };
  };
  const std::string text = check_buffer_rules(explain(0));
  EXPECT_NE(text.find("cpu"), std::string::npos);
  EXPECT_EQ(text.find("priced only"), std::string::npos);
  const nlohmann::json parsed =
      nlohmann::json::parse(check_buffer_rules(explain(1)), nullptr, false);
  ASSERT_FALSE(parsed.is_discarded());
  EXPECT_EQ(parsed.at("required_nbytes").get<uint64_t>(), snug_plan_required_nbytes(plan));
  for (const int32_t json : {2, -1}) {
    EXPECT_REFUSED(snug_plan_explain(plan, json, nullptr, 0, nullptr, error), SNUG_INVALID_ARGUMENT,
                   "json: have ");
  }
  snug_plan_destroy(plan);
}

std::string refusals_of(const snug_caps& caps, const char* device_name) {
  const snug_device device = c_device(device_name);
  return check_buffer_rules([&](char* buffer, size_t capacity, size_t* needed, snug_error* error) {
    return snug_plan_refusals(&caps, &device, buffer, capacity, needed, error);
  });
}

TEST(Plan, RefusalsGiveALineForEveryFamily) {
  snug_caps caps = small_caps();
  const std::string others =
      "avx2.panel: needs avx2, the device has portable\n"
      "avx512.panel: needs avx512, the device has portable\n"
      "vnni.panel: needs vnni, the device has portable\n"
      "bf16.panel: needs bf16, the device has portable\n"
      "amx.panel: needs amx, the device has portable\n";
  EXPECT_EQ(refusals_of(caps, "cpu-portable"), "portable.panel: accepted\n" + others);
  EXPECT_EQ(refusals_of(caps, "cpu-avx2").find("portable.panel: the device has avx2\n"), 0u);
  caps.cpu_path = SNUG_CPU_PORTABLE;
  EXPECT_EQ(refusals_of(caps, "cpu-avx2")
                .find("portable.panel: accepted\n"
                      "avx2.panel: cpu_path asks for portable\n"),
            0u);
  EXPECT_NE(refusals_of(caps, "h200").find(": cpu_path portable is for CPUs\n"), std::string::npos);
  caps.cpu_path = 7;
  EXPECT_EQ(refusals_of(caps, "cpu").find("layer: cpu_path: have 7, need 0..6\n"), 0u);
  caps.cpu_path = SNUG_CPU_AUTOMATIC;
  EXPECT_EQ(refusals_of(caps, "reference"), "loops: accepted\n");
  const std::string old = refusals_of(caps, "a100");
  EXPECT_NE(old.find(": accepted\n"), std::string::npos) << old;
  EXPECT_NE(old.find(": needs sm_90, have sm_80\n"), std::string::npos) << old;
  caps.numerics = SNUG_NUMERICS_FLOAT64;
  EXPECT_EQ(refusals_of(caps, "cpu-portable"),
            "portable.panel: numerics other than contract are the reference backend's\n" + others);
  caps = small_caps();
  caps.route_tile_pin = 7;
  EXPECT_EQ(refusals_of(caps, "cpu-portable"),
            "portable.panel: route_tile_pin 7 is not a tile of this family\n" + others);
  caps = small_caps();
  caps.intermediate = 40;
  EXPECT_EQ(refusals_of(caps, "cpu-portable"),
            "layer: intermediate: have 40, nvfp4 needs a multiple of 16\n"
            "portable.panel: accepted\n" +
                others);
  caps = small_caps();
  caps.has_bias = 3;
  const snug_device device = c_device("cpu");
  EXPECT_REFUSED(snug_plan_refusals(&caps, &device, nullptr, 0, nullptr, error),
                 SNUG_INVALID_ARGUMENT, "has_bias: have 3");
}

TEST(Plan, ReferenceBytes) {
  snug_caps caps = small_caps();
  caps.max_tokens = 512;
  const snug_device device = c_device("h200");
  uint64_t bounded = 0, unbounded = 0;
  ASSERT_EQ(snug_reference_nbytes(&caps, &device, 0, &bounded, nullptr), SNUG_OK);
  ASSERT_EQ(snug_reference_nbytes(&caps, &device, 1, &unbounded, nullptr), SNUG_OK);
  EXPECT_GT(bounded, 0u);
  EXPECT_GE(unbounded, bounded);
  uint64_t kept = 5;
  EXPECT_REFUSED(snug_reference_nbytes(&caps, &device, 2, &kept, error), SNUG_INVALID_ARGUMENT,
                 "unbounded: have 2, need 0 or 1");
  EXPECT_EQ(kept, 5u);
}

}  // namespace
}  // namespace snug
