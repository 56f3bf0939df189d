// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "support/expert_tensors.h"
#include "support/safetensors_writer.h"

namespace snug {
namespace {

using test::LayerSpec;
using test::make_layer;
using test::safetensors_bytes;
using test::scheme_id;
using test::StoredTensor;
using test::TempDir;

constexpr const char* kIndex = "model.safetensors.index.json";

std::string error_of(const std::string& path) {
  const auto result = Checkpoint::open(path.c_str());
  return result.has_value() ? "" : result.error().message;
}

#define EXPECT_HAS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "have: " << (text)

/// Bytes of one row of codes of expert `e`, as the writer stored them.
std::string stored_row(const StoredTensor& t, int64_t row, int64_t row_nbytes) {
  return t.bytes.substr(static_cast<size_t>(row * row_nbytes), static_cast<size_t>(row_nbytes));
}
std::string source_row(const MatrixSource& m, int64_t row) {
  const uint8_t* p = m.codes + (m.rows.first_row + row * m.rows.row_step) * m.code_row_nbytes;
  return std::string(p, p + m.code_row_nbytes);
}

TEST(Checkpoint, EverySchemeThroughAFile) {
  for (int32_t scheme = 0; scheme < kNumSchemes; ++scheme) {
    const LayerSpec spec{.scheme = scheme,
                         .layer = 1,
                         .num_experts = 3,
                         .hidden = 64,
                         .intermediate = 32,
                         .biased = scheme == scheme_id("gpt_oss_mxfp4")};
    TempDir dir;
    const std::string path = dir.write("m.safetensors", safetensors_bytes(make_layer(spec)));
    Result<Checkpoint> opened = Checkpoint::open(path.c_str());
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    const Checkpoint checkpoint = std::move(opened).value();
    EXPECT_FALSE(checkpoint.config().has_config);
    ASSERT_EQ(checkpoint.layers().size(), 1u);
    const MoeLayer& layer = checkpoint.layers()[0];
    EXPECT_EQ(checkpoint.find_layer(1, kSchemes[scheme].format), &layer);
    EXPECT_EQ(checkpoint.find_layer(0, kSchemes[scheme].format), nullptr);
    const bool fused = kSchemes[scheme].fused;
    for (int32_t e = 0; e < 3; ++e) {
      const auto source = checkpoint.expert(layer, e);
      ASSERT_TRUE(source.has_value()) << source.error().message;
      for (int p = 0; p < 3; ++p) {
        const MatrixSource& m = p == 0 ? source->gate : p == 1 ? source->up : source->down;
        const StoredTensor t =
            test::make_tensor(spec, e, fused && p == 1 ? 0 : p, Component::codes);
        const int64_t rows = p == 2 ? 64 : 32;
        for (int64_t r = 0; r < rows; ++r) {
          int64_t stored = fused && p < 2 ? 2 * r + p : r;
          if (fused) stored += e * (p < 2 ? 2 * rows : rows);
          ASSERT_EQ(source_row(m, r), stored_row(t, stored, m.code_row_nbytes))
              << kSchemes[scheme].name << " expert " << e << " projection " << p << " row " << r;
        }
      }
    }
    EXPECT_EQ(checkpoint.expert(layer, 3).error().code, Code::invalid_argument);
    MoeLayer other = layer;
    other.layer = 9;
    EXPECT_EQ(checkpoint.expert(other, 0).error().code, Code::invalid_argument);
    EXPECT_EQ(checkpoint.source_nbytes(other), 0u);
    EXPECT_GT(checkpoint.source_nbytes(layer), 0u);
  }
}

TEST(Checkpoint, FolderOfTwoFormats) {
  TempDir dir;
  dir.write("experts-nvfp4.safetensors",
            safetensors_bytes(make_layer({.scheme = scheme_id("modelopt_nvfp4")})));
  dir.write("experts-mxfp4.safetensors",
            safetensors_bytes(make_layer({.scheme = scheme_id("gpt_oss_mxfp4")})));
  dir.write("golden.safetensors", "not read");
  const auto checkpoint = Checkpoint::open(dir.path().c_str());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->shards().size(), 2u);
  ASSERT_EQ(checkpoint->layers().size(), 2u);
  EXPECT_NE(checkpoint->find_layer(0, Format::nvfp4), nullptr);
  EXPECT_NE(checkpoint->find_layer(0, Format::mxfp4), nullptr);
  EXPECT_NE(checkpoint->find("model.layers.0.mlp.experts.down_proj_blocks"), nullptr);
  EXPECT_EQ(checkpoint->find("model.layers.0.mlp.experts.down_proj"), nullptr);
}

TEST(Checkpoint, ConfigIsCheckedAgainstTensors) {
  TempDir dir;
  const std::string file = dir.write(
      "model.safetensors", safetensors_bytes(make_layer({.scheme = scheme_id("modelopt_nvfp4")})));
  const auto config = [&](const std::string& experts, const std::string& hidden) {
    dir.write("config.json", R"({"model_type": "qwen3_moe", "num_experts": )" + experts +
                                 R"(, "num_experts_per_tok": 2, "hidden_size": )" + hidden + "}");
  };
  config("2", "64");
  EXPECT_EQ(error_of(dir.path()), "");
  EXPECT_TRUE(Checkpoint::open(file.c_str())->config().has_config);
  config("3", "64");
  EXPECT_HAS(error_of(dir.path()), "layers.0 expert 2 gate: weight is missing");
  config("2", "32");
  EXPECT_HAS(error_of(dir.path()), "(hidden 32, intermediate 32 by config.json)");
  config("2", "{}");
  EXPECT_HAS(error_of(dir.path()), "config.json: hidden_size");
}

// A folder is the whole model; one file alone may be its golden values.
TEST(Checkpoint, AFolderHasTheExpertsThatItsConfigPromises) {
  TempDir dir;
  const std::string file = dir.write(
      "model.safetensors", safetensors_bytes({{"layers.0.x", "F32", {1}, std::string(4, '\0')}}));
  EXPECT_EQ(error_of(dir.path()), "");
  dir.write("config.json", R"({"num_experts": 8, "num_experts_per_tok": 2, "hidden_size": 64})");
  EXPECT_HAS(error_of(dir.path()), "config.json says 8");
  const Result<Checkpoint> alone = Checkpoint::open(file.c_str());
  ASSERT_TRUE(alone.has_value()) << alone.error().message;
  EXPECT_TRUE(alone->layers().empty());
  EXPECT_NE(alone->find("layers.0.x"), nullptr);
}

TEST(Checkpoint, ShardsByIndex) {
  const std::vector<StoredTensor> all =
      make_layer({.scheme = scheme_id("compressed_tensors_nvfp4")});
  const size_t half = all.size() / 2;
  const std::vector<StoredTensor> first(all.begin(), all.begin() + half);
  const std::vector<StoredTensor> second(all.begin() + half, all.end());
  TempDir dir;
  dir.write("m-1.safetensors", safetensors_bytes(first));
  dir.write("m-2.safetensors", safetensors_bytes(second));
  dir.write("not-in-index.safetensors", "never opened");
  const auto index = [&](size_t skip, size_t misplaced, const std::string& extra = "") {
    std::string text;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i == skip) continue;
      const bool in_first = (i < half) != (i == misplaced);
      text += (text.empty() ? "\"" : ", \"") + all[i].name + "\": \"m-" + (in_first ? "1" : "2") +
              ".safetensors\"";
    }
    dir.write(kIndex,
              "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {" + text + extra + "}}");
  };
  const size_t none = all.size();
  index(none, none);
  EXPECT_EQ(error_of(dir.path()), "");
  EXPECT_EQ(Checkpoint::open(dir.path().c_str())->shards().size(), 2u);
  index(1, none);
  EXPECT_HAS(error_of(dir.path()), all[1].name + ": is in m-1.safetensors but not in the index");
  index(none - 1, none);
  EXPECT_HAS(error_of(dir.path()), "but not in the index");
  index(none, 1);
  EXPECT_HAS(error_of(dir.path()),
             all[1].name + ": is in m-1.safetensors, the index says m-2.safetensors");
  index(none, none, R"(, "aaa": "m-1.safetensors")");
  EXPECT_HAS(error_of(dir.path()), "aaa: is in no shard, the index promises it in m-1.safetensors");
  index(none, none, R"(, "zzz": "m-3.safetensors")");
  EXPECT_HAS(error_of(dir.path()), "m-3.safetensors: cannot open");
  EXPECT_EQ(Checkpoint::open(dir.path().c_str()).error().native_code, ENOENT);
  index(none, none, R"(, "zzz": "../m-3.safetensors")");
  EXPECT_HAS(error_of(dir.path()), "zzz: '../m-3.safetensors' is not a plain");
}

