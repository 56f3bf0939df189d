// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only into memory: the one place that opens files of a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/status.h"

namespace snug {

/// Owns one read-only mapping; unmapped on destruction. Movable; the mapping's address survives a
/// move. The file must not be shortened while it is mapped (the system would raise SIGBUS).
class MappedFile {
 public:
  /// Maps the whole of `path`. The descriptor is closed before return.
  /// Errors: io with errno (missing file, no permission, a folder: EISDIR, not a regular file:
  /// EINVAL); corrupt_checkpoint for an empty file. Messages begin with the path.
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const uint8_t* data() const { return data_; }  // page-aligned; null when nothing is mapped
  uint64_t nbytes() const { return nbytes_; }
  const std::string& name() const { return name_; }  // the path's last component

  /// The bytes as text, for JSON files.
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), nbytes_}; }

 private:
  const uint8_t* data_ = nullptr;
  uint64_t nbytes_ = 0;
  std::string name_;
};

/// The last component of a path, without trailing slashes.
std::string base_name(std::string_view path);

}  // namespace snug
