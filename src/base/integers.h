// SPDX-License-Identifier: Apache-2.0
// Integer helpers: rounding divisions, alignment, and products that cannot wrap.
#pragma once

#include <cstdint>

#include "base/macros.h"

namespace snug {

/// Smallest q with q * b >= a.  a >= 0, b > 0.
SNUG_HD constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// a rounded up to a multiple of b.  a >= 0, b > 0.
SNUG_HD constexpr int64_t align_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/// min and max that compile in device code too.
template <class T>
SNUG_HD constexpr T min_of(T a, T b) {
  return b < a ? b : a;
}
template <class T>
SNUG_HD constexpr T max_of(T a, T b) {
  return a < b ? b : a;
}

/// A byte or element count that remembers whether any step of its computation overflowed.
/// Used where the factors come from a file; arithmetic on an overflowed value stays overflowed.
class Checked {
 public:
  constexpr Checked(uint64_t value) : value_(value) {}
  constexpr bool ok() const { return !overflowed_; }
  constexpr uint64_t value() const { return value_; }

  friend constexpr Checked operator*(Checked a, Checked b) {
    Checked r(0);
    r.overflowed_ = __builtin_mul_overflow(a.value_, b.value_, &r.value_) || !a.ok() || !b.ok();
    return r;
  }
  friend constexpr Checked operator+(Checked a, Checked b) {
    Checked r(0);
    r.overflowed_ = __builtin_add_overflow(a.value_, b.value_, &r.value_) || !a.ok() || !b.ok();
    return r;
  }

 private:
  uint64_t value_;
  bool overflowed_ = false;
};

}  // namespace snug
