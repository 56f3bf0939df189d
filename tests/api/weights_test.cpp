// SPDX-License-Identifier: Apache-2.0
// api/weights.cpp through snug.h: creation, single experts, and loading a rank from a checkpoint.
#include <gtest/gtest.h>
#include <snug/snug.h>

#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "support/tiny_checkpoint.h"

namespace snug {
namespace {

using test::CheckpointHandle;
using test::LayerSpec;
using test::Rank;
using test::scheme_id;
using test::TempDir;

LayerSpec nvfp4_spec() {
  return {.scheme = scheme_id("modelopt_nvfp4"), .num_experts = 4, .intermediate = 64};
}

std::vector<uint8_t> bytes_of(Rank& rank) {
  const auto* data = static_cast<const uint8_t*>(rank.storage().data());
  return {data, data + rank.storage().nbytes()};
}

// ------------------------------------------------------------- creation

TEST(Weights, StorageIsCheckedByName) {
  Rank rank(test::caps_of(nvfp4_spec()), "cpu");
  auto* data = static_cast<uint8_t*>(rank.storage().data());
  const uint64_t need = rank.storage().nbytes();
  auto* weights = reinterpret_cast<snug_weights*>(&rank);
  const auto create = [&](void* storage, uint64_t nbytes, snug_error* error) {
    weights = reinterpret_cast<snug_weights*>(&rank);
    return snug_weights_create(rank.plan, storage, nbytes, &weights, error);
  };
  const std::string shorter = "storage_nbytes: have " + std::to_string(need - 1) +
                              ", the weights need " + std::to_string(need);
  EXPECT_REFUSED(create(data, need - 1, error), SNUG_ARENA_TOO_SMALL, shorter.c_str());
  EXPECT_EQ(weights, nullptr) << "a failed create leaves no handle";
  EXPECT_REFUSED(create(nullptr, need, error), SNUG_INVALID_ARGUMENT, "storage: is null");
  EXPECT_REFUSED(create(data + 32, need, error), SNUG_MISALIGNED, "storage: have address");
  EXPECT_REFUSED(snug_weights_create(nullptr, data, need, &weights, error), SNUG_INVALID_ARGUMENT,
                 "plan: is null");
  EXPECT_REFUSED(snug_weights_create(rank.plan, data, need, nullptr, error), SNUG_INVALID_ARGUMENT,
                 "weights: is null");
  ASSERT_EQ(create(data, need, nullptr), SNUG_OK);
  snug_weights_destroy(weights);
  snug_weights_destroy(nullptr);
}

TEST(Weights, NullHandlesAreNamed) {
  const TempDir dir;
  const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(nvfp4_spec()));
  Rank rank(test::caps_of(nvfp4_spec()), "cpu");
  snug_expert_source source;
  snug_expert_source_init(&source);
  const auto bad = SNUG_INVALID_ARGUMENT;
  EXPECT_REFUSED(snug_weights_put(nullptr, 0, &source, error), bad, "weights: is null");
  EXPECT_REFUSED(snug_weights_put(rank.weights, 0, nullptr, error), bad, "source: is null");
  EXPECT_REFUSED(snug_weights_update(nullptr, 0, &source, error), bad, "weights: is null");
  EXPECT_REFUSED(snug_weights_update(rank.weights, 0, nullptr, error), bad, "source: is null");
  EXPECT_REFUSED(snug_weights_check(nullptr, error), bad, "weights: is null");
  EXPECT_REFUSED(
      snug_weights_load(nullptr, checkpoint.get(), 0, nullptr, 1, nullptr, nullptr, error), bad,
      "weights: is null");
  EXPECT_REFUSED(snug_weights_load(rank.weights, nullptr, 0, nullptr, 1, nullptr, nullptr, error),
                 bad, "checkpoint: is null");
  snug_expert_source_init(nullptr);
}

// ------------------------------------------------------------- single experts

/// A whole expert of the spec's first layer, by the tensors of a checkpoint.
snug_expert_source source_of(const CheckpointHandle& checkpoint, const LayerSpec& spec,
                             int32_t expert) {
  snug_expert_source source;
  snug_expert_source_init(&source);
  snug_matrix* matrices[] = {&source.gate, &source.up, &source.down};
  for (int p = 0; p < 3; ++p) {
    const auto tensor = [&](const char* part) {
      snug_tensor t = {};
      t.struct_size = sizeof t;
      const std::string name = test::tensor_name(spec, expert, p, part);
      EXPECT_EQ(snug_checkpoint_tensor(checkpoint.get(), name.c_str(), &t, nullptr), SNUG_OK);
      return t;
    };
    const snug_tensor codes = tensor("weight"), scales = tensor("weight_scale");
    matrices[p]->codes = static_cast<const uint8_t*>(codes.data);
    matrices[p]->code_row_nbytes = codes.shape[1];
    matrices[p]->scales = static_cast<const uint8_t*>(scales.data);
    matrices[p]->scale_row_nbytes = scales.shape[1];
    matrices[p]->global_scale_use = SNUG_GLOBAL_MULTIPLY;
    std::memcpy(&matrices[p]->global_scale, tensor("weight_scale_2").data, 4);
  }
  return source;
}

TEST(Weights, SourceInitFillsEveryByte) {
  snug_expert_source source;
  std::memset(&source, 0x5A, sizeof source);
  snug_expert_source_init(&source);
  EXPECT_EQ(source.struct_size, sizeof source);
  EXPECT_EQ(source.reserved, 0u);
  for (const snug_matrix* m : {&source.gate, &source.up, &source.down}) {
    EXPECT_EQ(m->row_step, 1);
    EXPECT_EQ(m->global_scale, 1.0f);
    EXPECT_EQ(m->e8m0_bias, 127);
    EXPECT_EQ(m->codes, nullptr);
    EXPECT_EQ(m->bias, nullptr);
    EXPECT_EQ(m->first_k, 0);
  }
}

TEST(Weights, PutOneByOneEqualsLoad) {
  const TempDir dir;
  const LayerSpec spec = nvfp4_spec();
  const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(spec));
  Rank loaded(test::caps_of(spec), "cpu"), put(test::caps_of(spec), "cpu");
  loaded.load(checkpoint);
  snug_error error, before;
  std::memset(&error, 0x5A, sizeof error);
  before = error;
  for (const int32_t e : {3, 1, 0}) {
    const snug_expert_source source = source_of(checkpoint, spec, e);
    ASSERT_EQ(snug_weights_put(put.weights, e, &source, &error), SNUG_OK) << error.message;
  }
  EXPECT_REFUSED(snug_weights_check(put.weights, error), SNUG_INVALID_ARGUMENT,
                 "weights: expert 2 of 4 has not been prepared");
  snug_expert_source source = source_of(checkpoint, spec, 2);
  ASSERT_EQ(snug_weights_put(put.weights, 2, &source, &error), SNUG_OK);
  EXPECT_EQ(snug_weights_check(put.weights, &error), SNUG_OK);
  EXPECT_EQ(bytes_of(put), bytes_of(loaded));
  EXPECT_REFUSED(snug_weights_put(put.weights, 2, &source, error), SNUG_INVALID_ARGUMENT,
                 "expert 2: has already arrived");
  EXPECT_REFUSED(snug_weights_put(put.weights, 4, &source, error), SNUG_INVALID_ARGUMENT,
                 "expert: have 4, need 0..3");
  EXPECT_EQ(bytes_of(put), bytes_of(loaded)) << "a refused put wrote";
  // An update changes the expert's record and nothing else, and can be undone.
  const std::vector<uint8_t> whole = bytes_of(put);
  source.down.global_scale *= 2;
  ASSERT_EQ(snug_weights_update(put.weights, 2, &source, &error), SNUG_OK);
  const std::vector<uint8_t> changed = bytes_of(put);
  const size_t record = whole.size() / 4;
  int64_t differing = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] == changed[i]) continue;
    ++differing;
    EXPECT_EQ(i / record, 2u);
  }
  EXPECT_GE(differing, 1);
  EXPECT_LE(differing, 4) << "one f32";
  source.down.global_scale /= 2;
  ASSERT_EQ(snug_weights_update(put.weights, 2, &source, &error), SNUG_OK);
  EXPECT_EQ(bytes_of(put), whole);
  EXPECT_EQ(std::memcmp(&error, &before, sizeof error), 0) << "untouched on success";
  Rank fresh(test::caps_of(spec), "cpu");
  EXPECT_REFUSED(snug_weights_update(fresh.weights, 2, &source, error), SNUG_INVALID_ARGUMENT,
                 "expert: have 2, only a prepared expert is updated");
}

