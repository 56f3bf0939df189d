// SPDX-License-Identifier: Apache-2.0
#include "plan/reference_geometry.h"

#include <cmath>

#include "base/integers.h"
#include "moe/shape.h"

namespace snug {

namespace {

constexpr int64_t kAlignment = 16;
constexpr RouteBlocks kAllBlocks = {{8, 16, 32, 48, 64}, kNumRouteTiles};
// Largest token counts of the reference engine's small-batch kernels.
constexpr int64_t kDirectMaxTokens = 6;      // packed layout, plain
constexpr int64_t kTensorCoreMaxTokens = 8;  // packed layout, gated bf16
constexpr int64_t kMicroMaxTokens = 8;       // modelopt layout
constexpr int64_t kMicroMaxRoutes = 64;      // its default switch to the dynamic path

Status check_field(const char* name, int64_t have, int64_t low, int64_t high) {
  if (have >= low && have <= high) return {};
  return make_error(Code::invalid_argument, "%s: have %lld, need %lld..%lld", name,
                    static_cast<long long>(have), static_cast<long long>(low),
                    static_cast<long long>(high));
}

Status check_sizes(const ReferenceCaps& c) {
  SNUG_RETURN_IF_ERROR(check_field("max_tokens", c.max_tokens, 0, kMaxTokens));
  SNUG_RETURN_IF_ERROR(check_field("top_k", c.top_k, 1, kMaxTopK));
  SNUG_RETURN_IF_ERROR(check_field("num_experts", c.num_experts, 1, kMaxExperts));
  SNUG_RETURN_IF_ERROR(check_field("hidden", c.hidden, 1, kMaxWidth));
  SNUG_RETURN_IF_ERROR(check_field("intermediate", c.intermediate, 1, kMaxWidth));
  SNUG_RETURN_IF_ERROR(check_field("num_sms", c.num_sms, 1, 4096));
  SNUG_RETURN_IF_ERROR(check_field("route_experts", c.route_experts.value_or(0), 0, kMaxExperts));
  SNUG_RETURN_IF_ERROR(
      check_field("layout", static_cast<int>(c.layout), 0, kNumReferenceLayouts - 1));
  SNUG_RETURN_IF_ERROR(check_field("scales", static_cast<int>(c.scales), 0, 1));
  SNUG_RETURN_IF_ERROR(
      check_field("num_core_tokens", c.num_core_tokens, 0, ReferenceCaps::kMaxCoreTokens));
  for (int i = 0; i < c.num_core_tokens; ++i) {
    SNUG_RETURN_IF_ERROR(check_field("core_tokens", c.core_tokens[i], 0, kMaxTokens));
  }
  return {};
}

bool takes_limit(ActivationKind kind) {
  return kind == ActivationKind::silu || kind == ActivationKind::swiglu_oai;
}

Status check_types(const ReferenceCaps& c) {
  const bool known = takes_limit(c.activation) || c.activation == ActivationKind::situ ||
                     c.activation == ActivationKind::relu2;
  if (!known) {
    return make_error(Code::invalid_argument,
                      "activation: have %s, the reference has silu, relu2, swiglu_oai and situ",
                      activation_name(c.activation));
  }
  if (c.swiglu_limit && !takes_limit(c.activation)) {
    return make_error(Code::invalid_argument, "swiglu_limit: have %g, %s takes none",
                      static_cast<double>(*c.swiglu_limit), activation_name(c.activation));
  }
  if (c.swiglu_limit && !(std::isfinite(*c.swiglu_limit) && *c.swiglu_limit > 0)) {
    return make_error(Code::invalid_argument, "swiglu_limit: have %g, need a positive finite value",
                      static_cast<double>(*c.swiglu_limit));
  }
  if (c.io != DType::bf16 && c.io != DType::f16) {
    return make_error(Code::invalid_argument, "io: have %s, need bf16 or f16", dtype_name(c.io));
  }
  const DType logits = c.logits_dtype.value_or(c.io);
  if (logits != DType::bf16 && logits != DType::f16 && logits != DType::f32) {
    return make_error(Code::invalid_argument, "logits_dtype: have %s, need bf16, f16 or f32",
                      dtype_name(logits));
  }
  return {};
}

Status check_blocks(const ReferenceCaps& c) {
  if (c.block && !is_route_tile(*c.block)) {
    return make_error(Code::invalid_argument, "block: have %d, need 8, 16, 32, 48 or 64", *c.block);
  }
  if (c.unbounded && c.block) {
    return make_error(Code::invalid_argument,
                      "unbounded: a pin (block %d) leaves no blocks to sweep", *c.block);
  }
  if (c.unbounded && c.layout == ReferenceLayout::trellis) {
    return make_error(Code::invalid_argument, "unbounded: the trellis layout always pins a block");
  }
  return {};
}

Status check_expert_parallel(const ReferenceCaps& c) {
  const char* field = nullptr;
  if (c.block) field = "block";
  if (c.route_experts) field = "route_experts";
  if (c.num_core_tokens != 0) field = "num_core_tokens";
  if (c.logits_dtype) field = "logits_dtype";
  if (c.router_weight_on_input) field = "router_weight_on_input";
  if (c.layout != ReferenceLayout::modelopt) field = "layout";
  if (c.io != DType::bf16) field = "io";
  if (field == nullptr) return {};
  return make_error(Code::invalid_argument, "%s: expert_parallel plans have no such choice", field);
}

int64_t fc1_columns(const ReferenceCaps& c) {
  return int64_t{fc1_rows_per_element(c.activation)} * c.intermediate;
}

/// Appends buffers at aligned offsets. `end` is the end of the last one, not rounded.
struct Layout {
  ReferenceBuffer* buffers;
  int32_t* count;
  int64_t end = 0;

