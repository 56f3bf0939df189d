// SPDX-License-Identifier: Apache-2.0
// A row of a backend's kernel table: what a family of kernels can do and what it needs. Plain data,
// compiled everywhere, so that a plan needs neither the device nor its toolchain.
// tidy: no twin, plain data; the tables and the plan tests exercise it
#pragma once

#include <cstdint>

#include "geometry/packed_weights.h"
#include "plan/device.h"

namespace snug {

/// How FC2's rows become token rows, always in slot order and without atomics.
enum class Combine : int32_t {
  owner = 0,         // the owner of an output column sums its slots itself; no rows in memory
  column_block = 1,  // rows of a column block in memory (f32), then summed; two blocks in flight
  worker_block = 2,  // the same, a private block per worker
  token = 3,         // one token at a time (reference)
};

inline constexpr int kMaxRouteTiles = 8;
inline constexpr int kMaxFamilies = 8;

struct KernelFamily {
  char name[24] = {};  // "<arch>.<family>"; kernel ids begin with machine and this
  Machine machine = Machine::cpu;
  int32_t min_arch = 0;  // CUDA: sm; CPU: CpuPath
  int32_t max_arch = 0;  // inclusive; 0 = none
  LayoutTag layout = LayoutTag::plain;
  Combine combine = Combine::owner;
  bool groups_routes = true;  // keeps a slot list grouped by expert
  int32_t num_route_tiles = 0;
  int32_t route_tiles[kMaxRouteTiles] = {};  // ascending
  bool route_tile_is_width = false;          // wgmma: the tile is a maximum; tails use smaller ones
  int64_t max_routes = 0;                    // per chunk; 0 = none
  bool uses_tiles = false;                   // CPU: bf16 tiles; reads up to 15 slots past the last
  int32_t column_granule = 32;               // column blocks are multiples of it
  int32_t smem_nbytes = 0;                   // a CTA's shared memory, from the tile's struct
  int32_t block_threads = 0;                 // threads a CTA; CPU: 0
  double read_fraction = 1;                  // of the device's read rate while streaming weights
  double matrix_fraction = 1;                // of the device's matrix rate over padded slots
  double unit_tflops = 0;                    // CPU: a core's rate over padded slots
  double tail_slots = -1;  // slots' worth of padding and fixed work that a touched expert
                           // costs; negative = half a route tile
};

}  // namespace snug