TEST(Weights, SourcesAreCheckedByName) {
  const TempDir dir;
  const LayerSpec spec = nvfp4_spec();
  const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(spec));
  Rank rank(test::caps_of(spec), "cpu");
  const auto refused = [&](auto change, snug_status code, const char* begins) {
    snug_expert_source source = source_of(checkpoint, spec, 1);
    change(source);
    EXPECT_REFUSED(snug_weights_put(rank.weights, 1, &source, error), code, begins);
  };
  const auto bad = SNUG_INVALID_ARGUMENT;
  refused([](snug_expert_source& s) { s.struct_size = 16; }, bad, "source.struct_size: have 16");
  refused([](snug_expert_source& s) { s.gate.nibble_order = 2; }, bad,
          "gate.nibble_order: have 2, need 0..1");
  refused([](snug_expert_source& s) { s.up.nibble_order = -1; }, bad, "up.nibble_order: have -1");
  refused([](snug_expert_source& s) { s.up.scale_order = 2; }, bad, "up.scale_order: have 2");
  refused([](snug_expert_source& s) { s.down.global_scale_use = 3; }, bad,
          "down.global_scale_use: have 3, need 0..2");
  refused([](snug_expert_source& s) { s.down.codes = nullptr; }, bad, "expert 1 down: codes are");
  refused([](snug_expert_source& s) { s.up.scales = nullptr; }, bad, "expert 1 up: scales are");
  refused([](snug_expert_source& s) { s.gate.row_step = 0; }, bad, "expert 1 gate: row map");
  refused([](snug_expert_source& s) { s.gate.first_row = -1; }, bad, "expert 1 gate: row map");
  refused([](snug_expert_source& s) { s.gate.first_k = 16; }, bad, "expert 1 gate: code_row_nbyte");
  refused([](snug_expert_source& s) { s.gate.bias = s.gate.codes; }, bad,
          "expert 1 gate: has a bias, the layer has none");
  refused([](snug_expert_source& s) { s.up.global_scale = -1; }, SNUG_CORRUPT_CHECKPOINT,
          "expert 1 up: global scale is -1");
  refused([](snug_expert_source& s) { s.up = snug_matrix{}; }, bad, "expert 1 up: codes are missi");
  snug_expert_source source = source_of(checkpoint, spec, 1);
  EXPECT_EQ(snug_weights_put(rank.weights, 1, &source, nullptr), SNUG_OK) << "may come again";
}

