// SPDX-License-Identifier: Apache-2.0
// Bad input does what the contract says: an invalid id contributes exactly nothing, a bad argument
// gets a status that names it, and nothing is clamped, lost or written.
#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <cstring>
#include <limits>

#include "end_to_end/random_model.h"

namespace snug::test {
namespace {

constexpr int64_t kTokens = 12;

LayerSpec small_spec() {
  LayerSpec spec;
  spec.hidden = 64;
  spec.intermediate = 48;
  spec.num_experts = 5;
  spec.top_k = 3;
  return spec;
}

snug_caps caps_of(const LayerSpec& spec) {
  snug_caps caps = make_caps(spec, {SNUG_SILU, 1, 0, 0});
  caps.max_tokens = kTokens;
  return caps;
}

class InvalidInput : public testing::TestWithParam<const char*> {
 protected:
  InvalidInput() : model_(small_spec(), kTokens) {
    for (int32_t& id : model_.inputs().ids) id = id < 0 ? 0 : id;  // start from valid routes
    layer_ = std::make_unique<BoundLayer>(model_, caps_of(small_spec()), GetParam());
    arena_ = std::make_unique<GuardedMemory>(snug_plan_required_nbytes(layer_->plan()),
                                             snug_arena_alignment(), GuardedMemory::Edge::back);
    output_.resize(kTokens * 64, NAN);
  }

  snug_io io() { return layer_->make_io(kTokens, arena_->data(), output_.data()); }

  /// Binds and runs a changed descriptor in poisoned memory.
  std::vector<float> run(const snug_io& io) {
    arena_->fill(0xFF);
    std::fill(output_.begin(), output_.end(), NAN);
    snug_binding binding;
    snug_error error = {};
    EXPECT_EQ(snug_bind(layer_->plan(), layer_->weights(), &io, &binding, &error), SNUG_OK)
        << error.message;
    EXPECT_EQ(snug_run(&binding, nullptr, &error), SNUG_OK) << error.message;
    return output_;
  }

  void expect_refused(const snug_io& io, const char* argument, snug_status code) {
    std::fill(output_.begin(), output_.end(), 1.25f);
    snug_binding binding;
    snug_error error = {};
    EXPECT_EQ(snug_bind(layer_->plan(), layer_->weights(), &io, &binding, &error), code)
        << argument;
    EXPECT_NE(std::strstr(error.message, argument), nullptr) << error.message;
    for (const float v : output_) ASSERT_EQ(v, 1.25f) << "a refused call wrote its output";
  }

