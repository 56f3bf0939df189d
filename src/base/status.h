// SPDX-License-Identifier: Apache-2.0
// Errors as values: a code that says what to do, and a message that names the argument.
#pragma once

#include <cstdint>

namespace snug {

/// Values are part of the C ABI (snug_status); append only.
enum class Code : int32_t {
  ok = 0,
  invalid_argument = 1,    // fix the named argument
  unsupported = 2,         // valid, but no kernel of this build does it
  arena_too_small = 3,     // give the named number of bytes
  misaligned = 4,          // align the named pointer
  corrupt_checkpoint = 5,  // the file is not what it says it is
  io = 6,                  // the system's error is in native_code
  device = 7,              // the driver's error is in native_code
  cancelled = 8,           // a progress callback asked to stop
  internal = 9,            // a bug of ours
};
inline constexpr int kNumCodes = 10;

/// Lower-case name of a code, "unknown" outside the enum.
const char* code_name(Code code);

/// The outcome of a call: trivially copyable, no heap, crosses the C ABI by copy.
struct [[nodiscard]] Status {
  static constexpr int kMessageCapacity = 248;

  Code code = Code::ok;
  int32_t native_code = 0;              // errno, cudaError_t, ...; 0 when there is none
  char message[kMessageCapacity] = {};  // lower case, argument first, no full stop

  bool ok() const { return code == Code::ok; }
};

/// Builds an error; the text follows printf and is cut at the capacity.
Status make_error(Code code, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// The same with the system's or driver's own code beside it.
Status make_native_error(Code code, int32_t native_code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

}  // namespace snug

#define SNUG_CONCAT_INNER(a, b) a##b
#define SNUG_CONCAT(a, b) SNUG_CONCAT_INNER(a, b)

#define SNUG_RETURN_IF_ERROR(expression)                                                  \
  do {                                                                                    \
    if (::snug::Status snug_status = (expression); !snug_status.ok()) return snug_status; \
  } while (false)

#define SNUG_ASSIGN_OR_RETURN(declaration, expression) \
  SNUG_ASSIGN_OR_RETURN_IMPL(SNUG_CONCAT(snug_result_, __LINE__), declaration, expression)
#define SNUG_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                       \
  if (!result.has_value()) return result.error();                   \
  declaration = std::move(result).value()