TEST(Weights, ADifferentBiasDtypeIsRefused) {
  LayerSpec spec = nvfp4_spec();
  spec.biased = true;
  const TempDir dir;
  const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(spec));
  Rank rank(test::caps_of(spec), "cpu");
  snug_expert_source source = source_of(checkpoint, spec, 0);
  const std::vector<float> bias(64, 0.5f);
  for (snug_matrix* m : {&source.gate, &source.up, &source.down}) {
    m->bias = bias.data();
    m->bias_dtype = SNUG_F32;
  }
  for (const int32_t dtype : {int32_t{SNUG_F16}, int32_t{SNUG_U8}, 77}) {
    source.down.bias_dtype = dtype;
    EXPECT_REFUSED(snug_weights_put(rank.weights, 0, &source, error), SNUG_INVALID_ARGUMENT,
                   "expert 0 down: bias dtype must be bf16 or f32");
  }
  source.down.bias_dtype = SNUG_F32;
  EXPECT_EQ(snug_weights_put(rank.weights, 0, &source, nullptr), SNUG_OK);
}

// ------------------------------------------------------------- loading

snug_shard whole_shard() {
  snug_shard shard = {};
  shard.struct_size = sizeof shard;
  shard.tp_size = 1;
  return shard;
}

snug_status load(Rank& rank, const CheckpointHandle& checkpoint, const snug_shard* shard,
                 snug_error* error, int32_t layer_index = 0, int32_t num_threads = 1) {
  return snug_weights_load(rank.weights, checkpoint.get(), layer_index, shard, num_threads, nullptr,
                           nullptr, error);
}

