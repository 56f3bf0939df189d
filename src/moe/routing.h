// SPDX-License-Identifier: Apache-2.0
// The routing rule: router logits of one token -> top_k distinct expert ids with weights.
// One scalar function, shared by every backend; its ids are the same bits everywhere.
#pragma once

#include <cstdint>
#include <limits>

#include "base/macros.h"
#include "base/status.h"
#include "moe/portable_math.h"

namespace snug {

/// Values are part of the C ABI (snug_score); append only.
enum class Score : int32_t { softmax = 0, sigmoid = 1, sqrt_softplus = 2 };
inline constexpr int kNumScores = 3;

/// How a group of experts is ranked when only some groups may be chosen from.
enum class GroupRank : int32_t { max = 0, top2_sum = 1 };

inline constexpr int kMaxGroups = 64;

/// No unnormalised weight passes sqrt(2^128) = 2^64, so this scale keeps every weight finite.
inline constexpr float kMaxRoutingScale = 0x1p60f;

/// The router of a model. Defaults: softmax over the chosen experts (Qwen3-MoE, Mixtral, gpt-oss).
struct Routing {
  Score score = Score::softmax;
  bool renormalize = true;  // weights of a token sum to `scale`
  int32_t num_groups = 1;   // experts split evenly; 1 = no groups
  int32_t topk_groups = 1;  // groups that stay
  GroupRank group_rank = GroupRank::top2_sum;
  float scale = 1;  // multiplies the weights, once
};

/// Refuses unknown enums, groups that do not divide num_experts, topk_groups out of 1..num_groups,
/// a scale beyond 2^60 or NaN, top_k > num_experts, and groups too small to hold top_k experts.
Status check_routing(const Routing& routing, int32_t num_experts, int32_t top_k);

/// A NaN logit counts as -inf; +inf counts as the largest finite value, so differences stay finite.
SNUG_HD inline float clean_logit(float logit) {
  constexpr float kMax = std::numeric_limits<float>::max();
  if (!(logit == logit)) return -std::numeric_limits<float>::infinity();
  return logit > kMax ? kMax : logit;
}

/// The unnormalised score of a cleaned logit; `max_logit` is the row's maximum (softmax only).
SNUG_HD inline float score_of(Score score, float logit, float max_logit) {
  if (logit == -std::numeric_limits<float>::infinity()) return 0.0f;
  switch (score) {
    case Score::softmax:
      return exp_portable(add_rn(logit, -max_logit));
    case Score::sigmoid: {
      // From e^-|x| so that nothing overflows; both branches are the same function.
      const float u = exp_portable(logit < 0 ? logit : -logit);
      const float d = add_rn(1.0f, u);
      return logit < 0 ? div_rn(u, d) : div_rn(1.0f, d);
    }
    case Score::sqrt_softplus:
      return sqrt_rn(softplus_portable(logit));
  }
  return 0.0f;
}

/// True when candidate (value, id) comes after (last_value, last_id) in the order of choice:
/// larger values first, equal values by lower id.
SNUG_HD inline bool comes_after(float value, int32_t id, float last_value, int32_t last_id) {
  return value < last_value || (value == last_value && id > last_id);
}

/// Bit set of the groups that stay. `choice` holds the selection value of every expert.
SNUG_HD inline uint64_t choose_groups(const Routing& r, int32_t num_experts, const float* choice) {
  constexpr float kNegInf = -std::numeric_limits<float>::infinity();
  if (r.num_groups <= 1) return ~uint64_t{0};
  const int32_t size = num_experts / r.num_groups;
  float rank[kMaxGroups];
  for (int32_t g = 0; g < r.num_groups; ++g) {
    float first = kNegInf, second = kNegInf;
    for (int32_t i = g * size; i < (g + 1) * size; ++i) {
      const float v = choice[i];
      if (v > first) {
        second = first;
        first = v;
      } else if (v > second) {
        second = v;
      }
    }
    const bool sum = r.group_rank == GroupRank::top2_sum && second > kNegInf;
    rank[g] = sum ? add_rn(first, second) : first;
  }
  uint64_t kept = 0;
  for (int32_t round = 0; round < r.topk_groups; ++round) {
    int32_t best = -1;
    for (int32_t g = 0; g < r.num_groups; ++g) {
      if ((kept >> g & 1) == 0 && (best < 0 || rank[g] > rank[best])) best = g;
    }
    kept |= uint64_t{1} << best;
  }
  return kept;
}

/// Routes one token.
///   logits   [num_experts]  f32  cleaned here; NaN = -inf
///   bias     [num_experts]  f32  added to the scores for selection only; may be null
///   choice   [num_experts]  f32  scratch
///   ids      [top_k]        out; distinct, in range, best first, ties by lowest id
///   weights  [top_k]        out; finite; 0 for an expert whose logit is -inf
/// Without bias and groups the choice is made on the logits themselves (a monotone function of the
/// scores that does not saturate).
/// Source: softmax top-k as in Qwen3-MoE and gpt-oss; noaux and groups as in DeepSeek-V3;
/// sqrt-softplus as in DeepSeek-V4.
SNUG_HD inline void route_token(const Routing& r, int32_t num_experts, int32_t top_k,
                                const float* logits, const float* bias, float* choice, int32_t* ids,
                                float* weights) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  float max_logit = -kInf;
  for (int32_t e = 0; e < num_experts; ++e) {
    const float l = clean_logit(logits[e]);
    max_logit = l > max_logit ? l : max_logit;
  }
  const bool by_logit = bias == nullptr && r.num_groups <= 1;
  float total = 0.0f;  // softmax over all experts needs it
  for (int32_t e = 0; e < num_experts; ++e) {
    const float l = clean_logit(logits[e]);
    if (by_logit && (r.score != Score::softmax || r.renormalize)) {
      choice[e] = l;
      continue;
    }
    const float s = score_of(r.score, l, max_logit);
    total = add_rn(total, s);
    choice[e] = by_logit ? l : s;
  }
  const float norm = r.score == Score::softmax && total > 0 ? total : 1.0f;
  if (!by_logit) {
    for (int32_t e = 0; e < num_experts; ++e) {
      float c = div_rn(choice[e], norm);
      if (bias != nullptr) c = add_rn(c, bias[e]);
      const bool usable = c == c && clean_logit(logits[e]) > -kInf;
      choice[e] = usable ? c : -kInf;
    }
  }
  const uint64_t groups = choose_groups(r, num_experts, choice);
  const int32_t group_size = num_experts / (r.num_groups > 1 ? r.num_groups : 1);

  float last_value = kInf;
  int32_t last_id = -1;
  float sum = 0.0f;
  for (int32_t j = 0; j < top_k; ++j) {
    int32_t best = -1;
    for (int32_t e = 0; e < num_experts; ++e) {
      if (r.num_groups > 1 && (groups >> (e / group_size) & 1) == 0) continue;
      if (!comes_after(choice[e], e, last_value, last_id)) continue;
      if (best < 0 || choice[e] > choice[best]) best = e;
    }
    last_value = choice[best];
    last_id = best;
    ids[j] = best;
    weights[j] = score_of(r.score, clean_logit(logits[best]), max_logit);
    sum = add_rn(sum, weights[j]);
  }
  float denominator = 1.0f;
  if (r.renormalize) {
    denominator = sum;
  } else if (r.score == Score::softmax) {
    denominator = norm;
  }
  for (int32_t j = 0; j < top_k; ++j) {
    weights[j] = denominator > 0 ? mul_rn(div_rn(weights[j], denominator), r.scale) : 0.0f;
  }
}

}  // namespace snug
