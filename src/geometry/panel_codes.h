// SPDX-License-Identifier: Apache-2.0
// What the nibbles and scale bytes of `panel_16x32` mean. MXFP4 keeps the file's. NVFP4 is stored
// so that the block scale can be applied to bf16 bit patterns, with integer arithmetic alone:
//   codes   magnitudes 0 and 0.5 trade places: the low bit then says "a 1.5, or zero", for which
//           one addend per scale and the saturation of a subtraction suffice
//   scales  the upper 8 bits of the scale's fp16, without its sign: every E4M3 value is normal
//           there. Groups with a negative scale have their codes negated; a zero scale becomes
//           zero codes with scale 1
// No weight changes its value. Padding is zero codes.
#pragma once

#include <bit>
#include <cstdint>

#include "moe/format.h"

namespace snug {

inline constexpr uint8_t kPanelOne = 0x3C00 >> 7;  // fp16 1.0

/// The stored nibble of an E2M1 code, and back.
SNUG_HD constexpr uint8_t panel_code(Format format, uint8_t code) {
  return format == Format::nvfp4 && (code & 6u) == 0 ? code ^ 1u : code;
}
SNUG_HD constexpr float panel_code_to_f32(Format format, uint8_t stored) {
  return e2m1_to_f32(panel_code(format, stored & 15u));
}

/// The stored byte of a positive E4M3 scale (or an E8M0 one), and back.
SNUG_HD constexpr uint8_t panel_scale(Format format, uint8_t byte) {
  if (format == Format::mxfp4) return byte;
  if (byte >= 8) return static_cast<uint8_t>(byte + 64);     // exponent bias 7 -> 15
  const uint32_t shift = byte >= 4 ? 1 : byte >= 2 ? 2 : 3;  // subnormal: m * 2^-9
  return static_cast<uint8_t>((9u - shift) << 3 | (static_cast<uint32_t>(byte) << shift & 7u));
}
SNUG_HD constexpr float panel_scale_to_f32(Format format, uint8_t stored) {
  if (format == Format::mxfp4) return e8m0_to_f32(stored);
  return stored == 0 ? 0.0f : std::bit_cast<float>((stored + (112u << 3)) << 20);
}

/// A byte of padding: two zero codes.
SNUG_HD constexpr uint8_t panel_zero_pair(Format format) {
  return static_cast<uint8_t>(panel_code(format, 0) * 0x11u);
}

}  // namespace snug
