// SPDX-License-Identifier: Apache-2.0
// A model's files as one thing: every shard mapped and checked, tensors by name, expert layers
// found and proven complete. The first step of preparation; reads no weight bytes itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/model_config.h"
#include "weights/moe_layers.h"
#include "weights/safetensors.h"

namespace snug {

/// An opened checkpoint. Owns the mappings that every TensorView and ExpertSource it hands out
/// points into; they stay valid across a move and end with it. Immutable, so safe to share.
class Checkpoint {
 public:
  /// Opens a folder (by its model.safetensors.index.json, else all its *.safetensors files but
  /// golden*) or one .safetensors file; config.json is read from that folder, or from the file's.
  /// Reads headers and global scales only.
  /// Errors: io for what the system refuses; corrupt_checkpoint and unsupported naming file, tensor
  /// and numbers: those of SafetensorsFile::open, read_shard_index, read_model_config and
  /// find_moe_layers; a tensor that the index misplaces or omits; a tensor in two shards.
  static Result<Checkpoint> open(const char* path);

  const ModelConfig& config() const { return config_; }
  std::span<const SafetensorsFile> shards() const { return shards_; }

  /// The tensor called `name` in any shard, or null.
  const TensorView* find(std::string_view name) const;

  /// One entry per (layer, format), sorted by layer, then format. Empty for a dense model.
  std::span<const MoeLayer> layers() const { return layers_; }

  /// The entry of a layer in a format, or null.
  const MoeLayer* find_layer(int32_t layer, Format format) const;

  /// Where one expert's weights lie, in the mapped files.
  ///   layer    an entry of layers()
  ///   expert   0..layer.num_experts-1
  /// Errors: invalid_argument for a layer not of this checkpoint, or an expert out of range.
  Result<ExpertSource> expert(const MoeLayer& layer, int32_t expert) const;

  /// Bytes that the layer's tensors take in the files; 0 for a layer not of this checkpoint.
  uint64_t source_nbytes(const MoeLayer& layer) const;

 private:
  Status open_shards(const std::string& folder, const std::vector<std::string>& names);
  const MoeLayerTensors* tensors_of(const MoeLayer& layer) const;

  ModelConfig config_;
  std::vector<SafetensorsFile> shards_;
  std::vector<const TensorView*> by_name_;  // sorted
  std::vector<MoeLayer> layers_;
  std::vector<MoeLayerTensors> tensors_;  // beside layers_
};

}  // namespace snug
