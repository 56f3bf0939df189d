// SPDX-License-Identifier: Apache-2.0
// The CPU backend's kernel table.
// tidy: no twin, a table; plan tests read it
#pragma once

#include "plan/kernel_family.h"

namespace snug::cpu {

// Portable C++: a tile is decoded to f32 once per 32 rows of an expert. Decoding a weight costs
// about as much as 3 multiply-adds, and the last 32-row block of an expert is half empty on
// average.
inline constexpr KernelFamily kFamilies[] = {{
    .name = "portable.panel",
    .machine = Machine::cpu,
    .layout = LayoutTag::panel_16x32,
    .combine = Combine::worker_block,
    .groups_routes = true,
    .num_route_tiles = 1,
    .route_tiles = {32},
    .route_tile_is_width = true,
    .column_granule = kPanelRows,
    .read_fraction = 0.2,
    .matrix_fraction = 0.9,
    .tail_slots = 1.5,
}};

}  // namespace snug::cpu
