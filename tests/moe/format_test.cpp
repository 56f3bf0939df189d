// SPDX-License-Identifier: Apache-2.0
#include "moe/format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/bf16.h"

namespace snug {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// --- decoders against tables and ldexp --------------------------------------------------------

constexpr double kE2m1[16] = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                              -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

double e4m3_value(int byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  if ((byte & 0x7F) == 0x7F) return kNan;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return byte & 0x80 ? -magnitude : magnitude;
}

double e8m0_value(int byte) { return byte == 255 ? kNan : std::ldexp(1.0, byte - 127); }

bool same_value(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

TEST(Format, E2m1EveryCode) {
  for (int code = 0; code < 256; ++code) {  // the upper four bits are ignored
    EXPECT_TRUE(same_value(e2m1_to_f32(static_cast<uint8_t>(code)), kE2m1[code & 15])) << code;
  }
}

TEST(Format, E4m3EveryByte) {
  for (int byte = 0; byte < 256; ++byte) {
    const float f = e4m3_to_f32(static_cast<uint8_t>(byte));
    EXPECT_TRUE(same_value(f, e4m3_value(byte))) << byte;
    EXPECT_EQ(std::bit_cast<uint32_t>(scale_to_f32(Format::nvfp4, static_cast<uint8_t>(byte))),
              std::bit_cast<uint32_t>(f));
  }
  EXPECT_EQ(e4m3_to_f32(0x7E), 448.0f);
  EXPECT_EQ(e4m3_to_f32(0x08), 0x1p-6f);
  EXPECT_EQ(e4m3_to_f32(0x01), 0x1p-9f);
}

TEST(Format, E8m0EveryByte) {
  for (int byte = 0; byte < 256; ++byte) {
    const float f = e8m0_to_f32(static_cast<uint8_t>(byte));
    EXPECT_TRUE(same_value(f, e8m0_value(byte))) << byte;
    EXPECT_EQ(std::bit_cast<uint32_t>(scale_to_f32(Format::mxfp4, static_cast<uint8_t>(byte))),
              std::bit_cast<uint32_t>(f));
  }
  EXPECT_EQ(e8m0_to_f32(127), 1.0f);
}

TEST(Format, Nvfp4ProductsAreExactInBf16) {
  int checked = 0;
  for (int code = 0; code < 16; ++code) {
    for (int byte = 0; byte < 256; ++byte) {
      const double exact = kE2m1[code] * e4m3_value(byte);
      const float product =
          e2m1_to_f32(static_cast<uint8_t>(code)) * e4m3_to_f32(static_cast<uint8_t>(byte));
      ASSERT_TRUE(same_value(product, exact)) << code << " " << byte;
      if (std::isnan(exact)) continue;
      ASSERT_EQ(static_cast<double>(bf16_to_f32(f64_to_bf16(exact))), exact) << code << " " << byte;
      ++checked;
    }
  }
  EXPECT_EQ(checked, 16 * 254);
}

TEST(Format, Mxfp4ProductsAreExactInBf16WhereFinite) {
  int checked = 0, infinite = 0;
  for (int code = 0; code < 16; ++code) {
    for (int byte = 0; byte < 255; ++byte) {
      const double exact = kE2m1[code] * e8m0_value(byte);
      const float product =
          e2m1_to_f32(static_cast<uint8_t>(code)) * e8m0_to_f32(static_cast<uint8_t>(byte));
      if (std::fabs(exact) >= 0x1p128) {
        ASSERT_TRUE(std::isinf(product));
        ++infinite;
        continue;
      }
      ASSERT_TRUE(same_value(product, exact)) << code << " " << byte;
      ASSERT_EQ(static_cast<double>(bf16_to_f32(f64_to_bf16(exact))), exact) << code << " " << byte;
      ++checked;
    }
  }
  // 2, 3, 4, 6 at 2^127 and 4, 6 at 2^126, both signs.
  EXPECT_EQ(infinite, 12);
  EXPECT_EQ(checked, 16 * 255 - 12);
}

TEST(Format, InfoTable) {
  EXPECT_STREQ(format_info(Format::nvfp4).name, "nvfp4");
  EXPECT_EQ(format_info(Format::nvfp4).group_size, 16);
  EXPECT_TRUE(format_info(Format::nvfp4).has_global_scale);
  EXPECT_FALSE(format_info(Format::nvfp4).e8m0_scales);
  EXPECT_STREQ(format_info(Format::mxfp4).name, "mxfp4");
  EXPECT_EQ(format_info(Format::mxfp4).group_size, 32);
  EXPECT_FALSE(format_info(Format::mxfp4).has_global_scale);
  EXPECT_TRUE(format_info(Format::mxfp4).e8m0_scales);
}

TEST(Format, UnpackTakesTheLowNibbleFirst) {
  const uint8_t row[3] = {0x21, 0x43, 0xF5};
  const int expected[6] = {1, 2, 3, 4, 5, 15};
  for (int k = 0; k < 6; ++k) EXPECT_EQ(unpack_code(row, k), expected[k]);
}

// --- encoders against brute force -------------------------------------------------------------

/// Nearest of `codes` magnitudes (ascending), ties to the even index; above the last saturates.
template <class Value>
int nearest(double x, int last, Value value) {
  int best = 0;
  for (int i = 1; i <= last; ++i) {
    const double now = std::fabs(value(i) - x), before = std::fabs(value(best) - x);
    if (now < before || (now == before && i % 2 == 0)) best = i;
  }
  return best;
}

int oracle_e2m1(float x) {
  const int magnitude = nearest(std::fabs(x), 7, [](int c) { return kE2m1[c]; });
  return magnitude | (std::signbit(x) ? 8 : 0);
}
int oracle_e4m3(float x) {
  return nearest(std::fabs(x), 0x7E, e4m3_value) | (std::signbit(x) ? 0x80 : 0);
}

TEST(Format, EncodersInvertDecoders) {
  for (int code = 0; code < 16; ++code) {
    EXPECT_EQ(f32_to_e2m1(e2m1_to_f32(static_cast<uint8_t>(code))), code);
  }
  for (int byte = 0; byte < 256; ++byte) {
    if ((byte & 0x7F) == 0x7F) continue;
    EXPECT_EQ(f32_to_e4m3(e4m3_to_f32(static_cast<uint8_t>(byte))), byte);
  }
  for (int byte = 0; byte < 255; ++byte) {
    EXPECT_EQ(f32_to_e8m0_floor(e8m0_to_f32(static_cast<uint8_t>(byte))), byte);
  }
}

/// x, its f32 neighbours, and their negatives.
template <class F>
void around(double x, F&& visit) {
  const float f = static_cast<float>(x);
  ASSERT_EQ(static_cast<double>(f), x) << "a midpoint must be exact in f32";
  for (const float v : {std::nextafter(f, -kInf), f, std::nextafter(f, kInf)}) {
    visit(v);
    visit(-v);
  }
}

TEST(Format, E2m1NearestEvenAtEveryMidpoint) {
  for (int c = 0; c < 7; ++c) {
    around((kE2m1[c] + kE2m1[c + 1]) / 2,
           [](float v) { EXPECT_EQ(f32_to_e2m1(v), oracle_e2m1(v)) << std::hexfloat << v; });
  }
  for (const float v : {0.0f, -0.0f, 1e-45f, 5.0f, 6.0f, 6.5f, 7.0f, 1e38f, -1e38f, kInf, -kInf}) {
    const int saturated = std::signbit(v) ? 15 : 7;
    const int expected = std::fabs(v) > 6 ? saturated : oracle_e2m1(v);
    EXPECT_EQ(f32_to_e2m1(v), expected) << v;
  }
  EXPECT_EQ(f32_to_e2m1(kNan), 0);
  EXPECT_EQ(f32_to_e2m1(-kNan), 0);
}

TEST(Format, E4m3NearestEvenAtEveryMidpoint) {
  for (int b = 0; b < 0x7E; ++b) {
    around((e4m3_value(b) + e4m3_value(b + 1)) / 2,
           [](float v) { EXPECT_EQ(f32_to_e4m3(v), oracle_e4m3(v)) << std::hexfloat << v; });
  }
  for (const float v : {448.0f, 449.0f, 464.0f, 480.0f, 1e38f, kInf}) {
    EXPECT_EQ(f32_to_e4m3(v), 0x7E) << v;
    EXPECT_EQ(f32_to_e4m3(-v), 0xFE) << v;
  }
  EXPECT_EQ(f32_to_e4m3(kNan), 0x7F);
  EXPECT_EQ(f32_to_e4m3(-0.0f), 0x80);
}

TEST(Format, EncodersOnRandomBits) {
  std::mt19937 random(2);
  for (int i = 0; i < 200'000; ++i) {
    const auto exponent = static_cast<uint32_t>(112 + random() % 26);  // 2^-15 .. 2^10
    const float v =
        std::bit_cast<float>(static_cast<uint32_t>(random() & 0x807FFFFFu) | exponent << 23);
    ASSERT_EQ(f32_to_e2m1(v), oracle_e2m1(v)) << std::hexfloat << v;
    ASSERT_TRUE(i % 8 != 0 || f32_to_e4m3(v) == oracle_e4m3(v)) << std::hexfloat << v;
  }
}

TEST(Format, E8m0FloorOfEveryBinade) {
  for (int byte = 1; byte < 255; ++byte) {
    const float power = std::ldexp(1.0f, byte - 127);
    EXPECT_EQ(f32_to_e8m0_floor(power), byte);
    EXPECT_EQ(f32_to_e8m0_floor(std::nextafter(2 * power, 0.0f)), byte == 254 ? 254 : byte);
    EXPECT_EQ(f32_to_e8m0_floor(std::nextafter(power, 0.0f)), byte - 1);
  }
  EXPECT_EQ(f32_to_e8m0_floor(std::numeric_limits<float>::max()), 254);
  EXPECT_EQ(f32_to_e8m0_floor(1e-45f), 0);
}

// --- quantize_matrix --------------------------------------------------------------------------

struct Quantized {
  std::vector<uint8_t> codes, scales;
  float global = -1;
};

Quantized must_quantize(Format format, const std::vector<float>& matrix, int64_t rows, int64_t k) {
  Quantized q;
  q.codes.assign(rows * k / 2, 0xEE);
  q.scales.assign(rows * k / format_info(format).group_size, 0xEE);
  const Status status =
      quantize_matrix(format, matrix.data(), rows, k, q.codes.data(), q.scales.data(), &q.global);
  EXPECT_TRUE(status.ok()) << status.message;
  return q;
}

double dequantize(Format format, const Quantized& q, int64_t k, int64_t r, int64_t c) {
  const int group = format_info(format).group_size;
  const uint8_t scale = q.scales[r * (k / group) + c / group];
  const double block = format == Format::mxfp4 ? e8m0_value(scale) : e4m3_value(scale);
  return kE2m1[unpack_code(q.codes.data() + r * (k / 2), c)] * block * q.global;
}

/// Every element is within the format's error of its group's largest magnitude:
///   nvfp4: half a step of the top binade (1/6 of amax) plus the scale's own rounding (1/16), and
///          the group as a whole where its scale rounds to zero;
///   mxfp4: values between 6 and 8 steps saturate to 6: a quarter of amax.
void expect_bounded(Format format, const std::vector<float>& matrix, int64_t rows, int64_t k) {
  const Quantized q = must_quantize(format, matrix, rows, k);
  const int group = format_info(format).group_size;
  // Below mxfp4's least step (byte 0, code 0.5) half of that step is lost.
  const double slack = format == Format::mxfp4 ? 0x1p-129 : 0.0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < k; ++c) {
      double amax = 0;
      for (int64_t i = c / group * group; i < (c / group + 1) * group; ++i) {
        amax = std::max(amax, std::fabs(static_cast<double>(matrix[r * k + i])));
      }
      double bound = amax * 0.25;
      if (format == Format::nvfp4) {
        const double smallest_step = 0x1p-10 * 6.0 * q.global;  // half the least E4M3 scale
        bound = std::max(amax / 6 * (1 + 1.0 / 16), smallest_step * 2);
      }
      const double error = std::fabs(dequantize(format, q, k, r, c) - matrix[r * k + c]);
      ASSERT_LE(error, bound * (1 + 1e-3) + slack) << r << " " << c << " of " << amax;
    }
  }
}

