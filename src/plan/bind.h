// SPDX-License-Identifier: Apache-2.0
// bind: a plan, prepared weights and the caller's memory -> a checked binding. It only looks; it
// writes and allocates nothing. What it accepts, run performs.
#pragma once

#include <cstdint>

#include "geometry/packed_weights.h"
#include "plan/plan.h"

namespace snug {

/// Runs `body` on up to `num_workers` workers that all make progress at the same time, and returns
/// when all have ended. `body` gets worker 0..n-1 and the number n of workers that really run.
struct Executor {
  using Body = void (*)(void* argument, int32_t worker, int32_t num_workers);
  void (*parallel)(void* context, int32_t num_workers, Body body, void* argument) = nullptr;
  void* context = nullptr;
};

/// Prepared weights of one layer and rank; the caller owns the bytes.
struct WeightsView {
  PackedLayout layout;
  const uint8_t* data = nullptr;  // [num_local_experts, layout.expert_nbytes], 64-byte aligned
};

/// The caller's memory of one call. Inputs are never written. Strides count elements.
struct IoView {
  int64_t num_tokens = 0;
  const void* x = nullptr;         // bf16[num_tokens, hidden]
  int64_t x_stride = 0;            // >= hidden
  const void* topk_ids = nullptr;  // s32 or s64 [num_tokens, top_k], global ids
  DType ids_dtype = DType::s32;
  int64_t ids_stride = 0;              // >= top_k
  const void* topk_weights = nullptr;  // f32 or bf16 [num_tokens, top_k]
  DType weights_dtype = DType::f32;
  int64_t weights_stride = 0;           // >= top_k
  const int32_t* expert_map = nullptr;  // s32[num_experts] -> local id or -1; null = identity
  bool allow_replicas = false;          // several experts may map to one local expert
  void* output = nullptr;               // output_dtype[num_tokens, hidden], overwritten
  int64_t output_stride = 0;            // >= hidden
  void* arena = nullptr;                // arena_nbytes bytes, kArenaAlignment-aligned
  uint64_t arena_nbytes = 0;
};

/// Everything run needs. Trivially copyable; refers to the caller's memory.
struct Bound {
  Caps caps;
  Schedule schedule;
  WeightsView weights;
  IoView io;
  Executor executor;  // parallel == null: the backend's own
};

/// Checks and combines. Errors name the argument: null or misaligned pointers, strides that are
/// too small, dtypes, num_tokens above max_tokens, an arena below required_nbytes, weights of
/// another layout or shape, a bad expert map, and an output or arena that overlaps an input or the
/// other. With zero tokens no pointer is looked at.
Status bind(const Plan& plan, const WeightsView& weights, const IoView& io,
            const Executor& executor, Bound* bound);

}  // namespace snug
