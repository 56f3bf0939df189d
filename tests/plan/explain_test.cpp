// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "support/plan_inputs.h"

namespace snug {
namespace {

using nlohmann::json;
using test::device_named;
using test::must_plan;
using test::published_layer;

std::set<std::string> keys_of(const json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

TEST(Explain, KernelIdsByHand) {
  const Plan gpu = must_plan(published_layer(64), device_named("h200"));
  EXPECT_EQ(kernel_id(gpu, {0, 8, 0, 64}, Step::fc1), "cuda.sm80.fc1.w4a16.nvfp4.decode.t8");
  EXPECT_EQ(kernel_id(gpu, {1, 48, 128, 64}, Step::fc2), "cuda.sm80.fc2.w4a16.nvfp4.grouped.t48");
  EXPECT_EQ(kernel_id(gpu, {2, 256, 128, 64}, Step::route),
            "cuda.sm90a.route.w4a16.nvfp4.wgmma.t256");
  Caps caps = published_layer(64);
  caps.format = Format::mxfp4;
  const Plan cpu = must_plan(caps, device_named("cpu-portable"));
  EXPECT_EQ(kernel_id(cpu, cpu.regimes[0].policy, Step::combine),
            "cpu.portable.combine.w4a16.mxfp4.panel.t32");
}

const std::regex kKernelId(
    R"((reference|cpu|cuda)\.[a-z0-9]+\.(route|fc1|fc2|combine)\.w4a16\.(nvfp4|mxfp4))"
    R"((\.[a-z0-9]+)?\.t[0-9]+)");

void expect_steps(const json& regime) {
  ASSERT_EQ(regime.at("steps").size(), static_cast<size_t>(kNumSteps));
  double us = 0;
  for (size_t i = 0; i < regime.at("steps").size(); ++i) {
    const json& step = regime.at("steps")[i];
    EXPECT_EQ(step.at("step"), step_name(static_cast<Step>(i)));
    const std::string kernel = step.at("kernel");
    EXPECT_TRUE(std::regex_match(kernel, kKernelId)) << kernel;
    const std::string tile = ".t" + std::to_string(regime.at("route_tile").get<int>());
    EXPECT_EQ(kernel.substr(kernel.rfind('.')), tile);
    EXPECT_GE(step.at("grid").get<int64_t>(), 1);
    EXPECT_GE(step.at("nbytes").get<double>(), 0);
    EXPECT_GE(step.at("flops").get<double>(), 0);
    us += step.at("us").get<double>();
  }
  EXPECT_NEAR(regime.at("predicted_us").get<double>(), us, 1e-9 * us);
  EXPECT_LE(regime.at("floor_us").get<double>(), us);
}

/// The slices that are printed are those of the peak: the furthest one ends at required_nbytes.
void expect_slices(const json& j) {
  uint64_t end = 0;
  for (const json& slice : j.at("slices")) {
    EXPECT_EQ(keys_of(slice),
              (std::set<std::string>{"name", "offset", "nbytes", "dtype", "first", "last"}));
    end = std::max(end, slice.at("offset").get<uint64_t>() + slice.at("nbytes").get<uint64_t>());
  }
  EXPECT_EQ(end, j.at("required_nbytes").get<uint64_t>());
}

void expect_faithful(const Plan& plan, const json& j) {
  EXPECT_EQ(keys_of(j), (std::set<std::string>{"device", "caps", "can_run", "required_nbytes",
                                               "weights_nbytes", "predicted_us", "slowdown",
                                               "peak_tokens", "slices", "regimes", "families"}));
  EXPECT_EQ(j.at("device").at("name"), plan.device.name);
  EXPECT_EQ(j.at("device").at("backend"), machine_name(plan.device.machine));
  EXPECT_EQ(j.at("caps").at("max_tokens"), plan.caps.max_tokens);
  EXPECT_EQ(j.at("caps").at("num_experts"), plan.caps.shape.num_experts);
  EXPECT_EQ(j.at("caps").at("format"), format_info(plan.caps.format).name);
  EXPECT_EQ(j.at("required_nbytes"), plan.required_nbytes);
  EXPECT_EQ(j.at("weights_nbytes"), plan.weights_nbytes);
  EXPECT_EQ(j.at("predicted_us").get<double>(), plan.predicted_us);
  ASSERT_EQ(j.at("regimes").size(), static_cast<size_t>(plan.num_regimes));
  int64_t next = 1;
  for (const json& regime : j.at("regimes")) {
    EXPECT_EQ(regime.at("first_tokens"), next);
    next = regime.at("last_tokens").get<int64_t>() + 1;
    EXPECT_LE(regime.at("required_nbytes").get<uint64_t>(), plan.required_nbytes);
    expect_steps(regime);
  }
  EXPECT_EQ(next, plan.caps.max_tokens + 1);
  expect_slices(j);
  ASSERT_EQ(j.at("families").size(), static_cast<size_t>(plan.num_families));
  for (int32_t f = 0; f < plan.num_families; ++f) {
    const json& family = j.at("families")[static_cast<size_t>(f)];
    EXPECT_EQ(family.at("name"), plan.families[f].name);
    EXPECT_EQ(family.at("accepted"), plan.verdicts[f].accepted());
    EXPECT_EQ(family.at("reason"), plan.verdicts[f].reason);
  }
}

TEST(Explain, JsonSaysWhatThePlanIs) {
  for (const Device& device : known_devices()) {
    for (const int64_t max_tokens : {1, 64, 4096}) {
      for (const bool can_run : {false, true}) {
        const Plan plan = must_plan(published_layer(max_tokens), device);
        const json j = json::parse(explain_json(plan, can_run));
        EXPECT_EQ(j.at("can_run"), can_run);
        expect_faithful(plan, j);
      }
    }
  }
}

RC_GTEST_PROP(Explain, AnyPlanIsExplained, ()) {
  const Caps caps = *test::any_layer();
  for (const Device& device : known_devices()) {
    const Result<Plan> plan = make_plan(caps, device, test::families_of(device));
    RC_ASSERT(plan.has_value());
    const json j = json::parse(explain_json(*plan, true));
    RC_ASSERT(j.at("regimes").size() == static_cast<size_t>(plan->num_regimes));
    const std::string text = explain_text(*plan, true);
    const std::string nbytes = std::to_string(plan->required_nbytes) + " bytes";
    RC_ASSERT(text.find(nbytes) != std::string::npos);
  }
}

bool has_line(const std::string& text, const std::string& start, const std::string& rest) {
  const size_t at = text.find("\n" + start);
  if (at == std::string::npos) return false;
  const size_t end = text.find('\n', at + 1);
  return text.substr(at, end - at).find(rest) != std::string::npos;
}

TEST(Explain, TextNamesRefusedFamiliesWithReasons) {
  Caps caps = published_layer(64);
  caps.route_tile_pin = 48;
  const std::string text = explain_text(must_plan(caps, device_named("rtx-pro-6000")), false);
  EXPECT_TRUE(has_line(text, "  sm80.decode", "route_tile_pin 48")) << text;
  EXPECT_TRUE(has_line(text, "  sm80.grouped", "accepted")) << text;
  EXPECT_TRUE(has_line(text, "  sm90a.wgmma", "needs sm_90, have sm_120")) << text;
  EXPECT_NE(text.find("cuda.sm80.fc1.w4a16.nvfp4.grouped.t48"), std::string::npos) << text;
  EXPECT_EQ(text.find("decode.t"), std::string::npos) << text;
}

TEST(Explain, TextSaysWhenItIsOnlyPriced) {
  const Plan plan = must_plan(published_layer(64), device_named("h200"));
  EXPECT_NE(explain_text(plan, false).find("priced only"), std::string::npos);
  EXPECT_EQ(explain_text(plan, true).find("priced only"), std::string::npos);
}

TEST(Explain, ALimitThatCostsTimeIsNamed) {
  Caps caps = published_layer(4096);
  const Device device = device_named("h200");
  const Plan unlimited = must_plan(caps, device);
  EXPECT_EQ(explain_text(unlimited, true).find("\nlimit"), std::string::npos);
  EXPECT_EQ(json::parse(explain_json(unlimited, true)).at("slowdown").get<double>(), 1.0);
  caps.arena_limit = unlimited.required_nbytes / 8;
  const Plan limited = must_plan(caps, device);
  EXPECT_TRUE(
      has_line(explain_text(limited, true), "limit", std::to_string(caps.arena_limit) + " bytes"));
  EXPECT_GT(json::parse(explain_json(limited, true)).at("slowdown").get<double>(), 1.0);
}

// A caller's device name is printed as it is; bytes that are no UTF-8 must not break the JSON.
TEST(Explain, AStrangeDeviceNameStaysJson) {
  Device device = device_named("h200");
  const char name[] = "a\"b\\\n\xFF";
  std::copy(std::begin(name), std::end(name), device.name);
  EXPECT_TRUE(json::accept(explain_json(must_plan(published_layer(64), device), true)));
}

}  // namespace
}  // namespace snug
