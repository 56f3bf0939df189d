// SPDX-License-Identifier: Apache-2.0
// The reference geometry: how a Marlin-class W4A16 engine sizes its scratch, as a pricing model.
// It never runs. `snug plan --compare` shows it beside our own price, and its published byte counts
// pin our understanding of such an engine.
//
//   arena   | router buffers, padded to 16 | core buffers of the dearest core token count |
#pragma once

#include <cstdint>
#include <optional>

#include "base/dtype.h"
#include "base/result.h"
#include "geometry/route_tiles.h"
#include "moe/activation.h"

namespace snug {

/// How the reference engine prepared its weights; decides which small-batch kernels exist.
enum class ReferenceLayout : int32_t {
  modelopt = 0,  // the source tensors, in place
  packed = 1,    // repacked for mma.sync
  trellis = 2,   // full-rotation trellis codes: f16 caches, one pinned block, extra buffers
};
inline constexpr int kNumReferenceLayouts = 3;

enum class ReferenceScales : int32_t { e4m3_k16 = 0, e8m0_k32 = 1 };

/// What the reference planner is asked to price.
struct ReferenceCaps {
  static constexpr int kMaxCoreTokens = 8;

  int64_t max_tokens = 1;    // 0..2^24; 0 is planned as 1
  int32_t top_k = 1;         // 1..32
  int32_t num_experts = 1;   // 1..4096; the global count when expert_parallel
  int32_t hidden = 0;        // 1..2^17
  int32_t intermediate = 0;  // 1..2^17, this rank's share
  int32_t num_sms = 1;       // 1..4096
  ActivationKind activation = ActivationKind::silu;  // silu, relu2, swiglu_oai or situ
  DType io = DType::bf16;                            // bf16 or f16
  ReferenceLayout layout = ReferenceLayout::modelopt;
  ReferenceScales scales = ReferenceScales::e4m3_k16;
  std::optional<int32_t> route_experts;      // router's experts; none: num_experts; 0: no
                                             // router buffers
  std::optional<int32_t> block;              // a pin, one of kRouteTiles
  int32_t num_core_tokens = 0;               // how many of core_tokens are given
  int64_t core_tokens[kMaxCoreTokens] = {};  // further token counts to plan for
  bool router_weight_on_input = false;
  std::optional<float> swiglu_limit;  // positive, finite; silu and swiglu_oai only
  std::optional<DType> logits_dtype;  // router logits; none: io
  bool expert_parallel = false;       // the EP planner: plain caches in bf16, no
                                      // router buffers, no pin, modelopt layout only
  bool unbounded = false;             // the older sweep over all five blocks
};

/// One buffer of the arena; `offset` counts from the start of its part (router or core).
struct ReferenceBuffer {
  const char* name;  // static storage
  int64_t count;     // elements
  DType dtype;
  int64_t offset;  // bytes

  constexpr int64_t nbytes() const { return count * dtype_nbytes(dtype); }
};

/// The price with everything it is made of. A value: no heap, trivially copyable.
struct ReferencePlan {
  static constexpr int kMaxBuffers = 13;
  static constexpr int kMaxRouteBuffers = 4;
  static constexpr int kMaxCoreTokens = ReferenceCaps::kMaxCoreTokens + 2;

  int64_t total = 0;  // bytes of the arena = route + core, at least 1
  int64_t core = 0;   // bytes of the dearest core
  int64_t route = 0;  // bytes of the router part
  int32_t num_core_tokens = 0;
  int64_t core_tokens[kMaxCoreTokens] = {};  // the token counts that were planned
  RouteBlocks blocks;                        // of the dearest core
  int32_t num_buffers = 0;
  ReferenceBuffer buffers[kMaxBuffers] = {};  // of the dearest core, ascending offsets
  int32_t num_route_buffers = 0;
  ReferenceBuffer route_buffers[kMaxRouteBuffers] = {};
};

/// f32 elements of a partial-sum plane: one value per output of every slot, but never more than the
/// lock slots hold (4 resident CTAs per SM, tiles of `block` rows by 256 columns). Doubled for
/// block 8, whose partial tiles still have 16 rows.
constexpr int64_t reference_partial_elements(int64_t columns, int64_t slots, int64_t block,
                                             int64_t num_sms) {
  const int64_t plane = min_of<int64_t>(columns * slots, 4 * num_sms * block * 256);
  return max_of<int64_t>(block == 8 ? 2 * plane : plane, 1);
}

/// Prices the reference arena of `caps`. Host arithmetic only: no device, no allocation.
/// Errors: invalid_argument naming the field: a size out of its range, a block pin outside
/// kRouteTiles, a limit where the activation takes none, a pin together with `unbounded` or the
/// trellis layout together with `unbounded` (both leave no sweep), and any field that
/// `expert_parallel` does not have, set.
Result<ReferencePlan> plan_reference(const ReferenceCaps& caps);

}  // namespace snug
