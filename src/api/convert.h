// SPDX-License-Identifier: Apache-2.0
// Between the C ABI's descriptors and the library's types. No logic beyond field checks.
// tidy: no twin, exercised by every test in tests/api
#pragma once

#include <cstring>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "moe/routing.h"
#include "plan/plan.h"
#include "snug/snug.h"
#include "weights/source.h"

namespace snug::api {

/// Copies a status into the caller's error, if there is one, and returns its code.
inline snug_status finish(const Status& status, snug_error* error) {
  static_assert(sizeof(status.message) == sizeof(error->message));
  if (!status.ok() && error != nullptr) {
    error->code = static_cast<int32_t>(status.code);
    error->native_code = status.native_code;
    std::memcpy(error->message, status.message, sizeof error->message);
  }
  return static_cast<snug_status>(status.code);
}

inline Status null_argument(const char* name) {
  return make_error(Code::invalid_argument, "%s: is null", name);
}

/// Refuses a null descriptor and one of another version.
template <class T>
Status check_descriptor(const char* name, const T* descriptor) {
  if (descriptor == nullptr) return null_argument(name);
  if (descriptor->struct_size == sizeof(T)) return {};
  return make_error(Code::invalid_argument, "%s.struct_size: have %u, this version has %zu", name,
                    descriptor->struct_size, sizeof(T));
}

/// Reads a 0-or-1 field.
inline Status read_flag(const char* name, int32_t have, bool* flag) {
  if (have != 0 && have != 1) {
    return make_error(Code::invalid_argument, "%s: have %d, need 0 or 1", name, have);
  }
  *flag = have == 1;
  return {};
}

/// Copies text into a fixed field, cut and zero-terminated.
template <size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  const size_t count = from.size() < N - 1 ? from.size() : N - 1;
  std::memcpy(to, from.data(), count);
  std::memset(to + count, 0, N - count);
}

/// Gives text to a caller's buffer by the rules of snug_plan_explain.
inline Status copy_out(std::string_view text, char* buffer, size_t capacity, size_t* needed) {
  if (needed != nullptr) *needed = text.size() + 1;
  if (capacity == 0) return {};
  if (buffer == nullptr) return null_argument("buffer");
  if (capacity < text.size() + 1) {
    return make_error(Code::invalid_argument, "capacity: have %zu, the text needs %zu", capacity,
                      text.size() + 1);
  }
  std::memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
  return {};
}

Result<Caps> read_caps(const snug_caps* caps);
Result<Device> read_device(const snug_device* device);
void write_device(const Device& from, snug_device* to);
snug_activation write_activation(const Activation& from);
snug_routing write_routing(const Routing& from);
Result<Routing> read_routing(const snug_routing* routing);
Result<ExpertSource> read_expert_source(const snug_expert_source* source);

/// The backends of this build, reference first; a cuda entry without run is there for its prices.
std::span<const Backend> backends();

/// The backend of a machine.
const Backend& backend_of(Machine machine);

}  // namespace snug::api

/// The handles behind the opaque names.
struct snug_plan {
  snug::Plan value;
};
