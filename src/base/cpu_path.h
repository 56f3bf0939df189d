// SPDX-License-Identifier: Apache-2.0
// The instruction-set paths of the CPU backend, in ascending order: each needs what the ones
// before it need.
#pragma once

#include <cstdint>

namespace snug {

/// Values are part of the C ABI (snug_cpu_path); append only.
enum class CpuPath : int32_t {
  automatic = 0,
  portable = 1,  // plain C++
  avx2 = 2,      // AVX2, FMA, F16C
  avx512 = 3,    // AVX-512 F, BW, DQ, VL
  vnni = 4,      // AVX-512 VNNI
  bf16 = 5,      // AVX-512 BF16
  amx = 6,       // AMX tiles, bf16
};
inline constexpr int kNumCpuPaths = 7;

/// "unknown" for values that are none.
constexpr const char* cpu_path_name(CpuPath path) {
  constexpr const char* kNames[kNumCpuPaths] = {"automatic", "portable", "avx2", "avx512",
                                                "vnni",      "bf16",     "amx"};
  const int index = static_cast<int>(path);
  return index >= 0 && index < kNumCpuPaths ? kNames[index] : "unknown";
}

/// The highest path that this CPU, its operating system and this process may use. Looked up once;
/// for AMX the kernel is asked for permission to use the tile registers.
/// Source: Intel SDM vol. 1, 13-14 (CPUID leaves 1 and 7, XCR0) and the Linux arch_prctl page.
CpuPath best_cpu_path();

}  // namespace snug
