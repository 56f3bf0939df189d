// SPDX-License-Identifier: Apache-2.0
// The 4-bit weight formats: what a code and a scale byte mean, exactly, and the way back.
//
//   E2M1  s eem      0 .5 1 1.5 2 3 4 6 and their negatives (code 8 is -0)
//   E4M3  s eeee mmm bias 7, subnormals k * 2^-9, no infinity, 0x7F and 0xFF are NaN, largest 448
//   E8M0  eeeeeeee   2^(b - 127), no sign, no zero, 0xFF is NaN
//
// A code times its block scale is exact in bf16: E2M1 has 2 significant bits, E4M3 has 4.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "base/macros.h"
#include "base/status.h"

namespace snug {

/// Values are part of the C ABI (snug_format); append only.
enum class Format : int32_t {
  nvfp4 = 0,  // E2M1, one E4M3 scale per 16 along K, one f32 scale per projection and expert
  mxfp4 = 1,  // E2M1, one E8M0 scale per 32 along K
};
inline constexpr int kNumFormats = 2;

/// The constants of a format: everything that is not per tensor.
struct FormatInfo {
  const char* name;
  int group_size;         // elements along K that share a scale byte
  bool has_global_scale;  // an f32 factor per projection and expert
  bool e8m0_scales;       // else E4M3
};

constexpr FormatInfo format_info(Format format) {
  return format == Format::mxfp4 ? FormatInfo{"mxfp4", 32, false, true}
                                 : FormatInfo{"nvfp4", 16, true, false};
}

/// Value of an E2M1 code; the upper four bits of `code` are ignored.
SNUG_HD constexpr float e2m1_to_f32(uint8_t code) {
  const uint32_t magnitude = code & 7u;
  const uint32_t exponent = magnitude >> 1, mantissa = magnitude & 1u;
  // Normal: 2^(e-1) * (1 + m/2). Subnormal (e = 0): m * 0.5.
  const uint32_t bits =
      exponent != 0 ? (exponent + 126u) << 23 | mantissa << 22 : mantissa * 0x3F000000u;
  return std::bit_cast<float>(bits | (code & 8u) << 28);
}

/// Value of an E4M3 byte; NaN for 0x7F and 0xFF.
SNUG_HD constexpr float e4m3_to_f32(uint8_t byte) {
  const uint32_t exponent = (byte >> 3) & 15u, mantissa = byte & 7u;
  const uint32_t sign = (byte & 0x80u) << 24;
  if ((byte & 0x7Fu) == 0x7Fu) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (exponent == 0) {  // mantissa * 2^-9, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0.001953125f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 120u) << 23 | mantissa << 20);
}

/// Value of an E8M0 byte: 2^(byte - 127); NaN for 0xFF. Byte 0 is the f32 subnormal 2^-127.
SNUG_HD constexpr float e8m0_to_f32(uint8_t byte) {
  if (byte == 0xFFu) return std::bit_cast<float>(0x7FC00000u);
  if (byte == 0) return std::bit_cast<float>(0x00400000u);
  return std::bit_cast<float>(static_cast<uint32_t>(byte) << 23);
}

/// Value of a block-scale byte of `format`.
SNUG_HD constexpr float scale_to_f32(Format format, uint8_t byte) {
  return format == Format::mxfp4 ? e8m0_to_f32(byte) : e4m3_to_f32(byte);
}

/// The code of element k in a row of packed pairs: low nibble = even k.
SNUG_HD constexpr uint8_t unpack_code(const uint8_t* row, int64_t k) {
  return static_cast<uint8_t>((row[k >> 1] >> (4 * (k & 1))) & 15u);
}

/// Nearest E2M1 code, ties to the even code; |x| > 6 saturates. NaN becomes +0 (E2M1 has no NaN;
/// quantize refuses NaN before it comes here).
uint8_t f32_to_e2m1(float x);

/// Nearest E4M3 byte, ties to even; |x| > 448 saturates; NaN becomes 0x7F.
uint8_t f32_to_e4m3(float x);

/// The E8M0 byte whose power of two is floor(log2(x)); x must be positive and finite.
/// The result is clamped to 0..254.
uint8_t f32_to_e8m0_floor(float x);

/// Quantises a row-major matrix f32[rows, k] to packed codes u8[rows, k/2], low nibble first,
/// and scales u8[rows, k/group_size].
///   global_scale   out; nvfp4: amax / (6 * 448), and 1 for an all-zero matrix; mxfp4: 1
/// Errors: k not a multiple of the group; a NaN or infinity in the input, naming row and column.
/// Source: the block rules of the OCP MX specification (E8M0 = floor(log2 amax) - 2) and of
/// ModelOpt (E4M3 = amax / 6 / global); elements round to nearest even against the rounded scale.
Status quantize_matrix(Format format, const float* matrix, int64_t rows, int64_t k, uint8_t* codes,
                       uint8_t* scales, float* global_scale);

}  // namespace snug
