// SPDX-License-Identifier: Apache-2.0
// The CPU backend's kernel table: one family an instruction-set path, all on one layout.
// tidy: no twin, a table; plan tests read it
#pragma once

#include <string_view>

#include "base/cpu_path.h"
#include "plan/kernel_family.h"

namespace snug::cpu {

/// `read_fraction` with one slot an expert, `unit_tflops` with sixteen and more, of one core;
/// measured on Zen 4 (amx: on Emerald Rapids), see docs/kernels.md.
constexpr KernelFamily panel_family(CpuPath path, std::string_view name, double read_fraction,
                                    double unit_tflops, double tail_slots) {
  KernelFamily family;
  for (size_t i = 0; i < name.size(); ++i) family.name[i] = name[i];
  family.machine = Machine::cpu;
  family.min_arch = static_cast<int32_t>(path);
  family.layout = LayoutTag::panel_16x32;
  family.combine = Combine::worker_block;
  family.groups_routes = true;
  family.num_route_tiles = 1;
  family.route_tiles[0] = 32;
  family.route_tile_is_width = true;
  family.column_granule = kPanelRows;
  family.uses_tiles = path == CpuPath::amx;
  family.read_fraction = read_fraction;
  family.unit_tflops = unit_tflops;
  family.tail_slots = tail_slots;
  return family;
}

inline constexpr KernelFamily kFamilies[] = {
    panel_family(CpuPath::portable, "portable.panel", 0.05, 0.017, 1),
    panel_family(CpuPath::avx2, "avx2.panel", 0.55, 0.043, 1),
    panel_family(CpuPath::avx512, "avx512.panel", 0.85, 0.065, 1),
    panel_family(CpuPath::vnni, "vnni.panel", 0.90, 0.085, 1),
    panel_family(CpuPath::bf16, "bf16.panel", 0.95, 0.17, 1),
    panel_family(CpuPath::amx, "amx.panel", 0.90, 0.9, 4),
};

}  // namespace snug::cpu