TEST(WeightsLoad, AnyNumberOfThreadsGivesTheSameBytes) {
  const TempDir dir;
  const LayerSpec spec = nvfp4_spec();
  const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(spec));
  Rank one(test::caps_of(spec), "cpu");
  ASSERT_EQ(load(one, checkpoint, nullptr, nullptr), SNUG_OK);
  EXPECT_EQ(snug_weights_check(one.weights, nullptr), SNUG_OK);
  for (const int32_t threads : {2, 3, 4, 16}) {
    Rank many(test::caps_of(spec), "cpu");
    ASSERT_EQ(load(many, checkpoint, nullptr, nullptr, 0, threads), SNUG_OK);
    EXPECT_EQ(bytes_of(many), bytes_of(one)) << threads;
  }
}

TEST(WeightsLoad, ArgumentsAreCheckedByName) {
  const TempDir dir;
  const LayerSpec spec = nvfp4_spec();
  const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(spec));
  Rank rank(test::caps_of(spec), "cpu");
  const auto bad = SNUG_INVALID_ARGUMENT;
  EXPECT_REFUSED(load(rank, checkpoint, nullptr, error, 1), bad,
                 "layer_index: have 1, the checkpoint has 1");
  EXPECT_REFUSED(load(rank, checkpoint, nullptr, error, -1), bad, "layer_index: have -1");
  EXPECT_REFUSED(load(rank, checkpoint, nullptr, error, 0, 0), bad,
                 "num_threads: have 0, need 1..1024");
  EXPECT_REFUSED(load(rank, checkpoint, nullptr, error, 0, 1025), bad, "num_threads: have 1025");
  const auto refused = [&](auto change, snug_status code, const char* begins) {
    snug_shard shard = whole_shard();
    change(shard);
    EXPECT_REFUSED(load(rank, checkpoint, &shard, error), code, begins);
  };
  refused([](snug_shard& s) { s.struct_size = 0; }, bad, "shard.struct_size: have 0");
  refused([](snug_shard& s) { s.tp_size = 0; }, bad, "shard: have tp_rank 0 of tp_size 0");
  refused([](snug_shard& s) { s.tp_rank = 1; }, bad, "shard: have tp_rank 1 of tp_size 1");
  refused([](snug_shard& s) { s.tp_rank = -1; }, bad, "shard: have tp_rank -1");
  refused([](snug_shard& s) { s.tp_size = 2; }, bad,
          "layer: has hidden 64, intermediate 64; the plan is for 64, 64 on 2 ranks");
  // 64 * (2^26 + 1) is 64 modulo 2^32.
  refused([](snug_shard& s) { s.tp_size = (1 << 26) + 1; }, bad, "layer: has hidden 64");
  refused([](snug_shard& s) { s.tp_size = INT32_MAX; }, bad, "layer: has hidden 64");
  const int32_t high[] = {0, 1, 2, 4}, low[] = {0, -1, 2, 3};
  refused([&](snug_shard& s) { s.experts = high; }, bad, "expert");
  Rank again(test::caps_of(spec), "cpu");
  snug_shard shard = whole_shard();
  shard.experts = low;
  EXPECT_REFUSED(load(again, checkpoint, &shard, error), bad, "expert");
  EXPECT_EQ(snug_weights_check(again.weights, nullptr), bad);
  snug_caps part = test::caps_of(spec);
  part.num_local_experts = 2;
  Rank partial(part, "cpu");
  EXPECT_REFUSED(load(partial, checkpoint, nullptr, error), bad,
                 "shard.experts: is null, but 2 of 4 experts are local");
}