TEST(Checkpoint, ATensorInTwoShards) {
  const std::vector<StoredTensor> all = make_layer({.scheme = scheme_id("modelopt_nvfp4")});
  TempDir dir;
  dir.write("a.safetensors", safetensors_bytes(all));
  dir.write("b.safetensors", safetensors_bytes({all[3]}));
  EXPECT_HAS(error_of(dir.path()), all[3].name + ": is both in ");
  EXPECT_HAS(error_of(dir.path()), "b.safetensors");
}

TEST(Checkpoint, PathsThatLeadNowhere) {
  TempDir dir;
  EXPECT_EQ(Checkpoint::open(nullptr).error().code, Code::invalid_argument);
  EXPECT_EQ(Checkpoint::open("").error().code, Code::invalid_argument);
  EXPECT_EQ(Checkpoint::open(dir.path().c_str()).error().code, Code::io);
  const Status missing = Checkpoint::open((dir.path() + "/absent").c_str()).error();
  EXPECT_EQ(missing.code, Code::io);
  EXPECT_EQ(missing.native_code, ENOENT);
  EXPECT_HAS(error_of(dir.write("junk.safetensors", "junkjunkjunk")), "junk.safetensors: header");
}

TEST(Checkpoint, ADenseModelHasNoLayers) {
  TempDir dir;
  dir.write("model.safetensors", safetensors_bytes({{"model.norm.weight", "BF16", {1}, "xx"}}));
  const auto checkpoint = Checkpoint::open(dir.path().c_str());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_TRUE(checkpoint->layers().empty());
}

}  // namespace
}  // namespace snug
