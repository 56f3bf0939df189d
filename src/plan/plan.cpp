// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/integers.h"
#include "geometry/route_tiles.h"

namespace snug {

static_assert(std::is_trivially_copyable_v<Plan>);

namespace {

constexpr double kTolerance = 1.02;
constexpr double kToleranceAboveExpected = 1.10;

/// One decision point: its candidates, fastest first, and the token count they are priced for.
struct Point {
  int64_t tokens = 0;       // of the grid; the last one may lie above max_tokens
  int64_t live_tokens = 0;  // min(tokens, max_tokens)
  std::vector<Candidate> candidates;
};

uint64_t price(const Caps& caps, const KernelFamily& family, const Policy& policy,
               int64_t live_tokens) {
  return lay_out_arena(caps, family, policy, min_of(policy.chunk_tokens, live_tokens))
      .required_nbytes;
}

Status no_family(const Plan& plan) {
  std::string reasons;
  for (int32_t f = 0; f < plan.num_families; ++f) {
    // Of forced paths only the one that was asked for has something to say.
    const bool other_path = plan.families[f].machine == Machine::cpu &&
                            plan.caps.cpu_path != CpuPath::automatic &&
                            plan.families[f].min_arch != static_cast<int32_t>(plan.caps.cpu_path);
    if (other_path) continue;
    reasons.append(reasons.empty() ? "" : "; ").append(plan.families[f].name).append(" ");
    reasons.append(plan.verdicts[f].reason);
  }
  return make_error(Code::unsupported, "no kernel for this layer on %s: %s", plan.device.name,
                    reasons.empty() ? "this backend has no kernels" : reasons.c_str());
}

/// With batch_invariant one family serves every count: the fastest at the last point.
void keep_one_family(const std::vector<Point>& points, bool* accepted) {
  const int32_t best = points.back().candidates.front().policy.family;
  for (int32_t f = 0; f < kMaxFamilies; ++f) accepted[f] = accepted[f] && f == best;
}

std::vector<Point> weigh(const Plan& plan, const bool* accepted, bool limited) {
  const std::span families(plan.families, static_cast<size_t>(plan.num_families));
  std::vector<Point> points;
  for (const int64_t tokens : decision_points(plan.caps, families)) {
    points.push_back({tokens, min_of(tokens, plan.caps.max_tokens),
                      candidates_at(plan.caps, plan.device, families, accepted, limited, tokens)});
  }
  return points;
}

/// The fewest bytes with which this point stays within `tolerance` of its fastest policy.
uint64_t arena_within(const Plan& plan, const Point& point, double tolerance) {
  uint64_t best = ~uint64_t{0};
  const double limit = point.candidates.front().us * tolerance;
  for (const Candidate& c : point.candidates) {
    if (c.us > limit) break;
    best =
        min_of(best, price(plan.caps, plan.families[c.policy.family], c.policy, point.live_tokens));
  }
  return best;
}

/// The smallest arena that keeps the promise at every point: 2%, or 10% at points that decide only
/// for counts above expected_tokens.
uint64_t wanted_arena(const Plan& plan, const std::vector<Point>& points) {
  const int64_t expected =
      plan.caps.expected_tokens > 0 ? plan.caps.expected_tokens : plan.caps.max_tokens;
  uint64_t nbytes = 0;
  int64_t before = 0;  // a point is strict when it also decides for a count within `expected`
  for (const Point& point : points) {
    const double tolerance = before < expected ? kTolerance : kToleranceAboveExpected;
    nbytes = max_of(nbytes, arena_within(plan, point, tolerance));
    before = point.tokens;
  }
  return nbytes;
}

/// The smallest arena with which every point has a policy at all: one token at a time.
uint64_t feasible_arena(const Plan& plan, const std::vector<Point>& points) {
  uint64_t nbytes = 0;
  for (const Point& point : points) {
    uint64_t best = ~uint64_t{0};
    for (const Candidate& c : point.candidates) {
      if (c.policy.chunk_tokens > 1) continue;
      best = min_of(best, price(plan.caps, plan.families[c.policy.family], c.policy, 1));
    }
    nbytes = max_of(nbytes, best);
  }
  return nbytes;
}

const Candidate& fastest_within(const Plan& plan, const Point& point, uint64_t nbytes) {
  for (const Candidate& c : point.candidates) {
    const KernelFamily& family = plan.families[c.policy.family];
    if (price(plan.caps, family, c.policy, point.live_tokens) <= nbytes) return c;
  }
  SNUG_ASSERT(!"a feasible size has a candidate at every point");
  return point.candidates.front();
}

bool same_work(const Regime& regime, const Policy& next) {
  const Policy& p = regime.policy;
  const bool both_whole =
      p.chunk_tokens >= regime.last_tokens && next.chunk_tokens > p.chunk_tokens;
  return p.family == next.family && p.route_tile == next.route_tile &&
         p.column_block == next.column_block && (p.chunk_tokens == next.chunk_tokens || both_whole);
}

/// Appends the counts up to `point` under `policy`, joining them to the last regime if it does the
/// same work.
void append(Plan& plan, const Point& point, const Policy& policy) {
  const bool whole = policy.chunk_tokens >= point.tokens;
  if (plan.num_regimes > 0) {
    Regime& last = plan.regimes[plan.num_regimes - 1];
    const bool joins =
        same_work(last, policy) && (whole || last.policy.chunk_tokens == policy.chunk_tokens);
    if (joins) {
      last.last_tokens = point.live_tokens;
      last.policy.chunk_tokens = min_of(policy.chunk_tokens, plan.caps.max_tokens);
      return;
    }
  }
  SNUG_ASSERT(plan.num_regimes < kMaxRegimes);
  Regime& regime = plan.regimes[plan.num_regimes];
  regime.first_tokens =
      plan.num_regimes > 0 ? plan.regimes[plan.num_regimes - 1].last_tokens + 1 : 1;
  regime.last_tokens = point.live_tokens;
  // Member by member: a policy's own padding would differ from plan to plan.
  regime.policy.family = policy.family;
  regime.policy.route_tile = policy.route_tile;
  regime.policy.column_block = policy.column_block;
  regime.policy.chunk_tokens = min_of(policy.chunk_tokens, plan.caps.max_tokens);
  ++plan.num_regimes;
}

/// Bytes of a regime at its worst count, which is its last: sizes only grow within a regime.
uint64_t price(const Plan& plan, const Regime& regime) {
  return price(plan.caps, plan.families[regime.policy.family], regime.policy, regime.last_tokens);
}

/// Chooses each point's fastest policy within `nbytes` and prices what that needs.
void choose_regimes(Plan& plan, const std::vector<Point>& points, uint64_t nbytes) {
  for (const Point& point : points) append(plan, point, fastest_within(plan, point, nbytes).policy);
  for (int32_t r = 0; r < plan.num_regimes; ++r) {
    plan.required_nbytes = max_of(plan.required_nbytes, price(plan, plan.regimes[r]));
  }
}

Status choose_within_limit(Plan& plan, const bool* accepted) {
  const std::vector<Point> points = weigh(plan, accepted, true);
  const uint64_t feasible = feasible_arena(plan, points);
  if (feasible > plan.caps.arena_limit) {
    return make_error(Code::arena_too_small,
                      "arena_limit: have %llu, the smallest arena for this layer is %llu",
                      static_cast<unsigned long long>(plan.caps.arena_limit),
                      static_cast<unsigned long long>(feasible));
  }
  choose_regimes(plan, points, plan.caps.arena_limit);
  return {};
}

/// Copies the members and leaves the padding of `to` as it is. A new member breaks the binding.
void copy_members(const Caps& from, Caps& to) {
  const auto& [shape, format, activation, has_bias, router_weight_on_input, batch_invariant,
               output_dtype, numerics, max_tokens, expected_tokens, arena_limit, route_tile_pin,
               num_threads, cpu_path] = from;
  to.shape = shape;
  to.format = format;
  to.activation = activation;
  to.has_bias = has_bias;
  to.router_weight_on_input = router_weight_on_input;
  to.batch_invariant = batch_invariant;
  to.output_dtype = output_dtype;
  to.numerics = numerics;
  to.max_tokens = max_tokens;
  to.expected_tokens = expected_tokens;
  to.arena_limit = arena_limit;
  to.route_tile_pin = route_tile_pin;
  to.num_threads = num_threads;
  to.cpu_path = cpu_path;
}

/// Fills `plan` in place: its padding bytes were zeroed, so equal inputs give equal bytes.
Status fill_plan(Plan& plan) {
  bool accepted[kMaxFamilies] = {};
  bool any = false;
  for (int32_t f = 0; f < plan.num_families; ++f) {
    plan.verdicts[f] = judge_family(plan.caps, plan.device, plan.families[f]);
    accepted[f] = plan.verdicts[f].accepted();
    any = any || accepted[f];
  }
  if (!any) return no_family(plan);

  std::vector<Point> points = weigh(plan, accepted, false);
  if (points.back().candidates.empty()) return no_family(plan);
  if (plan.caps.batch_invariant) {
    keep_one_family(points, accepted);
    points = weigh(plan, accepted, false);
  }
  const uint64_t wanted = wanted_arena(plan, points);
  const Policy& unlimited = fastest_within(plan, points.back(), wanted).policy;
  plan.unlimited_us = predict(plan.caps, plan.device, plan.families[unlimited.family], unlimited,
                              plan.caps.max_tokens)
                          .us;
  if (plan.caps.arena_limit == 0 || plan.caps.arena_limit >= wanted) {
    choose_regimes(plan, points, wanted);
  } else {
    SNUG_RETURN_IF_ERROR(choose_within_limit(plan, accepted));
  }
  const LayoutTag layout = plan.families[plan.regimes[0].policy.family].layout;
  for (int32_t r = 1; r < plan.num_regimes; ++r) {
    SNUG_ASSERT(plan.families[plan.regimes[r].policy.family].layout == layout);
  }
  plan.weights_nbytes = static_cast<uint64_t>(packed_layout(plan).total_nbytes());
  plan.predicted_us = predict(plan, plan.caps.max_tokens).us;
  return {};
}

}  // namespace

Result<Plan> make_plan(const Caps& caps, const Device& device,
                       std::span<const KernelFamily> families) {
  SNUG_RETURN_IF_ERROR(check_caps(caps));
  SNUG_RETURN_IF_ERROR(check_device(device));
  SNUG_ASSERT(families.size() <= kMaxFamilies);
  Plan plan;
  std::memset(static_cast<void*>(&plan), 0, sizeof plan);
  copy_members(caps, plan.caps);
  std::memcpy(static_cast<void*>(&plan.device), &device, sizeof device);
  for (const KernelFamily& family : families) plan.families[plan.num_families++] = family;
  SNUG_RETURN_IF_ERROR(fill_plan(plan));
  return plan;
}

Result<uint64_t> required_nbytes(const Caps& caps, const Device& device,
                                 std::span<const KernelFamily> families) {
  SNUG_ASSIGN_OR_RETURN(const Plan plan, make_plan(caps, device, families));
  return plan.required_nbytes;
}

PackedLayout packed_layout(const Plan& plan) {
  const KernelFamily& family = plan.families[plan.regimes[0].policy.family];
  return make_packed_layout(family.layout, plan.caps.format, plan.caps.shape,
                            plan.caps.activation.kind, plan.caps.has_bias);
}

Schedule make_schedule(const Plan& plan, int64_t num_tokens) {
  SNUG_ASSERT(num_tokens >= 0 && num_tokens <= plan.caps.max_tokens);
  Schedule s;
  s.num_tokens = num_tokens;
  while (s.regime + 1 < plan.num_regimes && plan.regimes[s.regime].last_tokens < num_tokens) {
    ++s.regime;
  }
  s.policy = plan.regimes[s.regime].policy;
  s.policy.chunk_tokens = min_of(s.policy.chunk_tokens, num_tokens);
  if (num_tokens == 0) return s;

  const KernelFamily& family = plan.families[s.policy.family];
  const MoeShape& shape = plan.caps.shape;
  s.num_chunks = ceil_div(num_tokens, s.policy.chunk_tokens);
  s.chunk_routes = s.policy.chunk_tokens * shape.top_k;
  s.max_tiles = max_packed_slots(s.chunk_routes, s.policy.route_tile, shape.num_local_experts) /
                s.policy.route_tile;
  if (s.policy.column_block > 0) {
    s.column_blocks = static_cast<int32_t>(ceil_div(shape.hidden, s.policy.column_block));
  }
  s.num_workers = family.machine == Machine::cpu    ? plan.caps.num_threads
                  : family.machine == Machine::cuda ? plan.device.num_units
                                                    : 1;
  if (family.machine == Machine::cpu) s.cpu_path = static_cast<CpuPath>(family.min_arch);
  s.layout = lay_out_arena(plan.caps, family, s.policy, s.policy.chunk_tokens);
  return s;
}

Prediction predict(const Plan& plan, int64_t num_tokens) {
  if (num_tokens == 0) return {};
  const Schedule s = make_schedule(plan, num_tokens);
  return predict(plan.caps, plan.device, plan.families[s.policy.family], s.policy, num_tokens);
}

}  // namespace snug
