// SPDX-License-Identifier: Apache-2.0
// The arena's promise: exactly required_nbytes, between unmapped pages, whatever it holds before,
// whoever runs the layer and how often. Outputs are the same bits every time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "end_to_end/random_model.h"
#include "support/thread_executor.h"

namespace snug::test {
namespace {

using Edge = GuardedMemory::Edge;

LayerSpec spec_of(snug_format format) {
  LayerSpec spec;
  spec.hidden = 160;
  spec.intermediate = 96;
  spec.num_experts = 7;
  spec.top_k = 3;
  spec.format = format;
  spec.has_bias = true;
  return spec;
}

snug_caps caps_of(const LayerSpec& spec, int64_t max_tokens) {
  snug_caps caps = make_caps(spec, {SNUG_SWIGLU_OAI, 1.702f, 1, 7});
  caps.max_tokens = max_tokens;
  return caps;
}

class Arena : public testing::TestWithParam<snug_format> {};

TEST_P(Arena, ExactSizeBetweenUnmappedPages) {
  const LayerSpec spec = spec_of(GetParam());
  const RandomModel model(spec, 70);
  for (const char* device : {"cpu", "reference"}) {
    for (const int64_t max_tokens : {1, 2, 7, 33, 70}) {
      BoundLayer layer(model, caps_of(spec, max_tokens), device);
      for (int64_t tokens = 0; tokens <= max_tokens; tokens += tokens < 3 ? 1 : 13) {
        EXPECT_EQ(layer.run(tokens, Edge::front), layer.run(tokens, Edge::back)) << tokens;
      }
    }
  }
}

// Between slices lie up to 127 bytes of alignment, and nobody's: with every route valid, no slice
// may grow into them, nor into its neighbour.
TEST_P(Arena, BytesBetweenSlicesKeepTheirCanary) {
  LayerSpec spec = spec_of(GetParam());
  spec.top_k = 5;
  const int64_t tokens = 33;
  RandomModel model(spec, tokens);
  for (int32_t& id : model.inputs().ids) id = id < 0 ? 6 : id;
  const snug_caps caps = caps_of(spec, tokens);
  BoundLayer layer(model, caps, "cpu");
  std::vector<char> text(1 << 16);
  size_t needed = 0;
  snug_error error = {};
  ASSERT_EQ(snug_plan_explain(layer.plan(), 1, text.data(), text.size(), &needed, &error), SNUG_OK);
  const auto plan = nlohmann::json::parse(text.data());
  ASSERT_EQ(plan["peak_tokens"].get<int64_t>(), tokens);
  std::vector<bool> owned(plan["required_nbytes"].get<size_t>());
  for (const auto& slice : plan["slices"]) {
    const auto first = slice["offset"].get<size_t>();
    std::fill_n(owned.begin() + static_cast<ptrdiff_t>(first), slice["nbytes"].get<size_t>(), true);
  }
  ASSERT_GT(std::count(owned.begin(), owned.end(), false), 0) << "this shape must leave gaps";

  GuardedMemory arena(owned.size(), snug_arena_alignment(), Edge::back);
  auto* bytes = static_cast<uint8_t*>(arena.data());
  for (size_t i = 0; i < owned.size(); ++i) bytes[i] = owned[i] ? 0xFF : 0xA5;
  std::vector<float> y(static_cast<size_t>(tokens * spec.hidden));
  const snug_io io = layer.make_io(tokens, arena.data(), y.data());
  snug_binding binding;
  ASSERT_EQ(snug_bind(layer.plan(), layer.weights(), &io, &binding, &error), SNUG_OK);
  ASSERT_EQ(snug_run(&binding, nullptr, &error), SNUG_OK);
  for (size_t i = 0; i < owned.size(); ++i) {
    ASSERT_TRUE(owned[i] || bytes[i] == 0xA5) << "byte " << i << " lies in no slice";
  }
  for (int64_t t = 0; t < tokens; ++t) {
    ASSERT_LE(relative_l2(y.data() + t * spec.hidden, model.oracle_row(t, caps.activation)), 1e-3);
  }
}

TEST_P(Arena, OneByteLessIsRefused) {
  const LayerSpec spec = spec_of(GetParam());
  const RandomModel model(spec, 8);
  BoundLayer layer(model, caps_of(spec, 8), "cpu");
  GuardedMemory arena(snug_plan_required_nbytes(layer.plan()), snug_arena_alignment(), Edge::front);
  std::vector<float> output(8 * 160);
  snug_io io = layer.make_io(8, arena.data(), output.data());
  --io.arena_nbytes;
  snug_binding binding;
  snug_error error = {};
  EXPECT_EQ(snug_bind(layer.plan(), layer.weights(), &io, &binding, &error), SNUG_ARENA_TOO_SMALL);
  EXPECT_NE(std::strstr(error.message, "arena_nbytes"), nullptr) << error.message;
  EXPECT_EQ(snug_run(&binding, nullptr, &error), SNUG_INVALID_ARGUMENT) << "a failed bind binds";
}

TEST_P(Arena, SixteenPoisonedRunsAreBitwiseEqual) {
  const LayerSpec spec = spec_of(GetParam());
  const RandomModel model(spec, 33);
  BoundLayer layer(model, caps_of(spec, 33), "cpu");
  GuardedMemory arena(snug_plan_required_nbytes(layer.plan()), snug_arena_alignment(), Edge::back);
  GuardedMemory output(33 * 160 * 4, 4, Edge::back);
  const snug_io io = layer.make_io(33, arena.data(), output.data());
  snug_binding binding;
  snug_error error = {};
  ASSERT_EQ(snug_bind(layer.plan(), layer.weights(), &io, &binding, &error), SNUG_OK);
  std::vector<uint8_t> first;
  for (const int poison : {0xFF, 0x7F, 0x80, 0x00, 0x01, 0xFE, 0x3C, 0xC3, 0xFF, 0x7F, 0x80, 0x00,
                           0x55, 0xAA, 0x11, 0xFF}) {
    arena.fill(poison);
    output.fill(poison);
    ASSERT_EQ(snug_run(&binding, nullptr, &error), SNUG_OK);
    const auto* bytes = static_cast<const uint8_t*>(output.data());
    if (first.empty()) first.assign(bytes, bytes + output.nbytes());
    ASSERT_EQ(std::memcmp(first.data(), bytes, first.size()), 0) << "poison " << poison;
  }
}

TEST_P(Arena, ThreadCountAndExecutorDoNotChangeABit) {
  const LayerSpec spec = spec_of(GetParam());
  const RandomModel model(spec, 40);
  snug_caps caps = caps_of(spec, 40);
  caps.num_threads = 1;
  const std::vector<float> want = BoundLayer(model, caps, "cpu").run(40);
  for (const int32_t threads : {2, 3, 4, 8, 17}) {
    caps.num_threads = threads;
    BoundLayer layer(model, caps, "cpu");
    EXPECT_EQ(layer.run(40), want) << threads << " threads of OpenMP";
    for (int32_t fewer : {threads, 1, 2}) {
      GuardedMemory arena(snug_plan_required_nbytes(layer.plan()), snug_arena_alignment(),
                          Edge::back);
      std::vector<float> y(want.size());
      snug_io io = layer.make_io(40, arena.data(), y.data());
      io.parallel = thread_executor;
      io.parallel_context = &fewer;
      snug_binding binding;
      snug_error error = {};
      ASSERT_EQ(snug_bind(layer.plan(), layer.weights(), &io, &binding, &error), SNUG_OK);
      ASSERT_EQ(snug_run(&binding, nullptr, &error), SNUG_OK);
      EXPECT_EQ(y, want) << fewer << " of " << threads << " workers of the caller";
    }
  }
}

TEST_P(Arena, ChunksDoNotChangeABit) {
  const LayerSpec spec = spec_of(GetParam());
  const RandomModel model(spec, 1500);
  snug_caps caps = caps_of(spec, 1500);
  caps.batch_invariant = 1;  // else the number of an expert's slots may choose its kernel
  const std::vector<float> want = BoundLayer(model, caps, "cpu").run(1500);
  snug_device device;
  snug_error error = {};
  ASSERT_EQ(snug_device_by_name("cpu", &device, &error), SNUG_OK);
  uint64_t unlimited = 0;
  ASSERT_EQ(snug_required_nbytes(&caps, &device, &unlimited, &error), SNUG_OK);
  caps.arena_limit = 1;
  uint64_t nbytes = 0;
  ASSERT_EQ(snug_required_nbytes(&caps, &device, &nbytes, &error), SNUG_ARENA_TOO_SMALL);
  const char* named = std::strrchr(error.message, ' ');
  ASSERT_NE(named, nullptr);
  caps.arena_limit = std::stoull(named);  // the smallest feasible size, as the message names it
  ASSERT_LT(caps.arena_limit, unlimited);
  BoundLayer limited(model, caps, "cpu");
  snug_schedule schedule = {};
  schedule.struct_size = sizeof schedule;
  ASSERT_EQ(snug_plan_schedule(limited.plan(), 1500, &schedule, &error), SNUG_OK);
  EXPECT_GT(schedule.num_chunks, 1);
  EXPECT_EQ(limited.run(1500), want);
}

// The portable path sums in the reference's order: k ascending, then slots ascending. A kernel that
// reassociates may differ; this one may not, so a swapped order shows as a bit.
TEST_P(Arena, PortableEqualsTheReferenceBitForBit) {
  const LayerSpec spec = spec_of(GetParam());
  const RandomModel model(spec, 33);
  for (const snug_activation& activation : all_activations()) {
    snug_caps caps = make_caps(spec, activation);
    caps.max_tokens = 33;
    EXPECT_EQ(BoundLayer(model, caps, "cpu-portable").run(33),
              BoundLayer(model, caps, "reference").run(33))
        << activation.kind;
  }
}

TEST_P(Arena, TwoArenasShareOneSetOfWeights) {
  const LayerSpec spec = spec_of(GetParam());
  const RandomModel model(spec, 33);
  BoundLayer layer(model, caps_of(spec, 33), "cpu");
  const std::vector<float> want = layer.run(33);
  std::vector<float> outputs[2] = {std::vector<float>(want.size()),
                                   std::vector<float>(want.size())};
  std::vector<std::thread> threads;
  for (std::vector<float>& output : outputs) {
    threads.emplace_back([&] {
      GuardedMemory arena(snug_plan_required_nbytes(layer.plan()), snug_arena_alignment(),
                          Edge::back);
      snug_io io = layer.make_io(33, arena.data(), output.data());
      io.parallel = thread_executor;
      snug_binding binding;
      snug_error error = {};
      EXPECT_EQ(snug_bind(layer.plan(), layer.weights(), &io, &binding, &error), SNUG_OK);
      for (int i = 0; i < 8; ++i) EXPECT_EQ(snug_run(&binding, nullptr, &error), SNUG_OK);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(outputs[0], want);
  EXPECT_EQ(outputs[1], want);
}

INSTANTIATE_TEST_SUITE_P(Formats, Arena, testing::Values(SNUG_NVFP4, SNUG_MXFP4),
                         [](const testing::TestParamInfo<snug_format>& info) {
                           return info.param == SNUG_MXFP4 ? "mxfp4" : "nvfp4";
                         });

// Layers that run one after another share one arena: its price is the maximum of theirs.
TEST(ArenaSharing, NineShapesOneArena) {
  uint64_t most = 0;
  std::vector<std::unique_ptr<RandomModel>> models;
  std::vector<std::unique_ptr<BoundLayer>> layers;
  std::vector<std::vector<float>> alone;
  for (int i = 0; i < 9; ++i) {
    LayerSpec spec;
    spec.hidden = 32 * (1 + i % 4);
    spec.intermediate = 32 * (1 + i);
    spec.seed = static_cast<uint32_t>(i);
    models.push_back(std::make_unique<RandomModel>(spec, 20));
    layers.push_back(std::make_unique<BoundLayer>(*models.back(), caps_of(spec, 20), "cpu"));
    alone.push_back(layers.back()->run(20));
    most = std::max(most, snug_plan_required_nbytes(layers.back()->plan()));
  }
  GuardedMemory arena(most, snug_arena_alignment(), Edge::back);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < layers.size(); ++i) {
      std::vector<float> y(alone[i].size());
      snug_io io = layers[i]->make_io(20, arena.data(), y.data());
      io.arena_nbytes = most;
      snug_binding binding;
      snug_error error = {};
      ASSERT_EQ(snug_bind(layers[i]->plan(), layers[i]->weights(), &io, &binding, &error), SNUG_OK);
      ASSERT_EQ(snug_run(&binding, nullptr, &error), SNUG_OK);
      EXPECT_EQ(y, alone[i]) << i;
    }
  }
}

}  // namespace
}  // namespace snug::test
