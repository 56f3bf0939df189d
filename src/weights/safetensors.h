// SPDX-License-Identifier: Apache-2.0
// One safetensors file: mapped, its header checked in full, its tensors found by name.
//
//   bytes 0..7        header length n, little-endian
//   bytes 8..8+n-1    JSON: {"name": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, ...}
//   the rest          the data; the tensors cover it exactly, without hole or overlap
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "weights/mapped_file.h"

namespace snug {

inline constexpr int32_t kMaxTensorRank = 8;
inline constexpr uint64_t kMaxHeaderNbytes = 100'000'000;  // the format's own limit

/// A tensor inside a mapped file. It borrows: valid as long as the file's object lives.
struct TensorView {
  std::string_view name;
  std::string_view stored_dtype;  // as the header spells it, "F8_E4M3"
  std::optional<DType> dtype;     // none: an element type that Snug has no word for
  int32_t rank = 0;
  int64_t shape[kMaxTensorRank] = {};  // F4 counts pairs (bytes) along the last dimension
  const uint8_t* data = nullptr;       // [nbytes], mapped; aligned only if the file aligned it
  uint64_t nbytes = 0;
};

/// A checked safetensors file. Movable; views stay valid across a move.
class SafetensorsFile {
 public:
  /// Maps `path` and checks every field of its header before any is used.
  /// Errors: those of MappedFile::open; corrupt_checkpoint, naming the file's base name, the tensor
  /// and the two numbers that disagree: header length, dtype, shape, offsets, order, holes,
  /// overlap, duplicate names, a rank above 8, control characters in a name, malformed JSON.
  /// Source: the safetensors format description; rules as strict as its reference reader.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& name() const { return file_.name(); }  // base name
  uint64_t nbytes() const { return file_.nbytes(); }
  std::span<const TensorView> tensors() const { return tensors_; }  // sorted by name

  /// The tensor called `name`, or null.
  const TensorView* find(std::string_view name) const;

 private:
  MappedFile file_;
  std::vector<std::string> names_;  // what the views' names point into
  std::vector<TensorView> tensors_;
};

}  // namespace snug