std::vector<float> noise(int64_t n, float size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> v(n);
  for (float& x : v) x = normal(random) * size;
  return v;
}

TEST(QuantizeMatrix, ErrorBound) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    for (const float size : {1.0f, 1e-3f, 1e4f, 1e-30f, 1e30f, 3e-38f}) {
      SCOPED_TRACE(std::string(format_info(format).name) + " " + std::to_string(size));
      expect_bounded(format, noise(5 * 96, size, 3), 5, 96);
    }
    // So small that nvfp4's global scale is a coarse subnormal.
    for (int step = 0; step < 40; ++step) {
      SCOPED_TRACE(step);
      expect_bounded(format, noise(96, std::ldexp(1.0f + static_cast<float>(step) / 40, -138), 3),
                     1, 96);
    }
    // Groups of very different sizes in one matrix.
    std::vector<float> mixed = noise(8 * 64, 1.0f, 4);
    for (size_t i = 0; i < mixed.size(); ++i)
      mixed[i] *= std::ldexp(1.0f, -static_cast<int>(i / 32));
    expect_bounded(format, mixed, 8, 64);
  }
}

TEST(QuantizeMatrix, RepresentableValuesComeBackExactly) {
  std::mt19937 random(5);
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    const int64_t rows = 4, k = 96, group = format_info(format).group_size;
    std::vector<float> matrix(rows * k);
    for (int64_t i = 0; i < rows * k; ++i) {
      // The first of each group is 6 so that its scale is recovered; row 0 fixes the global scale.
      const float scale = format == Format::mxfp4
                              ? std::ldexp(1.0f, static_cast<int>(i / group) - 6)
                          : i < group ? 448.0f
                                      : e4m3_to_f32(8 + i / group * 5 % 110);
      const uint8_t code = i % group == 0 ? 7 : static_cast<uint8_t>(random() % 16);
      matrix[i] = e2m1_to_f32(code) * scale;
    }
    const Quantized q = must_quantize(format, matrix, rows, k);
    EXPECT_EQ(q.global, 1.0f);
    for (int64_t i = 0; i < rows * k; ++i) {
      ASSERT_EQ(dequantize(format, q, k, i / k, i % k), matrix[i]) << i;
    }
  }
}