  void add(const char* name, int64_t elements, DType dtype) {
    const int64_t offset = align_up(end, kAlignment);
    buffers[*count] = {name, elements, dtype, offset};
    end = offset + buffers[*count].nbytes();
    ++*count;
  }
};

/// What the grouped GEMMs and the routing of one core need, in elements.
struct CoreSizes {
  int64_t fc1_partials = 1;
  int64_t fc2_partials = 1;
  int64_t route_slots = 1;
  int64_t route_blocks = 1;

  void price_partials(const ReferenceCaps& c, int64_t slots, int64_t block) {
    fc1_partials =
        max_of(fc1_partials, reference_partial_elements(fc1_columns(c), slots, block, c.num_sms));
    fc2_partials =
        max_of(fc2_partials, reference_partial_elements(c.hidden, slots, block, c.num_sms));
  }
  void price_routes(int64_t slots, int64_t block) {
    route_slots = max_of(route_slots, slots);
    route_blocks = max_of(route_blocks, ceil_div(slots, block));
  }
};

/// One core: `tokens` already bucketed, `pin` 0 when none.
struct CoreProblem {
  const ReferenceCaps& caps;
  int64_t tokens;
  int32_t pin;
  int32_t route_experts;  // whose slots are counted: the router's for trellis, else the weights'

