// SPDX-License-Identifier: Apache-2.0
#include "plan/caps.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "support/plan_inputs.h"

namespace snug {
namespace {

Caps good_caps() { return test::make_caps(8, 2, 64, 32, 16); }

struct Refusal {
  const char* field;  // the message starts with it
  Code code;
  std::function<void(Caps&)> spoil;
};

const Refusal kRefusals[] = {
    {"hidden", Code::invalid_argument, [](Caps& c) { c.shape.hidden = 0; }},
    {"hidden", Code::invalid_argument, [](Caps& c) { c.shape.hidden = kMaxWidth + 16; }},
    {"hidden", Code::unsupported, [](Caps& c) { c.shape.hidden = 72; }},
    {"intermediate", Code::invalid_argument, [](Caps& c) { c.shape.intermediate = -16; }},
    {"intermediate", Code::invalid_argument, [](Caps& c) { c.shape.intermediate = 1 << 30; }},
    {"intermediate", Code::unsupported, [](Caps& c) { c.shape.intermediate = 8; }},
    {"intermediate", Code::unsupported,
     [](Caps& c) {
       c.format = Format::mxfp4;
       c.shape.intermediate = 48;  // a multiple of 16, not of 32
     }},
    {"num_experts", Code::invalid_argument, [](Caps& c) { c.shape.num_experts = 0; }},
    {"num_experts", Code::invalid_argument, [](Caps& c) { c.shape.num_experts = 4097; }},
    {"num_local_experts", Code::invalid_argument, [](Caps& c) { c.shape.num_local_experts = 9; }},
    {"num_local_experts", Code::invalid_argument, [](Caps& c) { c.shape.num_local_experts = -1; }},
    {"top_k", Code::invalid_argument, [](Caps& c) { c.shape.top_k = 0; }},
    {"top_k", Code::invalid_argument, [](Caps& c) { c.shape.top_k = 33; }},
    {"format", Code::invalid_argument, [](Caps& c) { c.format = static_cast<Format>(2); }},
    {"format", Code::invalid_argument, [](Caps& c) { c.format = static_cast<Format>(-1); }},
    {"activation.kind", Code::invalid_argument,
     [](Caps& c) { c.activation.kind = static_cast<ActivationKind>(kNumActivations); }},
    {"activation.limit", Code::invalid_argument,
     [](Caps& c) { c.activation.kind = ActivationKind::swiglu_oai; }},
    {"activation.alpha", Code::invalid_argument, [](Caps& c) { c.activation.alpha = 2; }},
    {"output_dtype", Code::invalid_argument, [](Caps& c) { c.output_dtype = DType::f16; }},
    {"numerics", Code::invalid_argument,
     [](Caps& c) { c.numerics = static_cast<Numerics>(kNumNumerics); }},
    {"router_weight_on_input", Code::unsupported, [](Caps& c) { c.router_weight_on_input = true; }},
    {"max_tokens", Code::invalid_argument, [](Caps& c) { c.max_tokens = 0; }},
    {"max_tokens", Code::invalid_argument, [](Caps& c) { c.max_tokens = kMaxTokens + 1; }},
    {"expected_tokens", Code::invalid_argument, [](Caps& c) { c.expected_tokens = 17; }},
    {"expected_tokens", Code::invalid_argument, [](Caps& c) { c.expected_tokens = -1; }},
    {"num_threads", Code::invalid_argument, [](Caps& c) { c.num_threads = 0; }},
    {"num_threads", Code::invalid_argument, [](Caps& c) { c.num_threads = kMaxThreads + 1; }},
};

TEST(Caps, EveryRefusalNamesItsField) {
  ASSERT_TRUE(check_caps(good_caps()).ok());
  for (const Refusal& refusal : kRefusals) {
    Caps caps = good_caps();
    refusal.spoil(caps);
    const Status status = check_caps(caps);
    EXPECT_EQ(status.code, refusal.code) << refusal.field << ": " << status.message;
    const size_t length = std::strlen(refusal.field);
    EXPECT_EQ(std::strncmp(status.message, refusal.field, length), 0)
        << refusal.field << ": " << status.message;
    EXPECT_TRUE(std::strchr(":,", status.message[length])) << status.message;
    const Device device = test::device_named("cpu");
    const Result<Plan> plan = make_plan(caps, device, test::families_of(device));
    EXPECT_STREQ(plan.error().message, status.message) << "make_plan refuses the same way";
  }
}

const std::function<void(Caps&)> kAccepted[] = {
    [](Caps& c) { c.shape.num_local_experts = 0; },
    [](Caps& c) { c.shape.top_k = kMaxTopK; },  // more than there are experts: ids may repeat
    [](Caps& c) { c.shape.num_experts = c.shape.num_local_experts = kMaxExperts; },
    [](Caps& c) { c.shape.hidden = kMaxWidth; },
    [](Caps& c) { c.shape.intermediate = kMaxWidth; },
    [](Caps& c) { c.max_tokens = kMaxTokens; },
    [](Caps& c) { c.expected_tokens = 16; },
    [](Caps& c) { c.num_threads = kMaxThreads; },
    [](Caps& c) { c.output_dtype = DType::f32; },
    [](Caps& c) { c.activation = swiglu_oai_default(); },
    [](Caps& c) {
      c.shape.top_k = 1;
      c.router_weight_on_input = true;
    },
};

TEST(Caps, TheEdgesOfEveryRangeAreAccepted) {
  for (const auto& change : kAccepted) {
    Caps caps = good_caps();
    change(caps);
    const Status status = check_caps(caps);
    EXPECT_TRUE(status.ok()) << status.message;
  }
}

}  // namespace
}  // namespace snug
