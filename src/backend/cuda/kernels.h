// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's kernel table: plain C++, compiled everywhere, so that plans for GPUs can be
// made, priced and printed without one. Fractions are those of measured prototypes of these loops
// on an H200, or scaled from them; the kernels' own measurements will replace them.
// tidy: no twin, a table; plan tests read it
#pragma once

#include "geometry/route_tiles.h"
#include "plan/kernel_family.h"

namespace snug::cuda {

inline constexpr KernelFamily kFamilies[] = {
    // Few routes an expert. One persistent launch; FC2's owner sums its slots in slot order.
    // Prototype: 1.28-1.75 x the read floor over M = 1..64 on three shapes.
    {
        .name = "sm80.decode",
        .machine = Machine::cuda,
        .min_arch = 80,
        .layout = LayoutTag::record_16x64,
        .combine = Combine::owner,
        .groups_routes = true,
        .num_route_tiles = 2,
        .route_tiles = {8, 16},
        .max_routes = 2048,
        .smem_nbytes = 96 * 1024,
        .block_threads = 512,
        .read_fraction = 0.75,
        .matrix_fraction = 0.20,
    },
    // Tens of routes an expert: mma.sync tiles of 8..64 slots, persistent walk over (expert, tile).
    {
        .name = "sm80.grouped",
        .machine = Machine::cuda,
        .min_arch = 80,
        .layout = LayoutTag::record_16x64,
        .combine = Combine::column_block,
        .groups_routes = true,
        .num_route_tiles = kNumRouteTiles,
        .route_tiles = {8, 16, 32, 48, 64},
        .column_granule = 128,
        .smem_nbytes = 96 * 1024,
        .block_threads = 256,
        .read_fraction = 0.70,
        .matrix_fraction = 0.45,
    },
    // Prefill on Hopper: wgmma, weights dequantised in registers, tile widths to 256 by count.
    // Prototype: 734 of 746 TFLOP/s at 256 rows an expert; 2050-2500 of 4426 GB/s at 8..32 rows.
    {
        .name = "sm90a.wgmma",
        .machine = Machine::cuda,
        .min_arch = 90,
        .max_arch = 90,
        .layout = LayoutTag::record_16x64,
        .combine = Combine::column_block,
        .groups_routes = true,
        .num_route_tiles = 4,
        .route_tiles = {64, 128, 192, 256},
        .route_tile_is_width = true,
        .column_granule = 128,
        .smem_nbytes = 224 * 1024,
        .block_threads = 384,
        .read_fraction = 0.55,
        .matrix_fraction = 0.92,
        .tail_slots = 4,
    },
};

}  // namespace snug::cuda
