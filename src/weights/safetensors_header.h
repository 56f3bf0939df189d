// SPDX-License-Identifier: Apache-2.0
// The JSON header of a safetensors file, read strictly: only what the format allows, nothing kept
// in between, so that no input can exhaust memory or nest deeply.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace snug {

/// One tensor as the header states it; the numbers are not yet checked against each other.
struct HeaderEntry {
  std::string name;  // no control characters
  std::string dtype;
  int32_t rank = 0;  // 0..8
  int64_t shape[8] = {};
  std::pair<uint64_t, uint64_t> data_offsets;
};

/// The entries in the header's order; duplicates are the caller's to find. `__metadata__` must be
/// an object of strings and is dropped.
///   file   base name, for messages
/// Errors: corrupt_checkpoint naming file, tensor and field: malformed JSON with its byte, a NUL
/// byte, anything but an object on top, a missing, repeated or unknown field, numbers that are
/// negative, fractional or above 2^63, nesting.
Result<std::vector<HeaderEntry>> parse_header(const char* file, std::string_view header);

}  // namespace snug
