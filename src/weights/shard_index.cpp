// SPDX-License-Identifier: Apache-2.0
#include "weights/shard_index.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "weights/mapped_file.h"

namespace snug {

namespace {

constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr std::string_view kSuffix = ".safetensors";
constexpr int kMaxNesting = 64;
constexpr uint64_t kMaxIndexNbytes = uint64_t{1} << 28;

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

bool is_shard_name(std::string_view name) {
  return name.size() > kSuffix.size() && name.substr(name.size() - kSuffix.size()) == kSuffix &&
         name[0] != '.' && name.find('/') == name.npos && name.find('\\') == name.npos &&
         std::none_of(name.begin(), name.end(), is_control);
}

/// Receives the parser's events; keeps the pairs of weight_map and skips the rest.
class IndexReader {
 public:
  const Status& status() const { return status_; }
  bool had_map() const { return had_map_; }
  std::vector<std::pair<std::string, std::string>> take() { return std::move(pairs_); }

  bool null() { return scalar("null"); }
  bool boolean(bool) { return scalar("a boolean"); }
  bool number_integer(int64_t) { return scalar("a number"); }
  bool number_unsigned(uint64_t) { return scalar("a number"); }
  bool number_float(double, const std::string&) { return scalar("a number"); }
  bool binary(nlohmann::json::binary_t&) { return scalar("binary"); }
  bool start_array(size_t) { return open("an array", false); }
  bool start_object(size_t) { return open("an object", true); }
  bool end_array() { return close(); }
  bool end_object() { return close(); }

  bool key(std::string& text) {
    if (in_map_) {
      pairs_.emplace_back(std::move(text), std::string());
    } else if (depth_ == 1) {
      next_is_map_ = text == "weight_map";
    }
    return true;
  }

  bool string(std::string& value) {
    if (!in_map_) return scalar("a string");
    if (!is_shard_name(value)) {
      std::replace_if(value.begin(), value.end(), is_control, '?');
      return fail("%s: %.80s: '%.80s' is not a plain .safetensors file name", kIndexFile,
                  pairs_.back().first.c_str(), value.c_str());
    }
    pairs_.back().second = std::move(value);
    return true;
  }

  template <class Exception>
  bool parse_error(size_t position, const std::string&, const Exception&) {
    if (status_.ok()) fail("%s: malformed JSON at byte %zu", kIndexFile, position);
    return false;
  }

 private:
  template <class... Args>
  bool fail(const char* format, Args... args) {
    status_ = make_error(Code::corrupt_checkpoint, format, args...);
    return false;
  }

  bool scalar(const char* have) {
    if (depth_ == 0) return fail("%s: is %s, need an object", kIndexFile, have);
    if (in_map_) {
      return fail("%s: %.100s: is %s, need a string", kIndexFile, pairs_.back().first.c_str(),
                  have);
    }
    if (std::exchange(next_is_map_, false)) {
      return fail("%s: weight_map: is %s, need an object", kIndexFile, have);
    }
    return true;
  }

  bool open(const char* have, bool is_object) {
    if (depth_ == 0) {
      if (!is_object) return scalar(have);
    } else if (depth_ == 1 && next_is_map_ && is_object) {
      if (std::exchange(had_map_, true)) return fail("%s: weight_map: appears twice", kIndexFile);
      in_map_ = true;
      next_is_map_ = false;
    } else if (!scalar(have)) {
      return false;
    }
    if (++depth_ > kMaxNesting) return fail("%s: nested more than 64 deep", kIndexFile);
    return true;
  }

  bool close() {
    --depth_;
    in_map_ = false;  // nothing opens inside the map
    return true;
  }

  Status status_;
  std::vector<std::pair<std::string, std::string>> pairs_;  // tensor, file
  int depth_ = 0;
  bool next_is_map_ = false;
  bool in_map_ = false;
  bool had_map_ = false;
};

/// *.safetensors of the folder, sorted.
Result<ShardIndex> list_folder(const std::string& folder) {
  ShardIndex result;
  std::error_code error;
  std::filesystem::directory_iterator it(folder, error);
  while (!error && it != std::filesystem::directory_iterator()) {
    std::string name = it->path().filename().string();
    if (is_shard_name(name) && name.rfind("golden", 0) != 0) {
      result.shards.push_back(std::move(name));
    }
    it.increment(error);
  }
  if (error) {
    return make_native_error(Code::io, error.value(), "%.160s: cannot list: %s", folder.c_str(),
                             error.message().c_str());
  }
  if (result.shards.empty()) {
    return make_native_error(Code::io, ENOENT, "%.160s: holds no .safetensors file",
                             folder.c_str());
  }
  std::sort(result.shards.begin(), result.shards.end());
  return result;
}

}  // namespace

Result<ShardIndex> parse_shard_index(std::string_view text) {
  // The parser takes a NUL byte for the end of its input.
  if (text.find('\0') != text.npos) {
    return make_error(Code::corrupt_checkpoint, "%s: holds a NUL byte", kIndexFile);
  }
  IndexReader reader;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) {
    SNUG_ASSERT(!reader.status().ok());
    return reader.status();
  }
  std::vector<std::pair<std::string, std::string>> pairs = reader.take();
  if (pairs.empty()) {
    return make_error(Code::corrupt_checkpoint, "%s: weight_map: is %s", kIndexFile,
                      reader.had_map() ? "empty" : "missing");
  }
  std::sort(pairs.begin(), pairs.end());
  ShardIndex result;
  result.has_index = true;
  for (const auto& pair : pairs) result.shards.push_back(pair.second);
  std::sort(result.shards.begin(), result.shards.end());
  result.shards.erase(std::unique(result.shards.begin(), result.shards.end()), result.shards.end());
  result.entries.reserve(pairs.size());
  for (auto& [tensor, file] : pairs) {
    if (!result.entries.empty() && result.entries.back().tensor == tensor) {
      return make_error(Code::corrupt_checkpoint, "%s: %.120s: is listed twice", kIndexFile,
                        tensor.c_str());
    }
    const auto shard = std::lower_bound(result.shards.begin(), result.shards.end(), file);
    result.entries.push_back(
        {std::move(tensor), static_cast<int32_t>(shard - result.shards.begin())});
  }
  return result;
}

Result<ShardIndex> read_shard_index(const std::string& folder) {
  const Result<MappedFile> file = MappedFile::open(folder + "/" + kIndexFile);
  if (file.has_value()) {
    if (file->nbytes() > kMaxIndexNbytes) {
      return make_error(Code::corrupt_checkpoint, "%s: has %llu bytes, at most %llu are read",
                        kIndexFile, static_cast<unsigned long long>(file->nbytes()),
                        static_cast<unsigned long long>(kMaxIndexNbytes));
    }
    return parse_shard_index(file->text());
  }
  const bool missing = file.error().code == Code::io && file.error().native_code == ENOENT;
  if (!missing) return file.error();
  return list_folder(folder);
}

}  // namespace snug