  int64_t num_routes() const { return tokens * caps.top_k; }
  int32_t block_of(int64_t num_tokens) const {
    return pin != 0 ? pin : select_route_block_size(num_tokens, caps.top_k, route_experts);
  }
  bool tensor_core_decode() const {
    return caps.layout == ReferenceLayout::packed && caps.io == DType::bf16 &&
           is_gated(caps.activation);
  }
  RouteBlocks blocks() const {
    if (pin != 0) return {{pin}, 1};
    if (caps.unbounded) return kAllBlocks;
    return route_block_sizes_for_capacity(tokens, caps.top_k, route_experts);
  }
};

/// Slots of the packed layout's direct kernels at `block`: they pad every route by itself. Their
/// token counts lie within p.tokens, so their blocks lie within p.blocks().
int64_t direct_slots(const CoreProblem& p, int64_t block) {
  if (p.caps.layout != ReferenceLayout::packed) return 0;
  const int64_t most = p.tensor_core_decode() ? kTensorCoreMaxTokens : kDirectMaxTokens;
  int64_t slots = 0;
  for (int64_t m = 1; m <= min_of(p.tokens, most); ++m) {
    if (p.block_of(m) == block) slots = m * p.caps.top_k * block;
  }
  return slots;
}

CoreSizes size_core(const CoreProblem& p, const RouteBlocks& blocks) {
  CoreSizes sizes;
  for (const int32_t block : blocks) {
    const int64_t slots = max_packed_slots(p.num_routes(), block, p.route_experts);
    sizes.price_routes(slots, block);
    sizes.price_partials(p.caps, max_of(slots, direct_slots(p, block)), block);
  }
  return sizes;
}

/// Whether the modelopt layout's decode kernel may take `tokens` tokens.
bool micro_kernel_fits(const ReferenceCaps& c, int64_t tokens) {
  if (c.io != DType::bf16 || c.layout != ReferenceLayout::modelopt) return false;
  if (c.router_weight_on_input || tokens > kMicroMaxTokens) return false;
  if (c.hidden % 128 != 0 || ceil_div(c.hidden, 512) > 12 || c.intermediate % 16 != 0) return false;
  if (c.scales == ReferenceScales::e4m3_k16) return true;
  const int64_t chunks = ceil_div(c.intermediate / 2, 128);
  return c.intermediate % 32 == 0 && (chunks == 1 || c.intermediate % 256 == 0);
}

/// Elements of the second cache: the activated rows, or the decode kernel's u32 chunks of 128 for
/// every 256 values where those are larger.
int64_t second_cache_elements(const ReferenceCaps& c, int64_t tokens) {
  const int64_t rows = tokens * c.top_k * c.intermediate;
  if (!micro_kernel_fits(c, tokens)) return rows;
  const int64_t words = tokens * c.top_k * ceil_div(c.intermediate / 2, 128) * 128;
  return max_of(rows, ceil_div(words * 4, dtype_nbytes(c.io)));
}

void add_common_buffers(Layout& out, const ReferenceCaps& c, int64_t cache_routes,
                        int64_t second_cache, DType cache_dtype, const CoreSizes& sizes,
                        int32_t route_experts) {
  out.add("intermediate_cache13", cache_routes * max_of<int64_t>(fc1_columns(c), c.hidden),
          cache_dtype);
  out.add("intermediate_cache2", second_cache, cache_dtype);
  out.add("fc1_c_tmp", sizes.fc1_partials, DType::f32);
  out.add("fc2_c_tmp", sizes.fc2_partials, DType::f32);
  out.add("packed_route_indices", sizes.route_slots, DType::s32);
  out.add("block_expert_ids", sizes.route_blocks, DType::s32);
  out.add("packed_route_count", 1, DType::s32);
  out.add("expert_offsets", route_experts + 1, DType::s32);
}

/// Lays the core of `p` out into `plan`, which holds nothing of another core.
void lay_out_core(const CoreProblem& p, ReferencePlan& plan) {
  const ReferenceCaps& c = p.caps;
  const bool trellis = c.layout == ReferenceLayout::trellis;
  plan.blocks = p.blocks();
  plan.num_buffers = 0;
  Layout out{plan.buffers, &plan.num_buffers};
  add_common_buffers(out, c, p.num_routes(), second_cache_elements(c, p.tokens),
                     trellis ? DType::f16 : c.io, size_core(p, plan.blocks), p.route_experts);
  if (trellis) {
    out.add("expert_counts", p.route_experts, DType::s32);
    out.add("full_rotation_output", p.tokens * c.hidden, DType::f32);
    out.add("rotation_a_gate", p.num_routes() * c.hidden, DType::f16);
    out.add("rotation_a_up", p.num_routes() * c.hidden, DType::f16);
    out.add("kernel_workspace", int64_t{c.num_sms} * 4 + 2, DType::s32);
  }
  plan.core = out.end;
}

/// Appends a token count unless it is there.
void add_tokens(ReferencePlan& plan, int64_t tokens) {
  for (int i = 0; i < plan.num_core_tokens; ++i) {
    if (plan.core_tokens[i] == tokens) return;
  }
  plan.core_tokens[plan.num_core_tokens++] = tokens;
}

/// The token counts whose cores are compared: the capacity, the caller's own, and the edge where
/// the reference engine switches between its small kernels.
void choose_core_tokens(const ReferenceCaps& c, ReferencePlan& plan) {
  const auto planned = [&c](int64_t tokens) {
    tokens = max_of<int64_t>(tokens, 1);
    return c.layout == ReferenceLayout::trellis ? tokens : token_bucket(tokens);
  };
  const int64_t top = planned(c.max_tokens);
  bool top_given = false;
  for (int i = 0; i < c.num_core_tokens; ++i) top_given |= planned(c.core_tokens[i]) == top;
  if (!top_given) add_tokens(plan, top);
  for (int i = 0; i < c.num_core_tokens; ++i) add_tokens(plan, planned(c.core_tokens[i]));
  // At least 64 / 32 tokens, so there always is such an edge.
  add_tokens(plan, planned(min_of(top, kMicroMaxRoutes / c.top_k)));
}

void lay_out_router(const ReferenceCaps& c, ReferencePlan& plan) {
  const int64_t experts = c.route_experts.value_or(c.num_experts);
  if (experts == 0) return;
  const int64_t tokens = max_of<int64_t>(c.max_tokens, 1);
  const int64_t routes = tokens * c.top_k;
  Layout out{plan.route_buffers, &plan.num_route_buffers};
  out.add("router_logits", tokens * experts, c.logits_dtype.value_or(c.io));
  out.add("topk_logits", routes, DType::f32);
  out.add("topk_ids", routes, DType::s32);
  out.add("topk_weights", routes, DType::f32);
  plan.route = align_up(out.end, kAlignment);
}

ReferencePlan plan_fused(const ReferenceCaps& c) {
  ReferencePlan best;
  choose_core_tokens(c, best);
  lay_out_router(c, best);
  const bool trellis = c.layout == ReferenceLayout::trellis;
  const int32_t router = c.route_experts.value_or(0);
  const int32_t route_experts = trellis && router != 0 ? router : c.num_experts;
  int32_t pin = c.block.value_or(0);
  if (pin == 0 && trellis) {
    int64_t most = 0;
    for (int i = 0; i < best.num_core_tokens; ++i) most = max_of(most, best.core_tokens[i]);
    pin = select_route_block_size(most, c.top_k, route_experts);
  }
  for (int i = 0; i < best.num_core_tokens; ++i) {
    ReferencePlan candidate = best;
    lay_out_core({c, best.core_tokens[i], pin, route_experts}, candidate);
    if (candidate.core > best.core) best = candidate;
  }
  best.total = best.route + best.core;
  return best;
}

/// The EP planner: exact rows in the caches, bucketed rows in everything else, a padded end.
ReferencePlan plan_expert_parallel(const ReferenceCaps& c) {
  ReferencePlan plan;
  const int64_t tokens = max_of<int64_t>(c.max_tokens, 1);
  add_tokens(plan, tokens);
  const CoreProblem problem{c, tokens, 0, c.num_experts};
  plan.blocks = problem.blocks();
  CoreSizes sizes;
  for (const int32_t block : plan.blocks) {
    const int64_t slots = max_packed_slots(token_bucket(tokens) * c.top_k, block, c.num_experts);
    sizes.price_routes(slots, block);
    sizes.price_partials(c, slots, block);
  }
  Layout out{plan.buffers, &plan.num_buffers};
  const int64_t routes = problem.num_routes();
  add_common_buffers(out, c, routes, routes * c.intermediate, DType::bf16, sizes, c.num_experts);
  plan.core = align_up(out.end, kAlignment);
  plan.total = plan.core;
  return plan;
}

}  // namespace

Result<ReferencePlan> plan_reference(const ReferenceCaps& caps) {
  SNUG_RETURN_IF_ERROR(check_sizes(caps));
  SNUG_RETURN_IF_ERROR(check_types(caps));
  SNUG_RETURN_IF_ERROR(check_blocks(caps));
  if (!caps.expert_parallel) return plan_fused(caps);
  SNUG_RETURN_IF_ERROR(check_expert_parallel(caps));
  return plan_expert_parallel(caps);
}

}  // namespace snug
