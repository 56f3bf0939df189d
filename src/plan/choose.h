// SPDX-License-Identifier: Apache-2.0
// Which kernel families may serve a layer, why the others may not, and which policies to weigh.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/predict.h"

namespace snug {

/// Why a family is refused; an empty reason means that it is a candidate.
struct Verdict {
  char reason[104] = {};
  bool accepted() const { return reason[0] == '\0'; }
};

/// Judges one family for a layer on a device. Pure.
Verdict judge_family(const Caps& caps, const Device& device, const KernelFamily& family);

/// A policy with its predicted time at the token count it was made for.
struct Candidate {
  Policy policy;
  double us = 0;
};

/// The token counts at which the planner decides, ascending; the last one is >= max_tokens.
/// They depend on the shape alone, so plans of neighbouring capacities agree below the smaller one:
/// that is what keeps bytes monotone in max_tokens. Every count where a route tile changes is one.
std::vector<int64_t> decision_points(const Caps& caps, std::span<const KernelFamily> families);

/// All policies worth weighing at a token count, fastest first; `accepted[i]` says whether family i
/// is a candidate. Ties keep the order of enumeration. Small chunks read the weights so often that
/// only an arena limit makes them worth weighing: `limited` adds them, down to one token.
std::vector<Candidate> candidates_at(const Caps& caps, const Device& device,
                                     std::span<const KernelFamily> families, const bool* accepted,
                                     bool limited, int64_t num_tokens);

}  // namespace snug