  RandomModel model_;
  std::unique_ptr<BoundLayer> layer_;
  std::unique_ptr<GuardedMemory> arena_;
  std::vector<float> output_;
};

// The same output as when the route's weight is zero and its expert is another one: nothing.
TEST_P(InvalidInput, InvalidIdsContributeNothing) {
  const std::vector<int32_t> valid = model_.inputs().ids;
  const std::vector<float> plain = run(io());
  for (const int32_t bad : {-1, 5, 6, INT_MIN, INT_MAX, -7}) {
    model_.inputs().ids = valid;
    model_.inputs().ids[1] = bad;  // one route of token 0
    for (int j = 0; j < 3; ++j) model_.inputs().ids[3 * 4 + static_cast<size_t>(j)] = bad;
    const std::vector<float> y = run(io());
    for (int64_t t = 0; t < kTokens; ++t) {
      const float* row = y.data() + t * 64;
      if (t == 4) {
        for (int n = 0; n < 64; ++n) ASSERT_EQ(row[n], 0.0f) << bad;
      } else if (t == 0) {
        ASSERT_LE(relative_l2(row, model_.oracle_row(0, {SNUG_SILU, 1, 0, 0})), 1e-3) << bad;
      } else {
        ASSERT_EQ(std::memcmp(row, plain.data() + t * 64, 64 * sizeof(float)), 0) << bad;
      }
    }
  }
  model_.inputs().ids = valid;
}

TEST_P(InvalidInput, SixtyFourBitIdsAreNotCut) {
  std::vector<int64_t> wide(model_.inputs().ids.begin(), model_.inputs().ids.end());
  snug_io changed = io();
  const std::vector<float> plain = run(changed);
  changed.topk_ids = wide.data();
  changed.ids_dtype = SNUG_S64;
  EXPECT_EQ(run(changed), plain);
  // 2^32 + 3 is not expert 3.
  wide[3] = (int64_t{1} << 32) + 3;
  model_.inputs().ids[3] = -1;
  const std::vector<float> y = run(changed);
  EXPECT_LE(relative_l2(y.data() + 64, model_.oracle_row(1, {SNUG_SILU, 1, 0, 0})), 1e-3);
  wide[3] = INT64_MIN;
  EXPECT_EQ(run(changed), y);
}

TEST_P(InvalidInput, ARepeatedIdCountsOncePerSlot) {
  for (int j = 0; j < 3; ++j) model_.inputs().ids[static_cast<size_t>(j)] = 2;
  const std::vector<float> y = run(io());
  EXPECT_LE(relative_l2(y.data(), model_.oracle_row(0, {SNUG_SILU, 1, 0, 0})), 1e-3);
}

TEST_P(InvalidInput, EveryTokenOnOneExpertAndInputsUnchanged) {
  for (int32_t& id : model_.inputs().ids) id = 4;
  const RandomInputs before = model_.inputs();
  const std::vector<float> y = run(io());
  for (int64_t t = 0; t < kTokens; ++t) {
    EXPECT_LE(relative_l2(y.data() + t * 64, model_.oracle_row(t, {SNUG_SILU, 1, 0, 0})), 1e-3);
  }
  EXPECT_EQ(model_.inputs().x, before.x);
  EXPECT_EQ(model_.inputs().ids, before.ids);
  EXPECT_EQ(model_.inputs().weights, before.weights);
}

TEST_P(InvalidInput, StridedRows) {
  const std::vector<float> plain = run(io());
  std::vector<uint16_t> x(kTokens * 80, 0x7FC0);  // NaN between the rows
  std::vector<int32_t> ids(kTokens * 5, 4);
  std::vector<float> weights(kTokens * 4, NAN);
  std::vector<float> y(kTokens * 100, 7.5f);
  for (size_t t = 0; t < kTokens; ++t) {
    std::memcpy(&x[t * 80], &model_.inputs().x[t * 64], 64 * 2);
    std::memcpy(&ids[t * 5], &model_.inputs().ids[t * 3], 3 * 4);
    std::memcpy(&weights[t * 4], &model_.inputs().weights[t * 3], 3 * 4);
  }
  snug_io changed = io();
  changed.x = x.data(), changed.x_stride = 80;
  changed.topk_ids = ids.data(), changed.ids_stride = 5;
  changed.topk_weights = weights.data(), changed.weights_stride = 4;
  changed.output = y.data(), changed.output_stride = 100;
  (void)run(changed);
  for (size_t t = 0; t < kTokens; ++t) {
    ASSERT_EQ(std::memcmp(&y[t * 100], &plain[t * 64], 64 * 4), 0);
    for (size_t n = 64; n < 100; ++n) ASSERT_EQ(y[t * 100 + n], 7.5f) << "written past the row";
  }
}

TEST_P(InvalidInput, NonFiniteRouterWeightsAndInputsStayInTheirRow) {
  const std::vector<float> plain = run(io());
  model_.inputs().weights[0] = NAN;
  model_.inputs().x[3 * 64] = 0x7F80;  // +inf
  const std::vector<float> y = run(io());
  EXPECT_TRUE(std::isnan(y[0]));
  for (const int64_t t : {1, 2, 4, 5, 6, 7, 8, 9, 10, 11}) {
    EXPECT_EQ(
        std::memcmp(&y[static_cast<size_t>(t) * 64], &plain[static_cast<size_t>(t) * 64], 64 * 4),
        0);
  }
}

TEST_P(InvalidInput, Bf16RouterWeights) {
  std::vector<uint16_t> narrow;
  for (float& w : model_.inputs().weights) {
    w = 0.5f;
    narrow.push_back(0x3F00);
  }
  snug_io changed = io();
  const std::vector<float> plain = run(changed);
  changed.topk_weights = narrow.data();
  changed.weights_dtype = SNUG_BF16;
  EXPECT_EQ(run(changed), plain);
}

TEST_P(InvalidInput, OverlapsAreRefused) {
  snug_io changed = io();
  changed.output = const_cast<void*>(changed.x);
  expect_refused(changed, "output", SNUG_INVALID_ARGUMENT);
  changed = io();
  changed.output = arena_->data();
  expect_refused(changed, "output", SNUG_INVALID_ARGUMENT);
  changed = io();
  changed.topk_weights = arena_->data();
  expect_refused(changed, "arena", SNUG_INVALID_ARGUMENT);
  changed = io();
  changed.x = output_.data() + kTokens * 64 - 1;  // one element inside
  expect_refused(changed, "output", SNUG_INVALID_ARGUMENT);
}

TEST_P(InvalidInput, BadDescriptorsAreRefusedByName) {
  const auto refused = [&](auto change, const char* argument, snug_status code) {
    snug_io changed = io();
    change(changed);
    expect_refused(changed, argument, code);
  };
  refused([](snug_io& c) { c.x = nullptr; }, "x:", SNUG_INVALID_ARGUMENT);
  refused([](snug_io& c) { c.topk_ids = nullptr; }, "topk_ids", SNUG_INVALID_ARGUMENT);
  refused([](snug_io& c) { c.topk_weights = nullptr; }, "topk_weights", SNUG_INVALID_ARGUMENT);
  refused([](snug_io& c) { c.output = nullptr; }, "output", SNUG_INVALID_ARGUMENT);
  refused([](snug_io& c) { c.arena = nullptr; }, "arena", SNUG_INVALID_ARGUMENT);
  refused([](snug_io& c) { c.x_stride = 63; }, "x:", SNUG_INVALID_ARGUMENT);
  refused([](snug_io& c) { c.output_stride = 63; }, "output", SNUG_INVALID_ARGUMENT);
  refused([](snug_io& c) { c.ids_stride = 2; }, "topk_ids", SNUG_INVALID_ARGUMENT);
  refused([](snug_io& c) { c.weights_stride = -1; }, "topk_weights", SNUG_INVALID_ARGUMENT);
  refused([](snug_io& c) { c.x = static_cast<const char*>(c.x) + 1; }, "x:", SNUG_MISALIGNED);
  refused([](snug_io& c) { c.arena = static_cast<char*>(c.arena) + 64; }, "arena", SNUG_MISALIGNED);
  refused([](snug_io& c) { c.ids_dtype = SNUG_F32; }, "topk_ids", SNUG_INVALID_ARGUMENT);
  refused([](snug_io& c) { c.weights_dtype = SNUG_S32; }, "topk_weights", SNUG_INVALID_ARGUMENT);
  refused([](snug_io& c) { c.num_tokens = kTokens + 1; }, "num_tokens", SNUG_INVALID_ARGUMENT);
  refused([](snug_io& c) { c.num_tokens = -1; }, "num_tokens", SNUG_INVALID_ARGUMENT);
  refused([](snug_io& c) { c.struct_size = 0; }, "struct_size", SNUG_INVALID_ARGUMENT);
}

TEST_P(InvalidInput, ZeroTokensWithNullPointers) {
  snug_io empty;
  snug_io_init(&empty);
  snug_binding binding;
  snug_error error = {};
  EXPECT_EQ(snug_bind(layer_->plan(), layer_->weights(), &empty, &binding, &error), SNUG_OK)
      << error.message;
  EXPECT_EQ(snug_run(&binding, nullptr, &error), SNUG_OK) << error.message;
}

TEST_P(InvalidInput, AStreamIsRefusedOnTheHost) {
  const snug_io plain = io();
  snug_binding binding;
  snug_error error = {};
  ASSERT_EQ(snug_bind(layer_->plan(), layer_->weights(), &plain, &binding, &error), SNUG_OK);
  EXPECT_EQ(snug_run(&binding, this, &error), SNUG_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.message, "stream"), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Backends, InvalidInput, testing::Values("cpu", "reference"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

// Maps: partial sums of ranks with holes, an empty rank, uneven shares and replicas.
TEST(ExpertMaps, PartialsOfUnevenRanksSumToTheWhole) {
  const LayerSpec spec = small_spec();
  const RandomModel model(spec, kTokens);
  const std::vector<float> whole = BoundLayer(model, caps_of(spec), "cpu").run(kTokens);
  const std::vector<std::vector<int32_t>> ranks = {{3}, {}, {0, 4, 1}, {2}};
  std::vector<double> sum(whole.size(), 0.0);
  for (const std::vector<int32_t>& local : ranks) {
    snug_caps caps = caps_of(spec);
    caps.num_local_experts = static_cast<int32_t>(local.size());
    snug_device device;
    snug_error error = {};
    ASSERT_EQ(snug_device_by_name("cpu", &device, &error), SNUG_OK);
    snug_plan* plan = nullptr;
    ASSERT_EQ(snug_plan_create(&caps, &device, &plan, &error), SNUG_OK) << error.message;
    GuardedMemory storage(snug_plan_weights_nbytes(plan), snug_weights_alignment(),
                          GuardedMemory::Edge::back);
    RandomModel shard(spec, kTokens);
    snug_weights* weights = nullptr;
    shard.keep_experts(local);
    shard.prepare(plan, true, storage, &weights);
    std::vector<int32_t> map(5, -1);
    for (size_t i = 0; i < local.size(); ++i) {
      map[static_cast<size_t>(local[i])] = static_cast<int32_t>(i);
    }
    GuardedMemory arena(snug_plan_required_nbytes(plan), snug_arena_alignment(),
                        GuardedMemory::Edge::back);
    std::vector<float> y(whole.size(), NAN);
    snug_io io;
    snug_io_init(&io);
    io.num_tokens = kTokens;
    io.x = model.inputs().x.data(), io.x_stride = 64;
    io.topk_ids = model.inputs().ids.data(), io.ids_stride = 3;
    io.topk_weights = model.inputs().weights.data(), io.weights_stride = 3;
    io.output = y.data(), io.output_stride = 64;
    io.arena = arena.data(), io.arena_nbytes = arena.nbytes();
    snug_binding binding;
    EXPECT_EQ(snug_bind(plan, weights, &io, &binding, &error), SNUG_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(error.message, "expert_map"), nullptr) << "a partial rank needs a map";
    io.expert_map = map.data();
    ASSERT_EQ(snug_bind(plan, weights, &io, &binding, &error), SNUG_OK) << error.message;
    ASSERT_EQ(snug_run(&binding, nullptr, &error), SNUG_OK);
    for (int64_t t = 0; t < kTokens; ++t) {
      bool any = false;
      for (int j = 0; j < 3; ++j) {
        const int32_t id = model.inputs().ids[static_cast<size_t>(t * 3 + j)];
        any = any || (id >= 0 && map[static_cast<size_t>(id)] >= 0);
      }
      for (size_t n = 0; n < 64; ++n) {
        const float v = y[static_cast<size_t>(t) * 64 + n];
        ASSERT_TRUE(any || v == 0.0f) << "a row with nothing local is zero";
        sum[static_cast<size_t>(t) * 64 + n] += v;
      }
    }
    snug_weights_destroy(weights);
    snug_plan_destroy(plan);
  }
  for (int64_t t = 0; t < kTokens; ++t) {
    const std::vector<double> want(sum.begin() + t * 64, sum.begin() + (t + 1) * 64);
    EXPECT_LE(relative_l2(whole.data() + t * 64, want), 1e-6) << t;
  }
}

TEST(ExpertMaps, BadMapsAreRefusedAndReplicasDeclared) {
  const LayerSpec spec = small_spec();
  const RandomModel model(spec, kTokens);
  BoundLayer layer(model, caps_of(spec), "cpu");
  GuardedMemory arena(snug_plan_required_nbytes(layer.plan()), snug_arena_alignment(),
                      GuardedMemory::Edge::back);
  std::vector<float> y(kTokens * 64);
  snug_io io = layer.make_io(kTokens, arena.data(), y.data());
  const auto bind_with = [&](std::vector<int32_t> map, int32_t replicas) {
    snug_binding binding;
    io.expert_map = map.data();
    io.allow_replicas = replicas;
    return snug_bind(layer.plan(), layer.weights(), &io, &binding, nullptr);
  };
  EXPECT_EQ(bind_with({4, 3, 2, 1, 0}, 0), SNUG_OK);
  EXPECT_EQ(bind_with({0, 1, 2, 3, 5}, 0), SNUG_INVALID_ARGUMENT) << "out of range";
  EXPECT_EQ(bind_with({0, 1, 2, 3, -2}, 0), SNUG_INVALID_ARGUMENT) << "below -1";
  EXPECT_EQ(bind_with({0, 1, 2, 3, 3}, 0), SNUG_INVALID_ARGUMENT) << "twice, and 4 missing";
  EXPECT_EQ(bind_with({0, 1, 2, 3, -1}, 0), SNUG_INVALID_ARGUMENT) << "4 missing";
  EXPECT_EQ(bind_with({0, 1, 2, 3, 3}, 1), SNUG_INVALID_ARGUMENT) << "4 missing still";
}

// FM-01: gate and up keep their own global scales; FM-13: doubling one doubles what it makes.
TEST(Scales, BadScalesAreRefusedByName) {
  const LayerSpec spec = small_spec();
  snug_caps caps = caps_of(spec);
  snug_device device;
  snug_error error = {};
  ASSERT_EQ(snug_device_by_name("cpu", &device, &error), SNUG_OK);
  snug_plan* plan = nullptr;
  ASSERT_EQ(snug_plan_create(&caps, &device, &plan, &error), SNUG_OK);
  GuardedMemory storage(snug_plan_weights_nbytes(plan), snug_weights_alignment(),
                        GuardedMemory::Edge::back);
  snug_weights* weights = nullptr;
  ASSERT_EQ(snug_weights_create(plan, storage.data(), storage.nbytes(), &weights, &error), SNUG_OK);
  const RandomModel model(spec, 1);
  const auto put = [&](auto change) {
    RandomExpert expert = model.experts()[0];
    change(expert);
    snug_expert_source source = describe(expert, spec.format, true);
    error = {};
    return snug_weights_put(weights, 0, &source, &error);
  };
  const float bad_globals[] = {NAN, std::numeric_limits<float>::infinity(), 0.0f, -1.0f};
  for (const float bad : bad_globals) {
    EXPECT_EQ(put([&](RandomExpert& e) { e.up.global = bad; }), SNUG_CORRUPT_CHECKPOINT) << bad;
    EXPECT_NE(std::strstr(error.message, "expert 0 up"), nullptr) << error.message;
  }
  for (const uint8_t bad : {0x7F, 0xFF}) {
    EXPECT_EQ(put([&](RandomExpert& e) { e.down.scales[3 * 3 + 1] = bad; }),
              SNUG_CORRUPT_CHECKPOINT);
    EXPECT_NE(std::strstr(error.message, "expert 0 down row 3"), nullptr) << error.message;
  }
  // Zero and negative block scales are numbers like any other.
  EXPECT_EQ(put([](RandomExpert& e) {
              e.gate.scales[0] = 0;
              e.gate.scales[1] = 0xB8;
            }),
            SNUG_OK)
      << error.message;
  EXPECT_EQ(put([](RandomExpert&) {}), SNUG_INVALID_ARGUMENT) << "arrived twice";
  EXPECT_EQ(snug_weights_check(weights, &error), SNUG_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.message, "expert 1"), nullptr) << error.message;
  snug_weights_destroy(weights);
  snug_plan_destroy(plan);
}

// FM-06: scales written with exponent bias 125 give the same bits as the standard ones.
TEST(Scales, ExponentBiasIsDeclared) {
  LayerSpec spec;
  spec.hidden = spec.intermediate = 64;
  spec.format = SNUG_MXFP4;
  const RandomModel model(spec, 1);
  snug_caps caps = caps_of(spec);
  snug_device device;
  snug_error error = {};
  ASSERT_EQ(snug_device_by_name("cpu", &device, &error), SNUG_OK);
  snug_plan* plan = nullptr;
  ASSERT_EQ(snug_plan_create(&caps, &device, &plan, &error), SNUG_OK);
  std::vector<std::vector<uint8_t>> prepared;
  for (const int32_t bias : {127, 125}) {
    GuardedMemory storage(snug_plan_weights_nbytes(plan), snug_weights_alignment(),
                          GuardedMemory::Edge::back);
    snug_weights* weights = nullptr;
    ASSERT_EQ(snug_weights_create(plan, storage.data(), storage.nbytes(), &weights, &error),
              SNUG_OK);
    RandomExpert expert = model.experts()[0];
    for (RandomMatrix* m : {&expert.gate, &expert.up, &expert.down}) {
      for (uint8_t& byte : m->scales) byte = static_cast<uint8_t>(byte + bias - 127);
    }
    snug_expert_source source = describe(expert, spec.format, true);
    for (snug_matrix* m : {&source.gate, &source.up, &source.down}) m->e8m0_bias = bias;
    ASSERT_EQ(snug_weights_put(weights, 0, &source, &error), SNUG_OK) << error.message;
    const auto* bytes = static_cast<const uint8_t*>(storage.data());
    prepared.emplace_back(bytes, bytes + storage.nbytes() / 3);  // the first of three experts
    expert.up.scales[0] = 0;
    source.up.e8m0_bias = 254;
    EXPECT_EQ(snug_weights_update(weights, 0, &source, &error), SNUG_CORRUPT_CHECKPOINT);
    snug_weights_destroy(weights);
  }
  EXPECT_EQ(prepared[0], prepared[1]);
  snug_plan_destroy(plan);
}

// Routing: NaN logits count as -inf; ids stay distinct and in range, weights finite.
TEST(RoutingInput, NanLogits) {
  snug_routing routing;
  snug_routing_init(&routing);
  std::vector<float> logits = {NAN, NAN, NAN, NAN, NAN, 1, NAN, 3, 2, NAN};
  std::vector<int32_t> ids(6);
  std::vector<float> weights(6);
  snug_error error = {};
  ASSERT_EQ(snug_route(&routing, logits.data(), SNUG_F32, 5, nullptr, 2, 5, 3, ids.data(),
                       weights.data(), &error),
            SNUG_OK);
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 1, 2, 2, 3, 0}));
  for (const float w : weights) EXPECT_TRUE(std::isfinite(w));
  EXPECT_NEAR(weights[3] + weights[4] + weights[5], 1.0, 1e-6);
  EXPECT_EQ(snug_route(&routing, logits.data(), SNUG_F32, 5, nullptr, 2, 5, 6, ids.data(),
                       weights.data(), &error),
            SNUG_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.message, "top_k"), nullptr);
}

}  // namespace
}  // namespace snug::test
