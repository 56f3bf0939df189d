// SPDX-License-Identifier: Apache-2.0
// A plan is a value: regimes of token counts, each with one schedule, and the exact price of the
// arena that holds them all. Host arithmetic only; nothing is guessed at run time.
#pragma once

#include <cstdint>
#include <span>

#include "plan/choose.h"

namespace snug {

inline constexpr int kMaxRegimes = 64;

/// Token counts first..last (inclusive) that share one policy.
struct Regime {
  int64_t first_tokens = 0;
  int64_t last_tokens = 0;
  Policy policy;
};

/// Trivially copyable, self-contained, no pointers: it can be compared, stored and sent to a rank.
struct Plan {
  Caps caps;
  Device device;
  int32_t num_families = 0;
  KernelFamily families[kMaxFamilies];
  Verdict verdicts[kMaxFamilies];
  int32_t num_regimes = 0;
  Regime regimes[kMaxRegimes];
  uint64_t required_nbytes = 0;  // of the arena, exact: no more, no less
  uint64_t weights_nbytes = 0;   // of the prepared weights of this rank
  double predicted_us = 0;       // at max_tokens
  double unlimited_us = 0;       // the same without arena_limit; the ratio is the slowdown
};

/// What one call with `num_tokens` live tokens does: the only source of launch geometry.
struct Schedule {
  int64_t num_tokens = 0;
  int32_t regime = 0;
  Policy policy;  // chunk_tokens is already the live chunk
  int64_t num_chunks = 0;
  int64_t chunk_routes = 0;               // routes of a full chunk
  int64_t max_tiles = 0;                  // route tiles of a chunk, whatever the routing
  int32_t column_blocks = 0;              // FC2 passes; 0 = no rows in memory
  int32_t num_workers = 0;                // CPU threads; CUDA: CTAs of a persistent launch
  CpuPath cpu_path = CpuPath::automatic;  // CPU: the path that runs
  ArenaLayout layout;                     // of a full chunk
};

/// Plans a layer. `families` is one backend's kernel table (at most kMaxFamilies rows).
/// Without arena_limit: the smallest arena whose every decision point is predicted within 2% of
/// its fastest policy (10% above expected_tokens). With it: the fastest policies that fit.
/// Errors: those of check_caps and check_device; unsupported when no family is left, with the
/// first reasons; arena_too_small when arena_limit cannot be met, naming the smallest feasible
/// size.
Result<Plan> make_plan(const Caps& caps, const Device& device,
                       std::span<const KernelFamily> families);

/// The arena bytes of make_plan: same arithmetic, no device, nothing kept.
Result<uint64_t> required_nbytes(const Caps& caps, const Device& device,
                                 std::span<const KernelFamily> families);

/// The layout of the prepared weights that the plan's kernels read: one for all of its regimes.
PackedLayout packed_layout(const Plan& plan);

/// The schedule of a live token count, 0 <= num_tokens <= max_tokens (an assertion: bind checks).
Schedule make_schedule(const Plan& plan, int64_t num_tokens);

/// The prediction for a live token count under the plan's own policy.
Prediction predict(const Plan& plan, int64_t num_tokens);

}  // namespace snug
