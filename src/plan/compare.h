// SPDX-License-Identifier: Apache-2.0
// The same layer under the reference geometry, for a comparison of bytes.
#pragma once

#include "plan/caps.h"
#include "plan/device.h"
#include "plan/reference_geometry.h"

namespace snug {

/// Caps as the reference planner would be asked. Layout: nvfp4 in place; mxfp4 packed where
/// intermediate is a multiple of 128, else in place. Activations that it lacks are priced as silu,
/// whose buffers have the same sizes. A device that is no GPU counts as one SM.
ReferenceCaps reference_caps(const Caps& caps, const Device& device, bool unbounded);

/// Scratch bytes of the reference geometry for these caps.
/// Errors: those of check_caps, check_device and plan_reference.
Result<uint64_t> reference_nbytes(const Caps& caps, const Device& device, bool unbounded);

}  // namespace snug
