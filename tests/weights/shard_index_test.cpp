// SPDX-License-Identifier: Apache-2.0
#include "weights/shard_index.h"

#include <gtest/gtest.h>

#include <string>

#include "support/safetensors_writer.h"

namespace snug {
namespace {

std::string error_of(const std::string& text) {
  const auto result = parse_shard_index(text);
  if (result.has_value()) return "";
  EXPECT_EQ(result.error().code, Code::corrupt_checkpoint);
  return result.error().message;
}

TEST(ShardIndex, ReadsTheWeightMap) {
  const auto index = parse_shard_index(R"({"metadata": {"total_size": 8, "x": [[1], {"y": null}]},
      "weight_map": {"b": "m-2.safetensors", "a": "m-1.safetensors", "c": "m-2.safetensors"},
      "more": {"weight_map": 3}})");
  ASSERT_TRUE(index.has_value()) << index.error().message;
  EXPECT_TRUE(index->has_index);
  EXPECT_EQ(index->shards, (std::vector<std::string>{"m-1.safetensors", "m-2.safetensors"}));
  ASSERT_EQ(index->entries.size(), 3u);
  EXPECT_EQ(index->entries[1].tensor, "b");
  EXPECT_EQ(index->entries[1].shard, 1);
}

TEST(ShardIndex, RefusesTheCorpusByName) {
  const std::pair<std::string, const char*> kCorpus[] = {
      {"", "malformed"},
      {"{", "malformed"},
      {"[]", "is an array"},
      {"3", "is a number"},
      {"{}", "weight_map: is missing"},
      {R"({"weight_map": {}})", "weight_map: is empty"},
      {R"({"weight_map": []})", "weight_map: is an array"},
      {R"({"weight_map": null})", "weight_map: is null"},
      {R"({"weight_map": "x"})", "weight_map: is a string"},
      {R"({"weight_map": {"a": 1}})", "a: is a number"},
      {R"({"weight_map": {"a": {}}})", "a: is an object"},
      {R"({"weight_map": {"a": ["x.safetensors"]}})", "a: is an array"},
      {R"({"weight_map": {"a": "../x.safetensors"}})", "a: '../x.safetensors'"},
      {R"({"weight_map": {"a": "/etc/x.safetensors"}})", "a: '/etc/x.safetensors'"},
      {R"({"weight_map": {"a": "s\\x.safetensors"}})", "not a plain"},
      {R"({"weight_map": {"a": ""}})", "not a plain"},
      {R"({"weight_map": {"a": ".."}})", "not a plain"},
      {R"({"weight_map": {"a": ".safetensors"}})", "not a plain"},
      {R"({"weight_map": {"a": "x.bin"}})", "a: 'x.bin'"},
      {R"({"weight_map": {"a": "x\u0000.safetensors"}})", "not a plain"},
      {R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})", "a: is listed twice"},
      {R"({"weight_map": {"a": "x.safetensors"}, "weight_map": {}})", "appears twice"},
      {"{\"x\": " + std::string(100000, '['), "nested"},
      {std::string("{}\0", 3), "NUL"},
  };
  for (const auto& [text, named] : kCorpus) {
    EXPECT_NE(error_of(text).find(named), std::string::npos)
        << text.substr(0, 100) << "\n gives: " << error_of(text) << "\n lacks: " << named;
  }
}

TEST(ShardIndex, TruncatedAtEveryByte) {
  const std::string text = R"({"metadata": {}, "weight_map": {"a": "x.safetensors"}})";
  for (size_t n = 0; n < text.size(); ++n) EXPECT_NE(error_of(text.substr(0, n)), "");
  EXPECT_EQ(error_of(text), "");
}

TEST(ShardIndex, ListsAFolderWithoutIndex) {
  test::TempDir dir;
  EXPECT_EQ(read_shard_index(dir.path()).error().code, Code::io);
  for (const char* name : {"b.safetensors", "a.safetensors", "golden-1.safetensors", "c.bin"}) {
    dir.write(name, "x");
  }
  const auto index = read_shard_index(dir.path());
  ASSERT_TRUE(index.has_value()) << index.error().message;
  EXPECT_FALSE(index->has_index);
  EXPECT_EQ(index->shards, (std::vector<std::string>{"a.safetensors", "b.safetensors"}));
  dir.write("model.safetensors.index.json", R"({"weight_map": {"t": "b.safetensors"}})");
  EXPECT_EQ(read_shard_index(dir.path())->shards, (std::vector<std::string>{"b.safetensors"}));
  EXPECT_EQ(read_shard_index(dir.path() + "/absent").error().code, Code::io);
}

}  // namespace
}  // namespace snug
