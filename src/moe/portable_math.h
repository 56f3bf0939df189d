// SPDX-License-Identifier: Apache-2.0
// exp and log1p(exp) in f32 from separately rounded multiplications and additions only, so that
// every machine, host or device, gets the same bits. Routing needs that: ids must be equal.
// Host code is compiled with -ffp-contract=off; device code names its rounding.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/macros.h"

namespace snug {

#if defined(__CUDA_ARCH__)
SNUG_HD inline float mul_rn(float a, float b) { return __fmul_rn(a, b); }
SNUG_HD inline float add_rn(float a, float b) { return __fadd_rn(a, b); }
SNUG_HD inline float div_rn(float a, float b) { return __fdiv_rn(a, b); }
SNUG_HD inline float sqrt_rn(float a) { return __fsqrt_rn(a); }
#else
SNUG_HD inline float mul_rn(float a, float b) { return a * b; }
SNUG_HD inline float add_rn(float a, float b) { return a + b; }
SNUG_HD inline float div_rn(float a, float b) { return a / b; }
SNUG_HD inline float sqrt_rn(float a) { return std::sqrt(a); }
#endif

/// e^x within 2 ulp for x <= 0 and for x up to 88; 0 below -87.3 (no subnormal results), so that a
/// caller's flush-to-zero mode changes nothing. NaN is the caller's to keep out.
SNUG_HD inline float exp_portable(float x) {
  if (x < -87.3f) return 0.0f;
  if (x > 88.0f) x = 88.0f;
  // x = n ln2 + r, |r| <= ln2 / 2. Adding 1.5 * 2^23 rounds to an integer, ties to even.
  const float shifted = add_rn(mul_rn(x, 1.44269504f), 12582912.0f);
  const float n = add_rn(shifted, -12582912.0f);
  float r = add_rn(x, mul_rn(n, -0.693145752f));  // ln2's upper part: n * it is exact
  r = add_rn(r, mul_rn(n, -1.42860677e-6f));
  // Taylor to degree 7: the rest is below 2^-27 on |r| <= 0.347.
  float p = 1.98412698e-4f;
  p = add_rn(mul_rn(p, r), 1.38888889e-3f);
  p = add_rn(mul_rn(p, r), 8.33333333e-3f);
  p = add_rn(mul_rn(p, r), 4.16666667e-2f);
  p = add_rn(mul_rn(p, r), 1.66666667e-1f);
  p = add_rn(mul_rn(p, r), 0.5f);
  p = add_rn(mul_rn(mul_rn(p, r), r), r);
  p = add_rn(p, 1.0f);
  const int32_t exponent = static_cast<int32_t>(n) + 127;  // 1..254 on the clamped range
  return mul_rn(p, std::bit_cast<float>(static_cast<uint32_t>(exponent) << 23));
}

/// log(1 + e^x), the softplus, within 4 ulp.
SNUG_HD inline float softplus_portable(float x) {
  // max(x, 0) + log1p(u) with u = e^-|x| in (0, 1]; log1p(u) = 2 atanh(s), s = u / (2 + u) <= 1/3.
  const float u = exp_portable(x < 0 ? x : -x);
  const float s = div_rn(u, add_rn(2.0f, u));
  const float s2 = mul_rn(s, s);
  float p = 1.0f / 17.0f;
  p = add_rn(mul_rn(p, s2), 1.0f / 15.0f);
  p = add_rn(mul_rn(p, s2), 1.0f / 13.0f);
  p = add_rn(mul_rn(p, s2), 1.0f / 11.0f);
  p = add_rn(mul_rn(p, s2), 1.0f / 9.0f);
  p = add_rn(mul_rn(p, s2), 1.0f / 7.0f);
  p = add_rn(mul_rn(p, s2), 1.0f / 5.0f);
  p = add_rn(mul_rn(p, s2), 1.0f / 3.0f);
  const float log1p = mul_rn(2.0f, add_rn(s, mul_rn(s, mul_rn(s2, p))));
  return x > 0 ? add_rn(x, log1p) : log1p;
}

}  // namespace snug
