// SPDX-License-Identifier: Apache-2.0
// Writes small safetensors files for tests, well-formed or with any header one likes, and a
// temporary folder to put them in.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace snug::test {

/// A folder that goes with its object.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "snug_test_XXXXXX").string();
    path_ = mkdtemp(pattern.data()) != nullptr ? pattern : std::string();
    EXPECT_FALSE(path_.empty());
  }
  ~TempDir() {
    if (!path_.empty()) std::filesystem::remove_all(path_);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }

  /// Writes `bytes` to a file of the folder; its whole path.
  std::string write(const std::string& name, const std::string& bytes) const {
    const std::string path = path_ + "/" + name;
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    EXPECT_TRUE(file.good());
    return path;
  }

 private:
  std::string path_;
};

/// A tensor to be written.
struct StoredTensor {
  std::string name;
  std::string dtype;  // "U8", "F8_E4M3", ...
  std::vector<int64_t> shape;
  std::string bytes;
};

/// A file from a header length, a header text and data, consistent or not.
inline std::string raw_safetensors(uint64_t header_length, const std::string& header,
                                   const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header_length >> (8 * i) & 255);
  return bytes + header + data;
}
inline std::string raw_safetensors(const std::string& header, const std::string& data) {
  return raw_safetensors(header.size(), header, data);
}

/// A well-formed file of these tensors, in this order.
inline std::string safetensors_bytes(const std::vector<StoredTensor>& tensors) {
  std::string header = "{\"__metadata__\": {\"format\": \"pt\"}", data;
  for (const StoredTensor& t : tensors) {
    header += ", \"" + t.name + "\": {\"dtype\": \"" + t.dtype + "\", \"shape\": [";
    for (size_t i = 0; i < t.shape.size(); ++i) {
      header += (i > 0 ? ", " : "") + std::to_string(t.shape[i]);
    }
    header += "], \"data_offsets\": [" + std::to_string(data.size()) + ", ";
    data += t.bytes;
    header += std::to_string(data.size()) + "]}";
  }
  header += "}";
  while (header.size() % 8 != 0) header += ' ';
  return raw_safetensors(header, data);
}

}  // namespace snug::test
