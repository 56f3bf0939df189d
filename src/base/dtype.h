// SPDX-License-Identifier: Apache-2.0
// Element types that appear in tensors, slices and descriptors.
#pragma once

#include <cstdint>

#include "base/macros.h"

namespace snug {

/// Values are part of the C ABI (snug_dtype); append only.
enum class DType : int32_t {
  bf16 = 0,
  f16 = 1,
  f32 = 2,
  f64 = 3,
  s32 = 4,
  s64 = 5,
  u8 = 6,
  s8 = 7,
  e4m3 = 8,
  e8m0 = 9,
  e2m1x2 = 10,  // two 4-bit codes in a byte
};
inline constexpr int kNumDTypes = 11;

/// Bytes of one element (of one byte-pair for e2m1x2).
SNUG_HD constexpr int dtype_nbytes(DType t) {
  switch (t) {
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::f32:
    case DType::s32:
      return 4;
    case DType::f64:
    case DType::s64:
      return 8;
    default:
      return 1;
  }
}

constexpr const char* dtype_name(DType t) {
  constexpr const char* kNames[kNumDTypes] = {"bf16", "f16", "f32",  "f64",  "s32",   "s64",
                                              "u8",   "s8",  "e4m3", "e8m0", "e2m1x2"};
  const int i = static_cast<int>(t);
  return i >= 0 && i < kNumDTypes ? kNames[i] : "unknown";
}

}  // namespace snug
