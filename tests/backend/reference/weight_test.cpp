// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/weight.h"

#include <gtest/gtest.h>

#include "support/layer.h"

namespace snug::reference {
namespace {

TEST(ReferenceWeight, EveryWeightOfBothMatricesIsCodeTimesScale) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    for (const ActivationKind kind : {ActivationKind::silu, ActivationKind::relu2}) {
      test::LayerOptions options =
          format == Format::mxfp4 ? test::mxfp4_options() : test::LayerOptions{};
      options.activation = {kind};
      const test::RandomLayer layer(options);
      const PackedLayout layout =
          make_packed_layout(LayoutTag::plain, format, layer.caps().shape, kind, false);
      const test::GuardedMemory memory = test::prepare(layer, layout);
      const auto* record = static_cast<const uint8_t*>(memory.data()) + 2 * layout.expert_nbytes;
      const test::StoredExpert& e = layer.experts[2];
      for (int64_t row = 0; row < options.intermediate; ++row) {
        for (int64_t k = 0; k < options.hidden; ++k) {
          ASSERT_EQ(weight_at(layout, layout.fc1, record, row, k),
                    static_cast<float>(e.gate.weight(row, k)));
          if (kind == ActivationKind::relu2) continue;
          ASSERT_EQ(weight_at(layout, layout.fc1, record, options.intermediate + row, k),
                    static_cast<float>(e.up.weight(row, k)));
        }
      }
      for (int64_t row = 0; row < options.hidden; ++row) {
        for (int64_t k = 0; k < options.intermediate; ++k) {
          ASSERT_EQ(weight_at(layout, layout.fc2, record, row, k),
                    static_cast<float>(e.down.weight(row, k)));
        }
      }
    }
  }
}

// All 16 codes under every scale byte that means a number: exact, so equal.
TEST(ReferenceWeight, AllCodesAndScales) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    test::LayerOptions options =
        format == Format::mxfp4 ? test::mxfp4_options() : test::LayerOptions{};
    options.num_experts = options.top_k = 1;
    test::RandomLayer layer(options);
    test::StoredMatrix& gate = layer.experts[0].gate;
    const PackedLayout layout = make_packed_layout(LayoutTag::plain, format, layer.caps().shape,
                                                   ActivationKind::silu, false);
    for (int byte = 0; byte < 256; ++byte) {
      if (format == Format::nvfp4 ? byte % 128 == 127 : byte > 252) continue;
      gate.set_scale(3, 16, static_cast<uint8_t>(byte));
      for (int code = 0; code < 16; ++code) gate.set_code(3, 16 + code, code);
      const test::GuardedMemory record = test::prepare(layer, layout);
      for (int code = 0; code < 16; ++code) {
        ASSERT_EQ(
            weight_at(layout, layout.fc1, static_cast<const uint8_t*>(record.data()), 3, 16 + code),
            static_cast<float>(gate.weight(3, 16 + code)))
            << byte << " " << code;
      }
    }
  }
}

}  // namespace
}  // namespace snug::reference
