// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or the Status that says why there is none (std::expected's names; it becomes
// an alias when the floor is C++23).
#pragma once

#include <optional>
#include <utility>

#include "base/macros.h"
#include "base/status.h"

namespace snug {

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(const Status& error) : error_(error) { SNUG_ASSERT(!error.ok()); }

  bool has_value() const { return value_.has_value(); }
  explicit operator bool() const { return has_value(); }

  T& value() & {
    SNUG_ASSERT(has_value());
    return *value_;
  }
  const T& value() const& {
    SNUG_ASSERT(has_value());
    return *value_;
  }
  T&& value() && {
    SNUG_ASSERT(has_value());
    return *std::move(value_);
  }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  /// The reason there is no value; ok when there is one.
  const Status& error() const { return error_; }

 private:
  std::optional<T> value_;
  Status error_;
};

}  // namespace snug