TEST(WeightsLoad, ALayerOfAnotherKindIsRefused) {
  const TempDir dir;
  const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(nvfp4_spec()));
  const auto refused = [&](auto change, const char* begins) {
    snug_caps caps = test::caps_of(nvfp4_spec());
    change(caps);
    Rank rank(caps, "cpu");
    EXPECT_REFUSED(load(rank, checkpoint, nullptr, error), SNUG_INVALID_ARGUMENT, begins);
  };
  refused([](snug_caps& c) { c.format = SNUG_MXFP4; }, "layer: is nvfp4, the plan is for mxfp4");
  refused([](snug_caps& c) { c.hidden = 128; }, "layer: has hidden 64, intermediate 64; the plan");
  refused([](snug_caps& c) { c.intermediate = 32; }, "layer: has hidden 64, intermediate 64");
  refused([](snug_caps& c) { c.has_bias = 1; },
          "layer: is gated with no bias; the plan is gated with a bias");
  refused([](snug_caps& c) { c.activation.kind = SNUG_RELU2; },
          "layer: is gated with no bias; the plan is ungated with no bias");
}

TEST(WeightsLoad, DeviceLayoutsAreNotPackedHere) {
  const TempDir dir;
  const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(nvfp4_spec()));
  Rank rank(test::caps_of(nvfp4_spec()), "h200");
  EXPECT_REFUSED(load(rank, checkpoint, nullptr, error), SNUG_UNSUPPORTED, "layout: record_16x64");
}

struct Watch {
  std::vector<int64_t> done;
  int64_t total = -1;
  int64_t cancel_at = -1;
  std::thread::id thread;
};
int watch_progress(void* context, int64_t done, int64_t total) {
  auto* watch = static_cast<Watch*>(context);
  watch->done.push_back(done);
  watch->total = total;
  watch->thread = std::this_thread::get_id();
  return done == watch->cancel_at ? 7 : 0;
}

TEST(WeightsLoad, ProgressReportsAndCancels) {
  const TempDir dir;
  const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(nvfp4_spec()));
  const auto load_watched = [&](Rank& rank, Watch& watch, int32_t threads, snug_error* error) {
    return snug_weights_load(rank.weights, checkpoint.get(), 0, nullptr, threads, watch_progress,
                             &watch, error);
  };
  for (const int32_t threads : {1, 3}) {
    Rank rank(test::caps_of(nvfp4_spec()), "cpu");
    Watch watch;
    ASSERT_EQ(load_watched(rank, watch, threads, nullptr), SNUG_OK);
    ASSERT_FALSE(watch.done.empty());
    EXPECT_EQ(watch.done.back(), 4);
    EXPECT_EQ(watch.total, 4);
    EXPECT_EQ(watch.thread, std::this_thread::get_id());
  }
  Rank rank(test::caps_of(nvfp4_spec()), "cpu");
  Watch watch;
  watch.cancel_at = 2;
  EXPECT_REFUSED(load_watched(rank, watch, 1, error), SNUG_CANCELLED, "prepare: cancelled");
  EXPECT_EQ(watch.done, (std::vector<int64_t>{1, 2}));
  EXPECT_REFUSED(snug_weights_check(rank.weights, error), SNUG_INVALID_ARGUMENT,
                 "weights: expert 2 of 4");
}

TEST(WeightsLoad, AnEmptyRankLoadsNothing) {
  const TempDir dir;
  const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(nvfp4_spec()));
  snug_caps caps = test::caps_of(nvfp4_spec());
  caps.num_local_experts = 0;
  Rank rank(caps, "cpu");
  const int32_t none[] = {99};
  snug_shard shard = whole_shard();
  shard.experts = none;
  EXPECT_EQ(load(rank, checkpoint, &shard, nullptr), SNUG_OK);
  EXPECT_EQ(snug_weights_check(rank.weights, nullptr), SNUG_OK);
}

}  // namespace
}  // namespace snug