TEST(QuantizeMatrix, ScaleRules) {
  // nvfp4: global = amax / 2688, the largest group's scale byte is 448.
  std::vector<float> matrix(32, 0.5f);
  matrix[0] = -1344.0f;
  const Quantized nv = must_quantize(Format::nvfp4, matrix, 1, 32);
  EXPECT_EQ(nv.global, 0.5f);
  EXPECT_EQ(nv.scales[0], 0x7E);
  EXPECT_EQ(unpack_code(nv.codes.data(), 0), 15);
  // mxfp4: floor(log2 amax) - 2; 1344 lies in [2^10, 2^11).
  const Quantized mx = must_quantize(Format::mxfp4, matrix, 1, 32);
  EXPECT_EQ(mx.global, 1.0f);
  EXPECT_EQ(mx.scales[0], 127 + 10 - 2);
}

TEST(QuantizeMatrix, ZerosStayZero) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    const Quantized q = must_quantize(format, std::vector<float>(64, 0.0f), 1, 64);
    EXPECT_EQ(q.global, 1.0f);
    for (const uint8_t code : q.codes) EXPECT_EQ(code, 0);
    for (const uint8_t scale : q.scales) {
      EXPECT_TRUE(std::isfinite(scale_to_f32(format, scale)));
    }
  }
}

