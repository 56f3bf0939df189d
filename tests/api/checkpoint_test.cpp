// SPDX-License-Identifier: Apache-2.0
// api/checkpoint.cpp through snug.h; files of every kind are tested in weights/.
#include <gtest/gtest.h>
#include <snug/snug.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "support/tiny_checkpoint.h"

namespace snug {
namespace {

using test::CheckpointHandle;
using test::LayerSpec;
using test::scheme_id;
using test::StoredTensor;
using test::TempDir;

/// A descriptor full of 0x5A but for its size.
template <class T>
T poisoned() {
  T value;
  std::memset(&value, 0x5A, sizeof value);
  value.struct_size = sizeof value;
  return value;
}

std::vector<StoredTensor> two_layers() {
  LayerSpec first = {.scheme = scheme_id("modelopt_nvfp4"), .layer = 3, .num_experts = 2};
  LayerSpec second = {.scheme = scheme_id("gpt_oss_mxfp4"),
                      .layer = 1,
                      .num_experts = 3,
                      .hidden = 96,
                      .intermediate = 64,
                      .biased = true};
  std::vector<StoredTensor> tensors = test::make_weights(first);
  for (StoredTensor& t : test::make_weights(second)) tensors.push_back(std::move(t));
  tensors.push_back({"norm", "F32", {2, 1, 1}, test::f32_bytes(1.5f) + test::f32_bytes(-2)});
  tensors.push_back({"strange", "I16", {1}, std::string(2, '\0')});
  return tensors;
}

TEST(Checkpoint, LayersAreSortedAndDescribed) {
  const TempDir dir;
  const CheckpointHandle checkpoint = test::open_tensors(dir, two_layers());
  ASSERT_NE(checkpoint, nullptr);
  ASSERT_EQ(snug_checkpoint_num_layers(checkpoint.get()), 2);
  snug_error error, before;
  std::memset(&error, 0x5A, sizeof error);
  before = error;

  auto info = poisoned<snug_layer_info>();
  ASSERT_EQ(snug_checkpoint_layer(checkpoint.get(), 0, &info, &error), SNUG_OK);
  EXPECT_EQ(info.struct_size, sizeof info);
  EXPECT_EQ(info.layer, 1);
  EXPECT_EQ(info.format, SNUG_MXFP4);
  EXPECT_EQ(info.num_experts, 3);
  EXPECT_EQ(info.hidden, 96);
  EXPECT_EQ(info.intermediate, 64);
  EXPECT_EQ(info.gated, 1);
  EXPECT_EQ(info.has_bias, 1);
  EXPECT_STREQ(info.scheme, "gpt_oss_mxfp4");
  // 3 experts of 192 rows of 96 and 64-column rows: codes, scales and bf16 biases.
  const uint64_t elements = 128 * 96 + 96 * 64;
  EXPECT_EQ(info.source_nbytes, 3 * (elements / 2 + elements / 32 + (128 + 96) * 2));

  info = poisoned<snug_layer_info>();
  ASSERT_EQ(snug_checkpoint_layer(checkpoint.get(), 1, &info, &error), SNUG_OK);
  EXPECT_EQ(info.layer, 3);
  EXPECT_EQ(info.format, SNUG_NVFP4);
  EXPECT_EQ(info.has_bias, 0);
  EXPECT_STREQ(info.scheme, "modelopt_nvfp4");
  EXPECT_EQ(std::memcmp(&error, &before, sizeof error), 0) << "untouched on success";
}

TEST(Checkpoint, LayerArgumentsAreChecked) {
  const TempDir dir;
  const CheckpointHandle checkpoint = test::open_tensors(dir, two_layers());
  auto info = poisoned<snug_layer_info>();
  const auto layer = [&](int32_t index, snug_error* error) {
    return snug_checkpoint_layer(checkpoint.get(), index, &info, error);
  };
  EXPECT_REFUSED(layer(2, error), SNUG_INVALID_ARGUMENT, "layer index: have 2, the checkpoint has");
  EXPECT_REFUSED(layer(-1, error), SNUG_INVALID_ARGUMENT, "layer index: have -1");
  EXPECT_REFUSED(snug_checkpoint_layer(nullptr, 0, &info, error), SNUG_INVALID_ARGUMENT,
                 "checkpoint: is null");
  EXPECT_REFUSED(snug_checkpoint_layer(checkpoint.get(), 0, nullptr, error), SNUG_INVALID_ARGUMENT,
                 "info: is null");
  info.struct_size = 12;
  EXPECT_REFUSED(layer(0, error), SNUG_INVALID_ARGUMENT, "info.struct_size: have 12");
  EXPECT_EQ(info.layer, 0x5A5A5A5A) << "a refused call wrote";
  EXPECT_EQ(snug_checkpoint_num_layers(nullptr), 0);
}

TEST(Checkpoint, ModelWithoutAConfig) {
  const TempDir dir;
  const CheckpointHandle checkpoint = test::open_tensors(dir, two_layers());
  auto info = poisoned<snug_model_info>();
  ASSERT_EQ(snug_checkpoint_model(checkpoint.get(), &info, nullptr), SNUG_OK);
  EXPECT_EQ(info.has_config, 0);
  EXPECT_EQ(info.hidden, 0);
  EXPECT_EQ(info.num_shards, 1);
  EXPECT_EQ(info.num_tensors, static_cast<int32_t>(two_layers().size()));
  EXPECT_STREQ(info.model_type, "");
  EXPECT_STREQ(info.quantization, "");
  EXPECT_REFUSED(snug_checkpoint_model(nullptr, &info, error), SNUG_INVALID_ARGUMENT,
                 "checkpoint: is null");
  EXPECT_REFUSED(snug_checkpoint_model(checkpoint.get(), nullptr, error), SNUG_INVALID_ARGUMENT,
                 "info: is null");
  info.struct_size = 0;
  EXPECT_REFUSED(snug_checkpoint_model(checkpoint.get(), &info, error), SNUG_INVALID_ARGUMENT,
                 "info.struct_size: have 0");
}

TEST(Checkpoint, ModelOfAConfig) {
  const TempDir dir;
  dir.write("config.json",
            R"({"model_type": "a_model_type_of_more_than_forty_characters_x", "hidden_size": 64,
                "moe_intermediate_size": 32, "num_experts": 2, "num_experts_per_tok": 2,
                "num_hidden_layers": 5, "norm_topk_prob": false,
                "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})");
  const LayerSpec spec = {.scheme = scheme_id("modelopt_nvfp4"), .layer = 3};
  const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(spec));
  ASSERT_NE(checkpoint, nullptr);
  auto info = poisoned<snug_model_info>();
  ASSERT_EQ(snug_checkpoint_model(checkpoint.get(), &info, nullptr), SNUG_OK);
  EXPECT_EQ(info.has_config, 1);
  EXPECT_EQ(info.hidden, 64);
  EXPECT_EQ(info.intermediate, 32);
  EXPECT_EQ(info.num_experts, 2);
  EXPECT_EQ(info.top_k, 2);
  EXPECT_EQ(info.num_layers, 5);
  EXPECT_EQ(info.activation.kind, SNUG_SILU);
  EXPECT_EQ(info.routing.struct_size, sizeof info.routing) << "usable by snug_route as it is";
  EXPECT_EQ(info.routing.renormalize, 0);
  EXPECT_STREQ(info.model_type, "a_model_type_of_more_than_forty_charact") << "cut, terminated";
  EXPECT_STREQ(info.quantization, "modelopt NVFP4");
}

TEST(Checkpoint, TensorsByName) {
  const TempDir dir;
  const CheckpointHandle checkpoint = test::open_tensors(dir, two_layers());
  auto tensor = poisoned<snug_tensor>();
  ASSERT_EQ(snug_checkpoint_tensor(checkpoint.get(), "norm", &tensor, nullptr), SNUG_OK);
  EXPECT_EQ(tensor.struct_size, sizeof tensor);
  EXPECT_EQ(tensor.dtype, SNUG_F32);
  ASSERT_EQ(tensor.rank, 3);
  EXPECT_EQ(tensor.shape[0], 2);
  EXPECT_EQ(tensor.shape[1], 1);
  EXPECT_EQ(tensor.nbytes, 8u);
  float values[2];
  std::memcpy(values, tensor.data, 8);
  EXPECT_EQ(values[0], 1.5f);
  EXPECT_EQ(values[1], -2.0f);

  const auto find = [&](const char* name, snug_tensor* to, snug_error* error) {
    return snug_checkpoint_tensor(checkpoint.get(), name, to, error);
  };
  EXPECT_REFUSED(find("norms", &tensor, error), SNUG_INVALID_ARGUMENT, "name: no tensor \"norms\"");
  EXPECT_REFUSED(find("", &tensor, error), SNUG_INVALID_ARGUMENT, "name: no tensor");
  EXPECT_REFUSED(find("strange", &tensor, error), SNUG_UNSUPPORTED, "strange: dtype I16");
  EXPECT_REFUSED(find(nullptr, &tensor, error), SNUG_INVALID_ARGUMENT, "name: is null");
  EXPECT_REFUSED(find("norm", nullptr, error), SNUG_INVALID_ARGUMENT, "tensor: is null");
  tensor.struct_size += 8;
  EXPECT_REFUSED(find("norm", &tensor, error), SNUG_INVALID_ARGUMENT, "tensor.struct_size");
  EXPECT_REFUSED(snug_checkpoint_tensor(nullptr, "norm", &tensor, error), SNUG_INVALID_ARGUMENT,
                 "checkpoint: is null");
}

TEST(Checkpoint, FilesThatCannotBeOpened) {
  const TempDir dir;
  auto* checkpoint = reinterpret_cast<snug_checkpoint*>(&errno);
  const auto open = [&](const std::string& path, snug_error* error) {
    checkpoint = reinterpret_cast<snug_checkpoint*>(&errno);
    return snug_checkpoint_open(path.c_str(), &checkpoint, error);
  };
  snug_error missing = {};
  EXPECT_EQ(open(dir.path() + "/none.safetensors", &missing), SNUG_IO_ERROR);
  EXPECT_EQ(missing.code, SNUG_IO_ERROR);
  EXPECT_EQ(missing.native_code, ENOENT);
  EXPECT_NE(std::string(missing.message).find("none.safetensors"), std::string::npos);
  EXPECT_EQ(checkpoint, nullptr) << "a failed open leaves no handle";

  const std::string broken = dir.write("broken.safetensors", "not a header");
  EXPECT_EQ(open(broken, nullptr), SNUG_CORRUPT_CHECKPOINT);
  EXPECT_EQ(checkpoint, nullptr);
  // A layer with a hole is not opened at all.
  const LayerSpec spec = {.scheme = scheme_id("modelopt_nvfp4")};
  std::vector<StoredTensor> tensors = test::make_weights(spec);
  tensors.erase(tensors.begin() + 1);
  const std::string hole = dir.write("hole.safetensors", test::safetensors_bytes(tensors));
  snug_error error = {};
  EXPECT_EQ(open(hole, &error), SNUG_CORRUPT_CHECKPOINT);
  EXPECT_NE(std::string(error.message).find("expert 0 gate: weight_scale is missing"),
            std::string::npos)
      << error.message;
  EXPECT_REFUSED(snug_checkpoint_open(nullptr, &checkpoint, error), SNUG_INVALID_ARGUMENT,
                 "path: is null");
  EXPECT_REFUSED(open("", error), SNUG_INVALID_ARGUMENT, "path: is empty");
  EXPECT_REFUSED(snug_checkpoint_open("x", nullptr, error), SNUG_INVALID_ARGUMENT,
                 "checkpoint: is null");
  snug_checkpoint_close(nullptr);
}

}  // namespace
}  // namespace snug
