// SPDX-License-Identifier: Apache-2.0
// A random layer as a user would hand it over, run through the C ABI in guarded memory, and an
// oracle that shares no code with the library's backends: its own decode, its own loops, float64.
#pragma once

#include <snug/snug.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/guarded_memory.h"

namespace snug::test {

/// Sizes and options of a layer; every seed gives another one.
struct LayerSpec {
  int32_t hidden = 64;
  int32_t intermediate = 32;
  int32_t num_experts = 3;
  int32_t top_k = 2;
  snug_format format = SNUG_NVFP4;
  bool has_bias = false;
  uint32_t seed = 1;
};

/// One projection: random codes, neighbouring groups with different scales.
struct RandomMatrix {
  int64_t rows = 0, k = 0;
  std::vector<uint8_t> codes;   // [rows, k / 2]
  std::vector<uint8_t> scales;  // [rows, k / group]
  std::vector<float> bias;      // [rows] or empty
  float global = 1;
  std::vector<float> dense;  // [rows, k], code * scale; the oracle's decode
};

struct RandomExpert {
  RandomMatrix gate, up, down;
};

/// Inputs of up to max_tokens tokens. Some routes carry ids that contribute nothing, some tokens
/// repeat an expert.
struct RandomInputs {
  std::vector<uint16_t> x;     // bf16 [max_tokens, hidden]
  std::vector<int32_t> ids;    // [max_tokens, top_k]
  std::vector<float> weights;  // [max_tokens, top_k]
};

/// Caps of the spec with an activation; ready for snug_plan_create after max_tokens is set.
snug_caps make_caps(const LayerSpec& spec, snug_activation activation);

/// All activations with customary parameters.
std::vector<snug_activation> all_activations();

/// The C descriptor of an expert; `with_up` for gated activations. Borrows the expert's memory.
snug_expert_source describe(const RandomExpert& expert, snug_format format, bool with_up);

/// An output row in float64, with the contract's bf16 rounding of FC1's output. Where a value lies
/// so near to the middle of two bf16 that f32 arithmetic may round it either way, `ties` has what
/// the other choice would add to the row: both keep the contract.
struct OracleRow {
  std::vector<double> y;                  // [hidden]
  std::vector<std::vector<double>> ties;  // each [hidden]
};

class RandomModel {
 public:
  explicit RandomModel(const LayerSpec& spec, int64_t max_tokens);

  const LayerSpec& spec() const { return spec_; }
  const RandomInputs& inputs() const { return inputs_; }
  RandomInputs& inputs() { return inputs_; }
  const std::vector<RandomExpert>& experts() const { return experts_; }

  /// Keeps only these experts, in this order: a rank's share.
  void keep_experts(const std::vector<int32_t>& kept);

  /// Prepares all experts for a plan; the storage ends at an unmapped page.
  void prepare(const snug_plan* plan, bool gated, GuardedMemory& storage,
               snug_weights** weights) const;

  /// The oracle's FC1 of a route, before the activation: h[2][intermediate], gate then up.
  std::vector<double> oracle_fc1(int64_t token, int32_t expert, bool gated) const;

  /// The oracle's output row of a token.
  OracleRow oracle_row(int64_t token, const snug_activation& activation) const;

 private:
  LayerSpec spec_;
  std::vector<RandomExpert> experts_;
  RandomInputs inputs_;
};

/// A plan and prepared weights on a named device, run in guarded memory.
class BoundLayer {
 public:
  BoundLayer(const RandomModel& model, const snug_caps& caps, const char* device);
  ~BoundLayer();
  BoundLayer(const BoundLayer&) = delete;
  BoundLayer& operator=(const BoundLayer&) = delete;

  const snug_plan* plan() const { return plan_; }
  const snug_weights* weights() const { return weights_; }
  const snug_caps& caps() const { return caps_; }

  /// Runs the first num_tokens tokens; arena and output start as NaN. Returns the output as f32.
  /// Any error fails the test.
  std::vector<float> run(int64_t num_tokens, GuardedMemory::Edge edge = GuardedMemory::Edge::back);

  /// The descriptor of such a call, for tests that change it.
  snug_io make_io(int64_t num_tokens, void* arena, void* output) const;

 private:
  const RandomModel& model_;
  snug_caps caps_;
  snug_plan* plan_ = nullptr;
  std::unique_ptr<GuardedMemory> storage_;
  snug_weights* weights_ = nullptr;
};

/// |have - want|_2 / |want|_2; infinity for NaN.
double relative_l2(const float* have, const std::vector<double>& want);

/// The same against the nearest row that the contract allows.
double relative_l2(const float* have, const OracleRow& want);

}  // namespace snug::test
