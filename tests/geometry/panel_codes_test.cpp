// SPDX-License-Identifier: Apache-2.0
#include "geometry/panel_codes.h"

#include <gtest/gtest.h>

#include <cmath>

namespace snug {
namespace {

TEST(PanelCodes, NoCodeChangesItsValue) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    for (uint8_t code = 0; code < 16; ++code) {
      const float value = panel_code_to_f32(format, panel_code(format, code));
      EXPECT_EQ(value, e2m1_to_f32(code));
      EXPECT_EQ(std::signbit(value), code >= 8);
    }
  }
}

// What the decoders rely on: 1.5 times a power of two, or zero, exactly where the low bit is set.
TEST(PanelCodes, TheLowBitOfNvfp4SaysOneAndAHalfOrZero) {
  for (uint8_t stored = 0; stored < 8; ++stored) {
    const float value = panel_code_to_f32(Format::nvfp4, stored);
    const bool odd = value == 0 || std::log2(value) != std::floor(std::log2(value));
    EXPECT_EQ((stored & 1) != 0, odd) << value;
  }
}

TEST(PanelCodes, NoScaleChangesItsValue) {
  for (int byte = 1; byte < 0x7F; ++byte) {
    const uint8_t stored = panel_scale(Format::nvfp4, static_cast<uint8_t>(byte));
    EXPECT_EQ(panel_scale_to_f32(Format::nvfp4, stored), e4m3_to_f32(static_cast<uint8_t>(byte)));
    EXPECT_GE(stored, 8) << "normal as fp16: " << byte;
  }
  for (int byte = 0; byte < 0xFF; ++byte) {
    const uint8_t stored = panel_scale(Format::mxfp4, static_cast<uint8_t>(byte));
    EXPECT_EQ(panel_scale_to_f32(Format::mxfp4, stored), e8m0_to_f32(static_cast<uint8_t>(byte)));
  }
  EXPECT_EQ(panel_scale_to_f32(Format::nvfp4, kPanelOne), 1.0f);
}

TEST(PanelCodes, PaddingIsZero) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    const uint8_t pair = panel_zero_pair(format);
    EXPECT_EQ(panel_code_to_f32(format, pair & 15), 0.0f);
    EXPECT_EQ(panel_code_to_f32(format, pair >> 4), 0.0f);
    EXPECT_TRUE(std::isfinite(panel_scale_to_f32(format, 0)));
  }
}

}  // namespace
}  // namespace snug
