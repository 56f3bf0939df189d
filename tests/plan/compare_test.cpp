// SPDX-License-Identifier: Apache-2.0
#include "plan/compare.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>

#include "support/plan_inputs.h"

namespace snug {
namespace {

using test::any_layer;
using test::device_named;
using test::published_layer;

uint64_t bytes_of(const Caps& caps, const char* device, bool unbounded) {
  const Result<uint64_t> nbytes = reference_nbytes(caps, device_named(device), unbounded);
  if (!nbytes) ADD_FAILURE() << nbytes.error().message;
  return nbytes ? *nbytes : 0;
}

TEST(Compare, PublishedByteCounts) {
  EXPECT_EQ(bytes_of(published_layer(64), "rtx-pro-6000", false), 31'491'908u);
  EXPECT_EQ(bytes_of(published_layer(64), "rtx-pro-6000", true), 99'554'116u);
  EXPECT_EQ(bytes_of(published_layer(64), "h200", false), 24'151'876u);
}

TEST(Compare, CapsAreTranslated) {
  const Device gpu = device_named("h200");
  Caps caps = published_layer(64);
  caps.activation = {ActivationKind::silu_clamped, 1, 0, 7};
  ReferenceCaps r = reference_caps(caps, gpu, false);
  EXPECT_EQ(r.max_tokens, 64);
  EXPECT_EQ(r.top_k, 8);
  EXPECT_EQ(r.num_experts, 160);
  EXPECT_EQ(r.hidden, 6144);
  EXPECT_EQ(r.intermediate, 512);
  EXPECT_EQ(r.num_sms, 132);
  EXPECT_EQ(r.activation, ActivationKind::silu);
  EXPECT_EQ(r.swiglu_limit, 7.0f);
  EXPECT_EQ(r.layout, ReferenceLayout::modelopt);
  EXPECT_EQ(r.scales, ReferenceScales::e4m3_k16);
  EXPECT_FALSE(r.expert_parallel);
  EXPECT_FALSE(r.unbounded);
  EXPECT_TRUE(reference_caps(caps, gpu, true).unbounded);
  EXPECT_EQ(reference_caps(caps, device_named("cpu"), false).num_sms, 1);

  caps.shape.num_local_experts = 20;
  r = reference_caps(caps, gpu, false);
  EXPECT_TRUE(r.expert_parallel);
  EXPECT_EQ(r.num_experts, 160);
  EXPECT_FALSE(r.swiglu_limit.has_value());
}

TEST(Compare, Mxfp4IsPackedWhereItsTilesFit) {
  const Device gpu = device_named("h200");
  Caps caps = published_layer(64);
  caps.format = Format::mxfp4;
  EXPECT_EQ(reference_caps(caps, gpu, false).layout, ReferenceLayout::packed);
  EXPECT_EQ(reference_caps(caps, gpu, false).scales, ReferenceScales::e8m0_k32);
  caps.shape.intermediate = 192;
  EXPECT_EQ(reference_caps(caps, gpu, false).layout, ReferenceLayout::modelopt);
  caps.shape.intermediate = 512;
  caps.shape.num_local_experts = 20;  // the expert-parallel planner has no packed layout
  EXPECT_EQ(reference_caps(caps, gpu, false).layout, ReferenceLayout::modelopt);
}

TEST(Compare, ActivationsThatTheReferenceLacksArePricedAsSilu) {
  Caps caps = published_layer(64);
  const uint64_t silu = bytes_of(caps, "h200", false);
  for (const ActivationKind kind : {ActivationKind::gelu, ActivationKind::gelu_tanh}) {
    caps.activation = {kind};
    EXPECT_EQ(bytes_of(caps, "h200", false), silu);
  }
  for (const ActivationKind kind : {ActivationKind::relu2, ActivationKind::situ}) {
    caps.activation = {kind};
    EXPECT_EQ(reference_caps(caps, device_named("h200"), false).activation, kind);
  }
}

// Every layer that can be planned can be compared: no translated field is refused.
RC_GTEST_PROP(Compare, EveryLayerHasAPrice, ()) {
  const Caps caps = *any_layer();
  for (const Device& device : known_devices()) {
    for (const bool unbounded : {false, true}) {
      const Result<uint64_t> nbytes = reference_nbytes(caps, device, unbounded);
      if (!nbytes) RC_FAIL(nbytes.error().message);
      RC_ASSERT(*nbytes > 0u);
    }
  }
}

TEST(Compare, BadInputIsRefusedAsByThePlanner) {
  Caps caps = published_layer(64);
  caps.shape.top_k = 0;
  Result<uint64_t> nbytes = reference_nbytes(caps, device_named("h200"), false);
  ASSERT_FALSE(nbytes);
  EXPECT_EQ(std::strncmp(nbytes.error().message, "top_k:", 6), 0) << nbytes.error().message;
  Device device = device_named("h200");
  device.num_units = 0;
  nbytes = reference_nbytes(published_layer(64), device, false);
  ASSERT_FALSE(nbytes);
  EXPECT_EQ(std::strncmp(nbytes.error().message, "device.num_units:", 17), 0);
}

}  // namespace
}  // namespace snug
