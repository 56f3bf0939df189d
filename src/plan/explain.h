// SPDX-License-Identifier: Apache-2.0
// A plan for people and for scripts: regimes, steps, predicted bytes, FLOPs and time, refused
// kernels with reasons, and the arena's map.
#pragma once

#include <string>

#include "plan/plan.h"

namespace snug {

/// The id of a step's kernel: <machine>.<arch>.<step>.w4a16.<format>.<loop>.t<tile>.
std::string kernel_id(const Plan& plan, const Policy& policy, Step step);

/// Text for people. `can_run` says whether this build has the kernels or only their prices.
std::string explain_text(const Plan& plan, bool can_run);

/// The same as one JSON object: device, caps, required_nbytes, weights_nbytes, predicted_us,
/// slowdown, regimes (with steps), slices (of the regime with the peak), families, can_run.
std::string explain_json(const Plan& plan, bool can_run);

}  // namespace snug
