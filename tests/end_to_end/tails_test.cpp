// SPDX-License-Identifier: Apache-2.0
// Every tail: intermediate x hidden x tokens x activation x format on every instruction-set path,
// arena and output full of NaN, all memory between unmapped pages. The oracle judges a sample of
// rows of the largest call; every smaller call must give the same bits row by row, which ties all
// other rows to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>

#include "end_to_end/random_model.h"

namespace snug::test {
namespace {

constexpr int kIntermediates[] = {16,  32,  48,  112, 144, 176, 192, 208,  224, 312,
                                  352, 464, 480, 496, 512, 704, 928, 1856, 2880};
constexpr int kHiddens[] = {16, 48, 128, 1600, 2688, 2880};
constexpr int64_t kTokens[] = {0, 1, 2, 3, 8, 9, 17, 24, 33};
constexpr int64_t kMostTokens = 129;
constexpr int64_t kJudged[] = {0, 1, 5, 8, 16, 32, 63, 100, 128};  // 5 has an invalid route

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Instrumented code is 10 to 50 times slower: the wide hiddens only with a narrow intermediate.
constexpr int64_t kMostWeights = 1 << 17;
#else
constexpr int64_t kMostWeights = int64_t{1} << 40;
#endif

using Case = std::tuple<int, snug_format>;

class Tails : public testing::TestWithParam<Case> {};

/// The paths that this machine has; the others are named once, so that a skip is seen.
std::vector<int32_t> paths() {
  snug_device here;
  snug_error error = {};
  EXPECT_EQ(snug_device_by_name("cpu", &here, &error), SNUG_OK);
  std::vector<int32_t> have;
  for (int32_t path = SNUG_CPU_PORTABLE; path <= here.arch; ++path) have.push_back(path);
  static const bool kSaid = [&] {
    if (here.arch < SNUG_CPU_AMX) {
      std::printf("SKIPPED here: cpu paths %d..%d (of 1..6)\n", here.arch + 1, SNUG_CPU_AMX);
    }
    return true;
  }();
  (void)kSaid;
  return have;
}

using OracleRows = std::map<int64_t, OracleRow>;

/// One path: the largest call against the oracle, every smaller call against the largest.
void check_path(const RandomModel& model, const snug_caps& caps, const OracleRows& oracle,
                double* worst, int* cases) {
  BoundLayer layer(model, caps, "cpu");
  ASSERT_NE(layer.weights(), nullptr);
  const auto hidden = static_cast<size_t>(caps.hidden);
  const auto name = [&](int64_t token) {
    return "path " + std::to_string(caps.cpu_path) + " hidden " + std::to_string(caps.hidden) +
           " intermediate " + std::to_string(caps.intermediate) + " activation " +
           std::to_string(caps.activation.kind) + " tokens or token " + std::to_string(token);
  };
  const std::vector<float> most = layer.run(kMostTokens);
  for (const float v : most) ASSERT_TRUE(std::isfinite(v));
  for (const auto& [token, want] : oracle) {
    const double error = relative_l2(most.data() + static_cast<size_t>(token) * hidden, want);
    ASSERT_LE(error, 1e-3) << name(token);
    *worst = std::max(*worst, error);
  }
  // With tiles the kernel depends on how many slots an expert has, unless the caller forbids it.
  const bool same_bits = caps.cpu_path != SNUG_CPU_AMX || caps.batch_invariant;
  for (const int64_t tokens : kTokens) {
    const auto edge = tokens % 2 == 0 ? GuardedMemory::Edge::front : GuardedMemory::Edge::back;
    const std::vector<float> y = layer.run(tokens, edge);
    ++*cases;
    if (same_bits) {
      ASSERT_TRUE(std::equal(y.begin(), y.end(), most.begin())) << name(tokens);
      continue;
    }
    for (size_t at = 0; at < y.size(); at += hidden) {
      const auto row = most.begin() + static_cast<ptrdiff_t>(at);
      const std::vector<double> want(row, row + static_cast<ptrdiff_t>(hidden));
      ASSERT_LE(relative_l2(y.data() + at, want), 1e-3) << name(tokens);
    }
  }
  ++*cases;
}

void check_shape(const LayerSpec& spec, double* worst, int* cases) {
  const RandomModel model(spec, kMostTokens);
  for (const snug_activation& activation : all_activations()) {
    OracleRows oracle;
    for (const int64_t token : kJudged) oracle[token] = model.oracle_row(token, activation);
    snug_caps caps = make_caps(spec, activation);
    caps.max_tokens = kMostTokens;
    for (const int32_t path : paths()) {
      caps.cpu_path = path;
      caps.batch_invariant = 0;
      ASSERT_NO_FATAL_FAILURE(check_path(model, caps, oracle, worst, cases));
      if (path != SNUG_CPU_AMX) continue;
      caps.batch_invariant = 1;
      ASSERT_NO_FATAL_FAILURE(check_path(model, caps, oracle, worst, cases));
    }
  }
}

TEST_P(Tails, EveryRowIsRight) {
  const auto [intermediate, format] = GetParam();
  const int group = format == SNUG_MXFP4 ? 32 : 16;
  double worst = 0;
  int cases = 0, refused = 0, left_out = 0;
  for (const int hidden : kHiddens) {
    LayerSpec spec;
    spec.hidden = hidden;
    spec.intermediate = intermediate;
    spec.format = format;
    spec.has_bias = intermediate / 16 % 2 == 1;
    if (hidden % group != 0 || intermediate % group != 0) {
      snug_caps caps = make_caps(spec, {SNUG_SILU, 1, 0, 0});
      caps.max_tokens = 1;
      snug_device device;
      snug_error error = {};
      uint64_t nbytes = 0;
      ASSERT_EQ(snug_device_by_name("cpu", &device, &error), SNUG_OK);
      ASSERT_EQ(snug_required_nbytes(&caps, &device, &nbytes, &error), SNUG_UNSUPPORTED);
      ASSERT_NE(std::strstr(error.message, hidden % group != 0 ? "hidden" : "intermediate"),
                nullptr);
      ++refused;
      continue;
    }
    if (int64_t{hidden} * intermediate > kMostWeights) {
      ++left_out;
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(check_shape(spec, &worst, &cases));
  }
  std::printf(
      "%d cases, worst relative L2 %.2e; %d shapes off the group refused; %d left out under "
      "a sanitizer\n",
      cases, worst, refused, left_out);
}

INSTANTIATE_TEST_SUITE_P(All, Tails,
                         testing::Combine(testing::ValuesIn(kIntermediates),
                                          testing::Values(SNUG_NVFP4, SNUG_MXFP4)),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::string(std::get<1>(info.param) == SNUG_MXFP4 ? "mxfp4_"
                                                                                    : "nvfp4_") +
                                  std::to_string(std::get<0>(info.param));
                         });

// bf16 output adds its own rounding, no more; the reference backend keeps the same contract.
TEST(TailsOutput, Bf16AndReference) {
  for (const snug_format format : {SNUG_NVFP4, SNUG_MXFP4}) {
    LayerSpec spec;
    spec.hidden = 96;
    spec.intermediate = format == SNUG_MXFP4 ? 96 : 80;
    spec.format = format;
    spec.has_bias = true;
    const RandomModel model(spec, 9);
    for (const snug_activation& activation : all_activations()) {
      for (const char* device : {"cpu", "reference"}) {
        for (const int32_t dtype : {SNUG_F32, SNUG_BF16}) {
          snug_caps caps = make_caps(spec, activation);
          caps.max_tokens = 9;
          caps.output_dtype = dtype;
          const std::vector<float> y = BoundLayer(model, caps, device).run(9);
          for (int64_t token = 0; token < 9; ++token) {
            ASSERT_LE(
                relative_l2(y.data() + token * spec.hidden, model.oracle_row(token, activation)),
                dtype == SNUG_F32 ? 1e-3 : 4e-3)
                << device << " " << activation.kind;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace snug::test
