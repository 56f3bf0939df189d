// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <cstdarg>
#include <cstdio>

namespace snug {

const char* code_name(Code code) {
  static constexpr const char* kNames[kNumCodes] = {"ok",          "invalid_argument",
                                                    "unsupported", "arena_too_small",
                                                    "misaligned",  "corrupt_checkpoint",
                                                    "io",          "device",
                                                    "cancelled",   "internal"};
  const int i = static_cast<int>(code);
  return i >= 0 && i < kNumCodes ? kNames[i] : "unknown";
}

namespace {

Status format_error(Code code, int32_t native_code, const char* format, va_list args) {
  Status status;
  status.code = code;
  status.native_code = native_code;
  std::vsnprintf(status.message, sizeof status.message, format, args);
  return status;
}

}  // namespace

Status make_error(Code code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const Status status = format_error(code, 0, format, args);
  va_end(args);
  return status;
}

Status make_native_error(Code code, int32_t native_code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const Status status = format_error(code, native_code, format, args);
  va_end(args);
  return status;
}

}  // namespace snug