TEST(QuantizeMatrix, RefusesRaggedGroups) {
  float matrix[48] = {};
  uint8_t codes[24], scales[3];
  float global = 0;
  const Status nv = quantize_matrix(Format::nvfp4, matrix, 1, 24, codes, scales, &global);
  EXPECT_EQ(nv.code, Code::invalid_argument);
  EXPECT_STREQ(nv.message, "k: have 24, nvfp4 needs a multiple of 16");
  const Status mx = quantize_matrix(Format::mxfp4, matrix, 1, 48, codes, scales, &global);
  EXPECT_EQ(mx.code, Code::invalid_argument);
  EXPECT_STREQ(mx.message, "k: have 48, mxfp4 needs a multiple of 32");
}

TEST(QuantizeMatrix, RefusesNonFiniteNamingThePlace) {
  for (const float bad : {kNan, kInf, -kInf}) {
    std::vector<float> matrix(3 * 32, 1.0f);
    matrix[2 * 32 + 5] = bad;
    uint8_t codes[48], scales[6];
    float global = 0;
    const Status status =
        quantize_matrix(Format::nvfp4, matrix.data(), 3, 32, codes, scales, &global);
    EXPECT_EQ(status.code, Code::invalid_argument);
    EXPECT_STREQ(status.message, "matrix: row 2 column 5 is not finite");
  }
}

}  // namespace
}  // namespace snug
