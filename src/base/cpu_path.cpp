// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_path.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace snug {

#if defined(__x86_64__)
namespace {

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

/// Which register files the operating system saves.
uint64_t enabled_state() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

constexpr bool has(uint32_t word, int bit) { return (word >> bit & 1u) != 0; }
constexpr bool has_all(uint64_t state, uint64_t bits) { return (state & bits) == bits; }

constexpr uint64_t kYmmState = 0x6;           // xmm, ymm
constexpr uint64_t kZmmState = 0xE6;          // and opmask, zmm
constexpr uint64_t kTileState = 0x600E6;      // and tile configuration, tile data
constexpr long kRequestPermission = 0x1023;   // ARCH_REQ_XCOMP_PERM
constexpr unsigned long kTileDataState = 18;  // its component

CpuPath detect() {
  const Registers basic = cpuid(1, 0), extended = cpuid(7, 0);
  const bool saves_state = has(basic.ecx, 27);
  const uint64_t state = saves_state ? enabled_state() : 0;
  const bool avx2 = has(extended.ebx, 5) && has(basic.ecx, 12) && has(basic.ecx, 29);  // fma, f16c
  if (!has_all(state, kYmmState) || !avx2) return CpuPath::portable;
  const bool avx512 = has(extended.ebx, 16) && has(extended.ebx, 17) && has(extended.ebx, 30) &&
                      has(extended.ebx, 31);  // f, dq, bw, vl
  if (!has_all(state, kZmmState) || !avx512) return CpuPath::avx2;
  if (!has(extended.ecx, 11)) return CpuPath::avx512;
  if (!has(cpuid(7, 1).eax, 5)) return CpuPath::vnni;
  const bool amx = has(extended.edx, 24) && has(extended.edx, 22);  // tile, bf16
  if (!has_all(state, kTileState) || !amx) return CpuPath::bf16;
  const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileDataState) == 0;
  return allowed ? CpuPath::amx : CpuPath::bf16;
}

}  // namespace

CpuPath best_cpu_path() {
  static const CpuPath best = detect();
  return best;
}
#else
CpuPath best_cpu_path() { return CpuPath::portable; }
#endif

}  // namespace snug
