// SPDX-License-Identifier: Apache-2.0
// api/run.cpp through snug.h: a checkpoint on disk opened, loaded, bound and run. Refusals of io
// fields are in end_to_end/invalid_input_test.cpp.
#include <gtest/gtest.h>
#include <snug/snug.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "support/thread_executor.h"
#include "support/tiny_checkpoint.h"

namespace snug {
namespace {

using test::CheckpointHandle;
using test::LayerSpec;
using test::Rank;
using test::relative_error;
using test::scheme_id;
using test::TempDir;
using test::Tokens;

LayerSpec spec_of(const char* scheme) {
  return {.scheme = scheme_id(scheme),
          .num_experts = 4,
          .intermediate = 64,
          .biased = std::string(scheme) == "gpt_oss_mxfp4"};
}

// The judge's three numerics agree with the CPU as far as their roundings allow.
TEST(Run, EveryCheckpointSchemeOnCpuAndReference) {
  for (int32_t scheme = 0; scheme < kNumSchemes; ++scheme) {
    SCOPED_TRACE(kSchemes[scheme].name);
    const TempDir dir;
    const LayerSpec spec = spec_of(kSchemes[scheme].name);
    const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(spec));
    ASSERT_NE(checkpoint, nullptr);
    snug_caps caps = test::caps_of(spec);
    const Tokens tokens(caps);
    Rank cpu(caps, "cpu");
    cpu.load(checkpoint);
    const std::vector<float> y = cpu.run(tokens);
    const struct {
      snug_numerics numerics;
      double bound;
    } cases[] = {{SNUG_NUMERICS_CONTRACT, 1e-6},
                 {SNUG_NUMERICS_FLOAT64, 1e-3},
                 {SNUG_NUMERICS_FLOAT64_UNROUNDED, 4e-3}};
    for (const auto& c : cases) {
      caps.numerics = c.numerics;
      Rank reference(caps, "reference");
      reference.load(checkpoint);
      EXPECT_LE(relative_error(y, reference.run(tokens)), c.bound) << c.numerics;
    }
  }
}

// The down bias lies on rank 0 alone; the ranks' sum has it once.
TEST(Run, TensorParallelSharesSumToTheWhole) {
  for (const char* scheme : {"modelopt_nvfp4", "compressed_tensors_nvfp4", "gpt_oss_mxfp4"}) {
    SCOPED_TRACE(scheme);
    const TempDir dir;
    const LayerSpec spec = spec_of(scheme);
    const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(spec));
    snug_caps caps = test::caps_of(spec);
    const Tokens tokens(caps);
    for (const char* device : {"cpu", "reference"}) {
      caps.intermediate = 64;
      Rank whole(caps, device);
      whole.load(checkpoint);
      const std::vector<float> want = whole.run(tokens);
      std::vector<float> sum(want.size(), 0.0f);
      caps.intermediate = 32;
      for (const int32_t tp_rank : {0, 1}) {
        snug_shard shard = {sizeof shard, tp_rank, 2, 0, nullptr};
        Rank rank(caps, device);
        rank.load(checkpoint, &shard);
        const std::vector<float> part = rank.run(tokens);
        EXPECT_GT(relative_error(part, want), 0.1) << "a share is not the whole";
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      EXPECT_LE(relative_error(sum, want), 1e-5) << device;
    }
  }
}

TEST(Run, ExpertParallelSharesSumToTheWhole) {
  const TempDir dir;
  const LayerSpec spec = spec_of("gpt_oss_mxfp4");
  const CheckpointHandle checkpoint = test::open_tensors(dir, test::make_weights(spec));
  snug_caps caps = test::caps_of(spec);
  const Tokens tokens(caps);
  Rank whole(caps, "cpu");
  whole.load(checkpoint);
  const std::vector<float> want = whole.run(tokens);
  std::vector<float> sum(want.size(), 0.0f);
  const struct {
    std::vector<int32_t> experts, map;
  } ranks[] = {{{3, 0, 1}, {1, 2, -1, 0}}, {{2}, {-1, -1, 0, -1}}};
  for (const auto& r : ranks) {
    caps.num_local_experts = static_cast<int32_t>(r.experts.size());
    Rank rank(caps, "cpu");
    const snug_shard shard = {sizeof shard, 0, 1, 0, r.experts.data()};
    rank.load(checkpoint, &shard);
    const std::vector<float> part = rank.run(tokens, r.map.data());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  EXPECT_LE(relative_error(sum, want), 1e-6);
}

/// A loaded CPU rank and its tokens.
class Bound : public testing::Test {
 protected:
  Bound() { rank_.load(checkpoint_); }

  snug_status bind(const Rank& plan_of, const Rank& weights_of, snug_error* error) {
    const snug_io io = rank_.io(tokens_);
    return snug_bind(plan_of.plan, weights_of.weights, &io, &binding_, error);
  }

  TempDir dir_;
  LayerSpec spec_ = spec_of("modelopt_nvfp4");
  CheckpointHandle checkpoint_ = test::open_tensors(dir_, test::make_weights(spec_));
  snug_caps caps_ = test::caps_of(spec_);
  Tokens tokens_{caps_};
  Rank rank_{caps_, "cpu"};
  snug_binding binding_;
};

TEST_F(Bound, NullArgumentsAreNamed) {
  const snug_io io = rank_.io(tokens_);
  const auto bad = SNUG_INVALID_ARGUMENT;
  EXPECT_REFUSED(snug_bind(nullptr, rank_.weights, &io, &binding_, error), bad, "plan: is null");
  EXPECT_REFUSED(snug_bind(rank_.plan, nullptr, &io, &binding_, error), bad, "weights: is null");
  EXPECT_REFUSED(snug_bind(rank_.plan, rank_.weights, nullptr, &binding_, error), bad,
                 "io: is null");
  EXPECT_REFUSED(snug_bind(rank_.plan, rank_.weights, &io, nullptr, error), bad,
                 "binding: is null");
  EXPECT_REFUSED(snug_run(nullptr, nullptr, error), bad, "binding: is null");
}

TEST_F(Bound, DescriptorsAreChecked) {
  snug_io io;
  std::memset(&io, 0x5A, sizeof io);
  snug_io_init(&io);
  snug_io want;
  std::memset(&want, 0, sizeof want);
  want.struct_size = sizeof want;
  want.ids_dtype = SNUG_S32;
  want.weights_dtype = SNUG_F32;
  EXPECT_EQ(std::memcmp(&io, &want, sizeof io), 0) << "init fills every byte";
  snug_io_init(nullptr);
  const auto refused = [&](auto change, const char* begins) {
    snug_io changed = rank_.io(tokens_);
    change(changed);
    EXPECT_REFUSED(snug_bind(rank_.plan, rank_.weights, &changed, &binding_, error),
                   SNUG_INVALID_ARGUMENT, begins);
  };
  refused([](snug_io& c) { c.struct_size -= 8; }, "io.struct_size: have ");
  refused([](snug_io& c) { c.allow_replicas = 2; }, "io.allow_replicas: have 2, need 0 or 1");
  refused([](snug_io& c) { c.ids_dtype = 99; }, "topk_ids: have dtype unknown");
  refused([](snug_io& c) { c.weights_dtype = -1; }, "topk_weights: have dtype unknown");
}

TEST_F(Bound, ErrorsAreUntouchedOnSuccess) {
  snug_error error, before;
  std::memset(&error, 0x5A, sizeof error);
  before = error;
  ASSERT_EQ(bind(rank_, rank_, &error), SNUG_OK);
  ASSERT_EQ(snug_run(&binding_, nullptr, &error), SNUG_OK);
  EXPECT_EQ(std::memcmp(&error, &before, sizeof error), 0);
  for (const float v : rank_.output) ASSERT_TRUE(std::isfinite(v));
}

// Weights of another backend's layout, format, size and number of experts.
TEST_F(Bound, WeightsOfAnotherPlanAreRefused) {
  Rank other_layout(caps_, "reference");
  other_layout.load(checkpoint_);
  EXPECT_REFUSED(bind(rank_, other_layout, error), SNUG_INVALID_ARGUMENT,
                 "weights: have layout plain, the plan needs panel_16x32");
  EXPECT_REFUSED(bind(other_layout, rank_, error), SNUG_INVALID_ARGUMENT,
                 "weights: have layout panel_16x32, the plan needs plain");
  snug_caps half = caps_;
  half.intermediate = 32;
  const snug_shard shard = {sizeof shard, 0, 2, 0, nullptr};
  Rank smaller(half, "cpu");
  smaller.load(checkpoint_, &shard);
  EXPECT_REFUSED(bind(rank_, smaller, error), SNUG_INVALID_ARGUMENT,
                 "weights: have nvfp4, 4 experts, hidden 64, intermediate 32, gated, no bias; the "
                 "plan is for nvfp4, 4, 64, 64, gated, no bias");
  snug_caps fewer = caps_;
  fewer.num_local_experts = 3;
  const int32_t experts[] = {0, 1, 2};
  const snug_shard list = {sizeof list, 0, 1, 0, experts};
  Rank partial(fewer, "cpu");
  partial.load(checkpoint_, &list);
  EXPECT_REFUSED(bind(rank_, partial, error), SNUG_INVALID_ARGUMENT,
                 "weights: have nvfp4, 3 experts");
  // Another plan of the same layer is another capacity, not other weights.
  snug_caps longer = caps_;
  longer.max_tokens = 9;
  Rank capacity(longer, "cpu");
  const snug_io io = capacity.io(Tokens(longer));
  EXPECT_EQ(snug_bind(capacity.plan, rank_.weights, &io, &binding_, nullptr), SNUG_OK);
}

TEST_F(Bound, IncompleteWeightsAreRefused) {
  Rank empty(caps_, "cpu");
  EXPECT_REFUSED(bind(rank_, empty, error), SNUG_INVALID_ARGUMENT,
                 "weights: expert 0 of 4 has not been prepared");
}

TEST_F(Bound, APlanWithoutKernelsIsRefused) {
  Rank cuda(caps_, "h200");
  EXPECT_REFUSED(bind(cuda, rank_, error), SNUG_UNSUPPORTED,
                 "plan: is for h200 (cuda), this build has no kernels for it");
  EXPECT_REFUSED(bind(cuda, cuda, error), SNUG_UNSUPPORTED, "plan: is for h200 (cuda)");
}

TEST_F(Bound, OnlyABoundBindingRuns) {
  std::memset(&binding_, 0, sizeof binding_);
  EXPECT_REFUSED(snug_run(&binding_, nullptr, error), SNUG_INVALID_ARGUMENT,
                 "binding: was not made by snug_bind");
  ASSERT_EQ(bind(rank_, rank_, nullptr), SNUG_OK);
  const snug_binding good = binding_;
  EXPECT_EQ(snug_bind(rank_.plan, rank_.weights, nullptr, &binding_, nullptr),
            SNUG_INVALID_ARGUMENT);
  EXPECT_REFUSED(snug_run(&binding_, nullptr, error), SNUG_INVALID_ARGUMENT,
                 "binding: was not made by snug_bind");
  ASSERT_EQ(snug_run(&good, nullptr, nullptr), SNUG_OK) << "a copy is a binding too";
  EXPECT_REFUSED(snug_run(&good, this, error), SNUG_INVALID_ARGUMENT,
                 "stream: must be null on this backend");
}

TEST_F(Bound, OutlivesPlanAndWeightsHandle) {
  const std::vector<float> want = rank_.run(tokens_);
  ASSERT_EQ(bind(rank_, rank_, nullptr), SNUG_OK);
  snug_plan_destroy(rank_.plan);
  snug_weights_destroy(rank_.weights);
  rank_.plan = nullptr;
  rank_.weights = nullptr;
  ASSERT_EQ(snug_run(&binding_, nullptr, nullptr), SNUG_OK);
  EXPECT_EQ(rank_.output, want);
  std::fill(rank_.output.begin(), rank_.output.end(), NAN);
  ASSERT_EQ(snug_run(&binding_, nullptr, nullptr), SNUG_OK) << "a binding may run again";
  EXPECT_EQ(rank_.output, want);
}

TEST_F(Bound, AnyExecutorGivesTheSameBits) {
  const std::vector<float> want = rank_.run(tokens_);
  for (int32_t workers : {1, 2}) {
    snug_io io = rank_.io(tokens_);
    io.parallel = test::thread_executor;
    io.parallel_context = &workers;
    ASSERT_EQ(snug_bind(rank_.plan, rank_.weights, &io, &binding_, nullptr), SNUG_OK);
    ASSERT_EQ(snug_run(&binding_, nullptr, nullptr), SNUG_OK);
    EXPECT_EQ(rank_.output, want) << workers << " workers";
  }
}

TEST_F(Bound, AnUpdatedExpertIsSeenByTheNextRun) {
  const std::vector<float> before = rank_.run(tokens_);
  ASSERT_EQ(bind(rank_, rank_, nullptr), SNUG_OK);
  LayerSpec other = spec_;
  other.prefix = "other.layers.";  // other names, so other noise
  const TempDir dir;
  const CheckpointHandle second = test::open_tensors(dir, test::make_weights(other));
  Rank updated(caps_, "cpu");
  updated.load(second);
  std::memcpy(rank_.storage().data(), updated.storage().data(), rank_.storage().nbytes());
  ASSERT_EQ(snug_run(&binding_, nullptr, nullptr), SNUG_OK);
  EXPECT_EQ(rank_.output, updated.run(tokens_));
  EXPECT_GT(relative_error(rank_.output, before), 0.1);
}

// bf16 output is the f32 output rounded once; the f32 sums are the same.
TEST_F(Bound, Bf16OutputIsTheRoundedF32Output) {
  const std::vector<float> wide = rank_.run(tokens_);
  snug_caps narrow_caps = caps_;
  narrow_caps.output_dtype = SNUG_BF16;
  Rank narrow(narrow_caps, "cpu");
  narrow.load(checkpoint_);
  std::vector<bf16> y(wide.size());
  snug_io io = narrow.io(tokens_);
  io.output = y.data();
  ASSERT_EQ(snug_bind(narrow.plan, narrow.weights, &io, &binding_, nullptr), SNUG_OK);
  ASSERT_EQ(snug_run(&binding_, nullptr, nullptr), SNUG_OK);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i].bits, f32_to_bf16(wide[i]).bits) << i;
}

// With the weight on the input, a weight of 1 changes nothing and a weight of 0 leaves silu(0) = 0.
TEST_F(Bound, RouterWeightOnInput) {
  snug_caps one = caps_;
  one.top_k = 1;
  Tokens tokens(one);
  for (float& w : tokens.weights) w = 1;
  Rank plain(one, "cpu");
  plain.load(checkpoint_);
  const std::vector<float> want = plain.run(tokens);
  one.router_weight_on_input = 1;
  Rank on_input(one, "cpu"), judge(one, "reference");
  on_input.load(checkpoint_);
  judge.load(checkpoint_);
  EXPECT_EQ(on_input.run(tokens), want);
  for (float& w : tokens.weights) w = 0.5f;
  const std::vector<float> scaled = on_input.run(tokens);
  EXPECT_GT(relative_error(scaled, want), 0.1);
  EXPECT_LE(relative_error(scaled, judge.run(tokens)), 1e-6);
  for (float& w : tokens.weights) w = 0;
  for (const float v : on_input.run(tokens)) ASSERT_EQ(v, 0.0f);
}

}  // namespace
}  // namespace snug
