// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "weights/mapped_file.h"
#include "weights/shard_index.h"

namespace snug {

namespace {

/// A tensor and the shard that holds it.
struct Located {
  const TensorView* tensor;
  int32_t shard;
};

/// The shards' tensors in one order by name; a name in two shards is an error.
Result<std::vector<Located>> merge_shards(std::span<const SafetensorsFile> shards) {
  std::vector<Located> all;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const TensorView& tensor : shards[i].tensors()) {
      all.push_back({&tensor, static_cast<int32_t>(i)});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Located& a, const Located& b) { return a.tensor->name < b.tensor->name; });
  const auto twice = std::adjacent_find(
      all.begin(), all.end(),
      [](const Located& a, const Located& b) { return a.tensor->name == b.tensor->name; });
  if (twice != all.end()) {
    return make_error(Code::corrupt_checkpoint, "%.100s: is both in %.60s and in %.60s",
                      twice->tensor->name.data(), shards[twice[0].shard].name().c_str(),
                      shards[twice[1].shard].name().c_str());
  }
  return all;
}

/// The index and the shards must list the same tensors in the same places. Both sorted by name.
Status check_index(const ShardIndex& index, std::span<const Located> located) {
  size_t i = 0;
  for (const ShardIndex::Entry& entry : index.entries) {
    const char* promised = index.shards[entry.shard].c_str();
    if (i < located.size() && located[i].tensor->name < entry.tensor) break;
    if (i == located.size() || located[i].tensor->name != entry.tensor) {
      return make_error(Code::corrupt_checkpoint,
                        "%.120s: is in no shard, the index promises it in %.80s",
                        entry.tensor.c_str(), promised);
    }
    if (located[i].shard != entry.shard) {
      return make_error(Code::corrupt_checkpoint, "%.100s: is in %.50s, the index says %.50s",
                        entry.tensor.c_str(), index.shards[located[i].shard].c_str(), promised);
    }
    ++i;
  }
  if (i == located.size()) return {};
  return make_error(Code::corrupt_checkpoint, "%.120s: is in %.80s but not in the index",
                    located[i].tensor->name.data(), index.shards[located[i].shard].c_str());
}

std::string parent_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "." : path.substr(0, slash + 1);
}

}  // namespace

Status Checkpoint::open_shards(const std::string& folder, const std::vector<std::string>& names) {
  shards_.reserve(names.size());
  for (const std::string& name : names) {
    SNUG_ASSIGN_OR_RETURN(SafetensorsFile shard, SafetensorsFile::open(folder + "/" + name));
    shards_.push_back(std::move(shard));
  }
  return {};
}

Result<Checkpoint> Checkpoint::open(const char* path) {
  if (path == nullptr || *path == '\0') {
    return make_error(Code::invalid_argument, "path: is %s", path == nullptr ? "null" : "empty");
  }
  Checkpoint result;
  std::error_code ignored;  // what is neither is left to open(), which says why
  ShardIndex index;
  std::string folder = path;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  if (is_folder) {
    SNUG_ASSIGN_OR_RETURN(index, read_shard_index(folder));
  } else {
    folder = parent_folder(path);
    index.shards = {base_name(path)};
  }
  SNUG_RETURN_IF_ERROR(result.open_shards(folder, index.shards));
  SNUG_ASSIGN_OR_RETURN(result.config_, read_model_config(folder));
  SNUG_ASSIGN_OR_RETURN(const std::vector<Located> located, merge_shards(result.shards_));
  if (index.has_index) SNUG_RETURN_IF_ERROR(check_index(index, located));
  result.by_name_.reserve(located.size());
  for (const Located& l : located) result.by_name_.push_back(l.tensor);
  SNUG_ASSIGN_OR_RETURN(result.tensors_, find_moe_layers(result.by_name_, result.config_));
  for (const MoeLayerTensors& t : result.tensors_) result.layers_.push_back(t.layer);
  // One file alone may hold anything; a folder is the whole model.
  if (is_folder && result.layers_.empty() && result.config_.num_experts > 0) {
    return make_error(Code::corrupt_checkpoint,
                      "experts: none in this checkpoint, config.json says %d a layer",
                      result.config_.num_experts);
  }
  return result;
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto it =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [](const TensorView* view, std::string_view n) { return view->name < n; });
  return it != by_name_.end() && (*it)->name == name ? *it : nullptr;
}

const MoeLayer* Checkpoint::find_layer(int32_t layer, Format format) const {
  const auto it = std::lower_bound(
      layers_.begin(), layers_.end(), std::pair(layer, format),
      [](const MoeLayer& l, const auto& key) { return std::pair(l.layer, l.format) < key; });
  return it != layers_.end() && it->layer == layer && it->format == format ? &*it : nullptr;
}

const MoeLayerTensors* Checkpoint::tensors_of(const MoeLayer& layer) const {
  const MoeLayer* own = find_layer(layer.layer, layer.format);
  return own == nullptr ? nullptr : &tensors_[static_cast<size_t>(own - layers_.data())];
}

Result<ExpertSource> Checkpoint::expert(const MoeLayer& layer, int32_t expert) const {
  const MoeLayerTensors* tensors = tensors_of(layer);
  if (tensors == nullptr) {
    return make_error(Code::invalid_argument, "layer: layers.%d in %s is not in this checkpoint",
                      layer.layer, format_info(layer.format).name);
  }
  return expert_source(*tensors, expert);
}

uint64_t Checkpoint::source_nbytes(const MoeLayer& layer) const {
  const MoeLayerTensors* tensors = tensors_of(layer);
  return tensors == nullptr ? 0 : snug::source_nbytes(*tensors);
}

}  // namespace snug
