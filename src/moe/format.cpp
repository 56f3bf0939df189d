// SPDX-License-Identifier: Apache-2.0
#include "moe/format.h"

#include <algorithm>
#include <cmath>

namespace snug {

uint8_t f32_to_e2m1(float x) {
  const uint8_t sign = std::signbit(x) ? 8 : 0;
  if (std::isnan(x)) return 0;
  const float magnitude = std::fabs(x);
  // The midpoint above code c; a tie at it goes to the even one of c and c + 1.
  constexpr float kMidpoints[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  uint8_t code = 0;
  while (code < 7) {
    const float midpoint = kMidpoints[code];
    const bool up = magnitude > midpoint || (magnitude == midpoint && code % 2 == 1);
    if (!up) break;
    ++code;
  }
  return sign | code;
}

uint8_t f32_to_e4m3(float x) {
  if (std::isnan(x)) return 0x7F;
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const float magnitude = std::fabs(x);
  if (magnitude >= 448.0f) return sign | 0x7E;
  if (magnitude < 0x1p-6f) {  // subnormal: multiples of 2^-9; 8 of them is the first normal
    return sign | static_cast<uint8_t>(std::nearbyint(magnitude * 512.0f));
  }
  // Round the f32 mantissa to 3 bits, ties to even; a carry moves into the exponent by itself.
  const uint32_t u = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = (u + 0x7FFFFu + ((u >> 20) & 1u)) >> 20;
  const uint32_t byte = rounded - (120u << 3);
  return sign | static_cast<uint8_t>(std::min(byte, 0x7Eu));
}

uint8_t f32_to_e8m0_floor(float x) {
  const int exponent = std::ilogb(x);
  return static_cast<uint8_t>(std::clamp(exponent + 127, 0, 254));
}

namespace {

/// Chooses the scale byte of one group and writes its codes.
uint8_t quantize_group(Format format, const float* group, int size, float global, int64_t first_k,
                       uint8_t* row_codes) {
  float amax = 0;
  for (int i = 0; i < size; ++i) amax = std::max(amax, std::fabs(group[i]));
  uint8_t byte = 0;
  if (format == Format::mxfp4) {
    byte = amax > 0 ? f32_to_e8m0_floor(std::max(amax * 0.25f, 0x1p-127f)) : 127;
  } else {
    byte = f32_to_e4m3(amax / 6.0f / global);
  }
  const double step = static_cast<double>(scale_to_f32(format, byte)) * global;
  for (int i = 0; i < size; ++i) {
    const int64_t k = first_k + i;
    const uint8_t code = step > 0 ? f32_to_e2m1(static_cast<float>(group[i] / step)) : 0;
    uint8_t& pair = row_codes[k / 2];
    pair = k % 2 == 0 ? code : static_cast<uint8_t>(pair | code << 4);
  }
  return byte;
}

}  // namespace

Status quantize_matrix(Format format, const float* matrix, int64_t rows, int64_t k, uint8_t* codes,
                       uint8_t* scales, float* global_scale) {
  const FormatInfo info = format_info(format);
  if (k % info.group_size != 0) {
    return make_error(Code::invalid_argument, "k: have %lld, %s needs a multiple of %d",
                      static_cast<long long>(k), info.name, info.group_size);
  }
  float amax = 0;
  for (int64_t i = 0; i < rows * k; ++i) {
    if (!std::isfinite(matrix[i])) {
      return make_error(Code::invalid_argument, "matrix: row %lld column %lld is not finite",
                        static_cast<long long>(i / k), static_cast<long long>(i % k));
    }
    amax = std::max(amax, std::fabs(matrix[i]));
  }
  *global_scale = info.has_global_scale && amax > 0 ? amax / (6.0f * 448.0f) : 1.0f;
  // A subnormal factor is coarse: rounded down, it would push the largest block scale past 448.
  if (info.has_global_scale && static_cast<double>(*global_scale) * 2688.0 < amax &&
      *global_scale < std::numeric_limits<float>::min()) {
    *global_scale = std::nextafter(*global_scale, 1.0f);
  }
  const int64_t groups = k / info.group_size;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = g * info.group_size;
      scales[r * groups + g] = quantize_group(format, matrix + r * k + first, info.group_size,
                                              *global_scale, first, codes + r * (k / 2));
    }
  }
  return {};
}

}  // namespace snug
