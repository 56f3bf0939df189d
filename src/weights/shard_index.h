// SPDX-License-Identifier: Apache-2.0
// Which files make up a checkpoint folder, and which tensor its index promises in which of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace snug {

/// The files of a checkpoint folder. Without an index file there are no entries.
struct ShardIndex {
  struct Entry {
    std::string tensor;
    int32_t shard;  // into `shards`
  };
  bool has_index = false;
  std::vector<std::string> shards;  // plain file names, sorted, each once
  std::vector<Entry> entries;       // sorted by tensor
};

/// Reads the text of a model.safetensors.index.json.
/// Errors: corrupt_checkpoint for malformed JSON, a weight_map that is missing or not an object of
/// strings, a tensor listed twice, a file name that is not plain (holds '/', '\\', a control
/// character, begins with '.') or does not end in .safetensors.
Result<ShardIndex> parse_shard_index(std::string_view text);

/// The index of the folder if it has one, else all its *.safetensors files except those whose name
/// begins with "golden" (recorded outputs beside a model). Errors: those of parse_shard_index and
/// MappedFile::open; io when the folder cannot be listed or holds no such file.
Result<ShardIndex> read_shard_index(const std::string& folder);

}  // namespace snug
