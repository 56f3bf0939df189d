// SPDX-License-Identifier: Apache-2.0
// Caps: everything a plan depends on, besides the device. No environment variable is read.
#pragma once

#include <cstdint>

#include "base/cpu_path.h"
#include "base/dtype.h"
#include "base/status.h"
#include "moe/activation.h"
#include "moe/format.h"
#include "moe/shape.h"

namespace snug {

inline constexpr int32_t kMaxThreads = 1024;

/// How the reference backend computes; other backends always follow `contract`.
enum class Numerics : int32_t {
  contract = 0,           // f32 accumulation, a_j rounded to bf16
  float64 = 1,            // f64 throughout, a_j rounded to bf16: the oracle
  float64_unrounded = 2,  // f64 throughout, no rounding before the output
};
inline constexpr int kNumNumerics = 3;

/// The description of a layer and of its capacity.
struct Caps {
  MoeShape shape;
  Format format = Format::nvfp4;
  Activation activation;
  bool has_bias = false;                // b13 and b2
  bool router_weight_on_input = false;  // multiplies FC1's output; top_k must be 1
  bool batch_invariant = false;         // a token's bits do not depend on the other tokens
  DType output_dtype = DType::bf16;     // bf16 or f32
  Numerics numerics = Numerics::contract;
  int64_t max_tokens = 0;
  int64_t expected_tokens = 0;            // 0 = max_tokens; where the 2% rule is kept strictly
  uint64_t arena_limit = 0;               // bytes; 0 = none
  int32_t route_tile_pin = 0;             // 0 = automatic; else honoured exactly or refused
  int32_t num_threads = 1;                // CPU workers; their private slices are priced
  CpuPath cpu_path = CpuPath::automatic;  // else this path or a refusal
};

/// Checks everything that does not depend on the device; names the argument, what it was and what
/// it may be. hidden and intermediate must be multiples of the format's group.
Status check_caps(const Caps& caps);

}  // namespace snug
