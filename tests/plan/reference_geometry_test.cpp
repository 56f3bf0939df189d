// SPDX-License-Identifier: Apache-2.0
#include "plan/reference_geometry.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace snug {

void showValue(const ReferenceCaps& c, std::ostream& os) {
  os << "tokens " << c.max_tokens << " k " << c.top_k << " E " << c.num_experts << " H " << c.hidden
     << " I " << c.intermediate << " sms " << c.num_sms << " layout " << static_cast<int>(c.layout)
     << " act " << activation_name(c.activation) << " io " << dtype_name(c.io) << " routeE "
     << c.route_experts.value_or(-1) << " block " << c.block.value_or(0) << " ep "
     << c.expert_parallel;
}

namespace {

using nlohmann::json;

static_assert(std::is_trivially_copyable_v<ReferencePlan>);
static_assert(std::is_trivially_copyable_v<ReferenceCaps>);
static_assert(reference_partial_elements(1024, 1632, 8, 188) == 3'080'192);

// --- the recorded cases ---------------------------------------------------------------------

DType dtype_of(const std::string& name) {
  static const std::map<std::string, DType> kNames = {
      {"bf16", DType::bf16}, {"fp16", DType::f16}, {"f32", DType::f32}, {"i32", DType::s32}};
  return kNames.at(name);
}

ActivationKind activation_of(const std::string& name) {
  static const std::map<std::string, ActivationKind> kNames = {
      {"silu", ActivationKind::silu},
      {"relu2", ActivationKind::relu2},
      {"situ", ActivationKind::situ},
      {"swigluoai_uninterleave", ActivationKind::swiglu_oai}};
  return kNames.at(name);
}

ReferenceLayout layout_of(const std::string& name) {
  static const std::map<std::string, ReferenceLayout> kNames = {
      {"modelopt", ReferenceLayout::modelopt},
      {"packed", ReferenceLayout::packed},
      {"trellis", ReferenceLayout::trellis}};
  return kNames.at(name);
}

void read_fused_fields(const json& j, ReferenceCaps& c) {
  c.num_experts = j.at("experts");
  c.io = dtype_of(j.at("io"));
  c.layout = layout_of(j.at("layout"));
  c.scales =
      j.at("scale_format") == "e8m0_k32" ? ReferenceScales::e8m0_k32 : ReferenceScales::e4m3_k16;
  c.router_weight_on_input = j.at("router_weight_on_input");
  if (!j.at("route_experts").is_null()) c.route_experts = j.at("route_experts").get<int32_t>();
  if (!j.at("block").is_null()) c.block = j.at("block").get<int32_t>();
  if (!j.at("swiglu_limit").is_null()) c.swiglu_limit = j.at("swiglu_limit").get<float>();
  if (!j.at("logits_dtype").is_null()) c.logits_dtype = dtype_of(j.at("logits_dtype"));
  if (!j.at("core_tokens").is_null()) {
    for (const json& t : j.at("core_tokens")) c.core_tokens[c.num_core_tokens++] = t;
  }
}

ReferenceCaps caps_of(const json& row) {
  const json& j = row.at("caps");
  ReferenceCaps c;
  c.max_tokens = j.at("max_tokens");
  c.top_k = j.at("topk");
  c.hidden = j.at("hidden");
  c.intermediate = j.at("inter");
  c.num_sms = j.at("sms");
  c.activation = activation_of(j.at("activation"));
  c.expert_parallel = row.at("kind") == "ep";
  if (c.expert_parallel) {
    c.num_experts = j.at("global_experts");
  } else {
    read_fused_fields(j, c);
  }
  return c;
}

void expect_buffers(const json& want, const ReferencePlan& plan) {
  ASSERT_EQ(static_cast<size_t>(plan.num_buffers), want.size());
  for (int i = 0; i < plan.num_buffers; ++i) {
    const ReferenceBuffer& buffer = plan.buffers[i];
    EXPECT_EQ(buffer.name, want[i].at("name").get<std::string>());
    EXPECT_EQ(buffer.count, want[i].at("count").get<int64_t>()) << buffer.name;
    EXPECT_EQ(buffer.dtype, dtype_of(want[i].at("dtype"))) << buffer.name;
    EXPECT_EQ(buffer.offset, want[i].at("offset").get<int64_t>()) << buffer.name;
  }
}

TEST(ReferenceGeometry, ReproducesEveryRecordedCase) {
  std::ifstream file(SNUG_TEST_DATA_DIR "/plan_cases.json");
  ASSERT_TRUE(file) << "no " << SNUG_TEST_DATA_DIR << "/plan_cases.json";
  const json rows = json::parse(file);
  ASSERT_GE(rows.size(), 35u);
  for (const json& row : rows) {
    SCOPED_TRACE(row.at("name").get<std::string>());
    const Result<ReferencePlan> plan = plan_reference(caps_of(row));
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ((*plan).total, row.at("total").get<int64_t>());
    EXPECT_EQ((*plan).core, row.at("core").get<int64_t>());
    EXPECT_EQ((*plan).route, row.at("route").get<int64_t>());
    const ReferencePlan& p = *plan;
    EXPECT_EQ(std::vector<int64_t>(p.core_tokens, p.core_tokens + p.num_core_tokens),
              row.at("core_tokens").get<std::vector<int64_t>>());
    EXPECT_EQ(std::vector<int32_t>(p.blocks.begin(), p.blocks.end()),
              row.at("blocks").get<std::vector<int32_t>>());
    expect_buffers(row.at("buffers"), p);
  }
}

// --- published numbers ----------------------------------------------------------------------

ReferenceCaps glm(int64_t max_tokens) {
  ReferenceCaps c;
  c.max_tokens = max_tokens;
  c.top_k = 8;
  c.num_experts = 160;
  c.hidden = 6144;
  c.intermediate = 512;
  c.num_sms = 188;
  return c;
}

ReferencePlan must_plan(const ReferenceCaps& caps) {
  const Result<ReferencePlan> plan = plan_reference(caps);
  if (!plan) ADD_FAILURE() << plan.error().message;
  return plan ? *plan : ReferencePlan{};
}

TEST(ReferenceGeometry, PublishedTotals) {
  ReferenceCaps c = glm(64);
  EXPECT_EQ(must_plan(c).total, 31'491'908);
  c.block = 8;
  EXPECT_EQ(must_plan(c).total, 31'491'908);
  c.block = 64;
  EXPECT_EQ(must_plan(c).total, 99'553'972);
  c = glm(64);
  c.unbounded = true;
  EXPECT_EQ(must_plan(c).total, 99'554'116);
  c = glm(3072);
  c.layout = ReferenceLayout::trellis;
  c.block = 64;
  EXPECT_EQ(must_plan(c).total, 1'106'622'184);
}

TEST(ReferenceGeometry, OldSweepAgainstReachableSet) {
  struct Row {
    int64_t max_tokens;
    std::vector<int32_t> blocks;
    int64_t bounded, sweep;
  };
  const Row rows[] = {
      {1, {8}, 3'777'876, 14'789'716},
      {8, {8}, 17'373'332, 66'932'884},
      {64, {8}, 31'491'908, 99'554'116},
      {128, {8}, 38'336'580, 108'495'940},
      {143, {8, 16}, 51'984'036, 125'939'364},
      {512, {8, 16, 32}, 104'061'508, 153'365'060},
      {1024, {8, 16, 32, 48, 64}, 208'122'436, 208'122'436},
      {4096, {8, 16, 32, 48, 64}, 536'666'692, 536'666'692},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.max_tokens);
    ReferenceCaps c = glm(row.max_tokens);
    const ReferencePlan bounded = must_plan(c);
    c.unbounded = true;
    const ReferencePlan sweep = must_plan(c);
    EXPECT_EQ(bounded.total, row.bounded);
    EXPECT_EQ(sweep.total, row.sweep);
    EXPECT_EQ(std::vector<int32_t>(bounded.blocks.begin(), bounded.blocks.end()), row.blocks);
    EXPECT_EQ(sweep.blocks.count, kNumRouteTiles);
  }
}

TEST(ReferenceGeometry, PackedTotalsOfOddTokenCounts) {
  const std::pair<int64_t, int64_t> rows[] = {
      {65, 38'310'372}, {1000, 208'112'452}, {3072, 536'240'708}, {4097, 973'022'180}};
  for (const auto& [tokens, total] : rows) {
    ReferenceCaps c = glm(tokens);
    c.layout = ReferenceLayout::packed;
    EXPECT_EQ(must_plan(c).total, total) << tokens;
  }
}

TEST(ReferenceGeometry, BucketsHideTokenCounts) {
  ReferenceCaps c = glm(4080);
  c.layout = ReferenceLayout::packed;
  c.num_experts = 256;
  c.hidden = 4096;
  c.intermediate = 7168;
  c.route_experts = 0;
  const int64_t at_4080 = must_plan(c).total;
  c.max_tokens = 4096;
  EXPECT_EQ(must_plan(c).total, at_4080);
}

// --- refusals -------------------------------------------------------------------------------

void expect_refused(const ReferenceCaps& caps, const std::string& field) {
  const Result<ReferencePlan> plan = plan_reference(caps);
  ASSERT_FALSE(plan) << "accepted a bad " << field;
  EXPECT_EQ(plan.error().code, Code::invalid_argument);
  EXPECT_EQ(std::string(plan.error().message).rfind(field + ":", 0), 0u) << plan.error().message;
}

TEST(ReferenceGeometry, BadPinsAreRefusedByName) {
  for (const int32_t block : {-8, 0, 1, 7, 24, 40, 56, 65, 128}) {
    ReferenceCaps c = glm(64);
    c.block = block;
    expect_refused(c, "block");
    const std::string message = plan_reference(c).error().message;
    EXPECT_NE(message.find("have " + std::to_string(block) + ","), std::string::npos) << message;
  }
}

TEST(ReferenceGeometry, BadFieldsAreRefusedByName) {
  const auto with = [](auto&& change) {
    ReferenceCaps c = glm(64);
    change(c);
    return c;
  };
  expect_refused(with([](auto& c) { c.max_tokens = -1; }), "max_tokens");
  expect_refused(with([](auto& c) { c.max_tokens = (1 << 24) + 1; }), "max_tokens");
  expect_refused(with([](auto& c) { c.top_k = 0; }), "top_k");
  expect_refused(with([](auto& c) { c.top_k = 33; }), "top_k");
  expect_refused(with([](auto& c) { c.num_experts = 4097; }), "num_experts");
  expect_refused(with([](auto& c) { c.hidden = 0; }), "hidden");
  expect_refused(with([](auto& c) { c.intermediate = 0; }), "intermediate");
  expect_refused(with([](auto& c) { c.num_sms = 0; }), "num_sms");
  expect_refused(with([](auto& c) { c.route_experts = -1; }), "route_experts");
  expect_refused(with([](auto& c) { c.num_core_tokens = 9; }), "num_core_tokens");
  expect_refused(with([](auto& c) { c.core_tokens[c.num_core_tokens++] = -1; }), "core_tokens");
  expect_refused(with([](auto& c) { c.activation = ActivationKind::gelu; }), "activation");
  expect_refused(with([](auto& c) { c.io = DType::f32; }), "io");
  expect_refused(with([](auto& c) { c.logits_dtype = DType::s32; }), "logits_dtype");
  expect_refused(with([](auto& c) { c.layout = static_cast<ReferenceLayout>(3); }), "layout");
  expect_refused(with([](auto& c) { c.scales = static_cast<ReferenceScales>(2); }), "scales");
  expect_refused(with([](auto& c) { c.swiglu_limit = -1.0f; }), "swiglu_limit");
  expect_refused(with([](auto& c) {
                   c.activation = ActivationKind::situ;
                   c.swiglu_limit = 7.0f;
                 }),
                 "swiglu_limit");
  expect_refused(with([](auto& c) {
                   c.unbounded = true;
                   c.block = 8;
                 }),
                 "unbounded");
  expect_refused(with([](auto& c) {
                   c.unbounded = true;
                   c.layout = ReferenceLayout::trellis;
                 }),
                 "unbounded");
}

TEST(ReferenceGeometry, ExpertParallelRefusesWhatItHasNot) {
  const auto with = [](auto&& change) {
    ReferenceCaps c = glm(64);
    c.expert_parallel = true;
    change(c);
    return c;
  };
  EXPECT_EQ(must_plan(with([](auto&) {})).total, 31'465'296);
  expect_refused(with([](auto& c) { c.block = 8; }), "block");
  expect_refused(with([](auto& c) { c.route_experts = 0; }), "route_experts");
  expect_refused(with([](auto& c) { c.num_core_tokens = 1; }), "num_core_tokens");
  expect_refused(with([](auto& c) { c.logits_dtype = DType::f32; }), "logits_dtype");
  expect_refused(with([](auto& c) { c.router_weight_on_input = true; }), "router_weight_on_input");
  expect_refused(with([](auto& c) { c.layout = ReferenceLayout::packed; }), "layout");
  expect_refused(with([](auto& c) { c.io = DType::f16; }), "io");
}

// --- invariants P1..P7 ----------------------------------------------------------------------

const ReferenceBuffer& buffer_named(const ReferencePlan& plan, const std::string& name) {
  for (int i = 0; i < plan.num_buffers; ++i) {
    if (plan.buffers[i].name == name) return plan.buffers[i];
  }
  ADD_FAILURE() << "no buffer " << name;
  return plan.buffers[0];
}

int64_t count_of(const ReferencePlan& plan, const char* name) {
  return buffer_named(plan, name).count;
}

ReferenceCaps any_caps(bool allow_trellis = true) {
  using rc::gen::element;
  using rc::gen::inRange;
  ReferenceCaps c;
  c.max_tokens = *inRange<int64_t>(1, 260);
  c.top_k = *inRange(1, 17);
  c.num_experts = *element(1, 2, 4, 7, 8, 16, 33, 64, 160, 256, 896);
  c.hidden = *element(128, 256, 1024, 2688, 6144);
  c.intermediate = *element(32, 48, 128, 464, 512, 1856);
  c.num_sms = *element(1, 16, 132, 188);
  c.activation = *element(ActivationKind::silu, ActivationKind::relu2, ActivationKind::situ);
  c.io = *element(DType::bf16, DType::f16);
  c.layout = *element(ReferenceLayout::modelopt, ReferenceLayout::packed,
                      allow_trellis ? ReferenceLayout::trellis : ReferenceLayout::packed);
  c.scales = *element(ReferenceScales::e4m3_k16, ReferenceScales::e8m0_k32);
  return c;
}

/// What one launch of `m` tokens needs, written from the run-time side of the reference engine.
struct LaunchNeed {
  int32_t block;
  int64_t slots, blocks, fc1_partials, fc2_partials;
};

LaunchNeed launch_need(const ReferenceCaps& c, int64_t m, bool direct) {
  LaunchNeed need{};
  need.block = c.block ? *c.block : select_route_block_size(m, c.top_k, c.num_experts);
  const int64_t routes = m * c.top_k;
  need.slots = direct ? routes * need.block : max_packed_slots(routes, need.block, c.num_experts);
  need.blocks = (need.slots + need.block - 1) / need.block;
  const int64_t n1 = c.intermediate * (c.activation == ActivationKind::relu2 ? 1 : 2);
  need.fc1_partials = reference_partial_elements(n1, need.slots, need.block, c.num_sms);
  need.fc2_partials = reference_partial_elements(c.hidden, need.slots, need.block, c.num_sms);
  return need;
}

RC_GTEST_PROP(ReferenceGeometryProperty, P1P2EveryLaunchFindsItsBlockAndSlots, ()) {
  const ReferenceCaps c = any_caps(false);
  const ReferencePlan plan = must_plan(c);
  for (int64_t m = 1; m <= c.max_tokens; ++m) {
    const LaunchNeed need = launch_need(c, m, false);
    RC_ASSERT(plan.blocks.contains(need.block));
    RC_ASSERT(need.slots <= count_of(plan, "packed_route_indices"));
    RC_ASSERT(need.blocks <= count_of(plan, "block_expert_ids"));
  }
}

RC_GTEST_PROP(ReferenceGeometryProperty, P3NoLaunchOutgrowsThePartialPlanes, ()) {
  ReferenceCaps c = any_caps(false);
  if (*rc::gen::arbitrary<bool>())
    c.block = *rc::gen::elementOf(std::vector<int>{8, 16, 32, 48, 64});
  const ReferencePlan plan = must_plan(c);
  const bool gated_bf16 = c.io == DType::bf16 && c.activation != ActivationKind::relu2;
  const int64_t direct_tokens = c.layout != ReferenceLayout::packed ? 0 : gated_bf16 ? 8 : 6;
  for (int64_t m = 1; m <= c.max_tokens; ++m) {
    for (const bool direct : {false, true}) {
      if (direct && m > direct_tokens) continue;
      const LaunchNeed need = launch_need(c, m, direct);
      RC_ASSERT(need.fc1_partials <= count_of(plan, "fc1_c_tmp"));
      RC_ASSERT(need.fc2_partials <= count_of(plan, "fc2_c_tmp"));
    }
  }
}

RC_GTEST_PROP(ReferenceGeometryProperty, P4BytesGrowWithTokens, ()) {
  ReferenceCaps c = any_caps(false);
  if (*rc::gen::arbitrary<bool>()) {
    c.expert_parallel = true;
    c.layout = ReferenceLayout::modelopt;
    c.io = DType::bf16;
  }
  const int64_t bytes = must_plan(c).total;
  c.max_tokens += *rc::gen::inRange<int64_t>(1, 400);
  RC_ASSERT(bytes <= must_plan(c).total);
}

TEST(ReferenceGeometry, P4TrellisIsNotMonotone) {
  ReferenceCaps c;
  c.top_k = 10;
  c.num_experts = 128;
  c.hidden = 2048;
  c.intermediate = 128;
  c.num_sms = 132;
  c.layout = ReferenceLayout::trellis;
  c.max_tokens = 92;
  const int64_t at_92 = must_plan(c).total;
  c.max_tokens = 93;
  EXPECT_LT(must_plan(c).total, at_92);
}

RC_GTEST_PROP(ReferenceGeometryProperty, P4PinInsideTheSetIsNeverDearer, ()) {
  ReferenceCaps c = any_caps(false);
  c.layout = ReferenceLayout::modelopt;
  const ReferencePlan automatic = must_plan(c);
  c.block = automatic.blocks.sizes[*rc::gen::inRange(0, automatic.blocks.count)];
  RC_ASSERT(must_plan(c).total <= automatic.total);
}

RC_GTEST_PROP(ReferenceGeometryProperty, P5DirectGeometryChangesPartialsOnly, ()) {
  ReferenceCaps c = any_caps(false);
  c.scales = ReferenceScales::e4m3_k16;
  c.layout = ReferenceLayout::packed;
  const ReferencePlan packed = must_plan(c);
  c.layout = ReferenceLayout::modelopt;
  const ReferencePlan native = must_plan(c);
  for (const char* name : {"packed_route_indices", "block_expert_ids", "packed_route_count",
                           "expert_offsets", "intermediate_cache13"}) {
    RC_ASSERT(count_of(packed, name) == count_of(native, name));
  }
  RC_ASSERT(count_of(packed, "fc1_c_tmp") >= count_of(native, "fc1_c_tmp"));
  RC_ASSERT(count_of(packed, "fc2_c_tmp") >= count_of(native, "fc2_c_tmp"));
}

TEST(ReferenceGeometry, P5DirectGeometryCanDominate) {
  ReferenceCaps c;
  c.max_tokens = 4;
  c.top_k = 8;
  c.num_experts = 16;
  c.hidden = 128;
  c.intermediate = 128;
  c.num_sms = 188;
  c.layout = ReferenceLayout::packed;
  const ReferencePlan plan = must_plan(c);
  EXPECT_EQ(count_of(plan, "fc1_c_tmp"), 131'072);
  EXPECT_EQ(count_of(plan, "fc2_c_tmp"), 65'536);
  EXPECT_EQ(count_of(plan, "packed_route_indices"), 32 + 16 * 7);
}

RC_GTEST_PROP(ReferenceGeometryProperty, P6RouterExpertsLeaveTheCoreAlone, ()) {
  ReferenceCaps c = any_caps(false);
  const ReferencePlan plain = must_plan(c);
  c.route_experts = *rc::gen::inRange(0, 1000);
  const ReferencePlan other = must_plan(c);
  RC_ASSERT(other.core == plain.core);
  RC_ASSERT(count_of(other, "expert_offsets") == c.num_experts + 1);
  RC_ASSERT((other.route == 0) == (*c.route_experts == 0));
}

TEST(ReferenceGeometry, P6TrellisCountsTheRoutersExperts) {
  ReferenceCaps c = glm(16);
  c.layout = ReferenceLayout::trellis;
  c.num_experts = 40;
  c.route_experts = 160;
  EXPECT_EQ(count_of(must_plan(c), "expert_offsets"), 161);
}

RC_GTEST_PROP(ReferenceGeometryProperty, P7BlockEightKeepsItsDoubledPlane, ()) {
  const int64_t columns = *rc::gen::inRange(1, 20'000);
  const int64_t slots = *rc::gen::inRange(1, 5'000);
  const int64_t sms = *rc::gen::inRange(1, 200);
  // An 8-row tile is priced as the 16 rows it holds: the cap equals that of block 16.
  const int64_t eight = reference_partial_elements(columns, slots, 8, sms);
  RC_ASSERT(eight == 2 * std::min(columns * slots, 4 * sms * 8 * 256));
  RC_ASSERT(reference_partial_elements(columns, slots, 16, sms) ==
            std::min(columns * slots, 4 * sms * 16 * 256));
}

RC_GTEST_PROP(ReferenceGeometryProperty, BuffersAreAlignedDisjointAndSumToTheCore, ()) {
  const ReferenceCaps c = any_caps();
  const ReferencePlan plan = must_plan(c);
  int64_t end = 0;
  for (int i = 0; i < plan.num_buffers; ++i) {
    RC_ASSERT(plan.buffers[i].offset % 16 == 0);
    RC_ASSERT(plan.buffers[i].offset >= end && plan.buffers[i].offset < end + 16);
    end = plan.buffers[i].offset + plan.buffers[i].nbytes();
  }
  RC_ASSERT(plan.core == end);
  RC_ASSERT(plan.total == plan.core + plan.route);
  RC_ASSERT(plan.route % 16 == 0);
}

}  // namespace
}  // namespace snug
