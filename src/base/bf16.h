// SPDX-License-Identifier: Apache-2.0
// bfloat16: the upper half of an f32, with round-to-nearest-even.
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"

namespace snug {

/// A bfloat16 by its bits: sign(15) exponent(14:7) mantissa(6:0).
struct bf16 {
  uint16_t bits;
};

SNUG_HD constexpr float bf16_to_f32(bf16 v) {
  return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16);
}

/// Round to nearest, ties to even; overflow goes to infinity; NaN stays NaN (quiet, sign kept).
SNUG_HD constexpr bf16 f32_to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (u >> 16) | 0x40u;
  const bool is_nan = (u & 0x7FFFFFFFu) > 0x7F800000u;
  return {static_cast<uint16_t>(is_nan ? quiet_nan : rounded)};
}

/// f64 -> bf16 in one rounding (f64 -> f32 -> bf16 would round twice).
/// The f32 step rounds to odd: its lost bits survive as a sticky bit, so the second step is exact.
constexpr bf16 f64_to_bf16(double d) {
  const float near = static_cast<float>(d);
  uint32_t u = std::bit_cast<uint32_t>(near);
  const double back = static_cast<double>(near);
  const bool finite = (u & 0x7F800000u) != 0x7F800000u;
  if (finite && back != d) {
    const bool away = (back > d) == (d > 0);  // |near| > |d|: step back to truncation
    if (away && near != 0.0f) --u;
    u |= 1u;
  }
  return f32_to_bf16(std::bit_cast<float>(u));
}

}  // namespace snug
