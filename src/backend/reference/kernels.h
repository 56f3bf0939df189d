// SPDX-License-Identifier: Apache-2.0
// The reference backend's kernel table: one family of plain loops, one token at a time.
// tidy: no twin, a table; plan tests read it
#pragma once

#include "plan/kernel_family.h"

namespace snug::reference {

inline constexpr KernelFamily kFamilies[] = {{
    .name = "loops",
    .machine = Machine::reference,
    .layout = LayoutTag::plain,
    .combine = Combine::token,
    .groups_routes = false,
    .num_route_tiles = 1,
    .route_tiles = {1},
    .column_granule = 1,
    .read_fraction = 0.05,
    .matrix_fraction = 0.05,
}};

}  // namespace snug::reference
