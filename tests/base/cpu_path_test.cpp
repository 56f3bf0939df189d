// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_path.h"

#include <gtest/gtest.h>

namespace snug {
namespace {

TEST(CpuPath, NamesAreTheEnumsOwn) {
  EXPECT_STREQ(cpu_path_name(CpuPath::automatic), "automatic");
  EXPECT_STREQ(cpu_path_name(CpuPath::portable), "portable");
  EXPECT_STREQ(cpu_path_name(CpuPath::bf16), "bf16");
  EXPECT_STREQ(cpu_path_name(CpuPath::amx), "amx");
  for (const int value : {-1, kNumCpuPaths, 1 << 30}) {
    EXPECT_STREQ(cpu_path_name(static_cast<CpuPath>(value)), "unknown");
  }
}

// The compiler's own look at CPUID: a path that it denies may not be claimed.
TEST(CpuPath, TheBestOneIsNotBeyondTheCpu) {
  const CpuPath best = best_cpu_path();
  EXPECT_GE(best, CpuPath::portable);
  EXPECT_EQ(best, best_cpu_path()) << "asked once";
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  EXPECT_EQ(best >= CpuPath::avx2, avx2);
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  EXPECT_EQ(best >= CpuPath::avx512, avx512);
  EXPECT_EQ(best >= CpuPath::vnni, avx512 && __builtin_cpu_supports("avx512vnni"));
  EXPECT_EQ(best >= CpuPath::bf16,
            avx512 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16"));
#else
  EXPECT_EQ(best, CpuPath::portable);
#endif
}

}  // namespace
}  // namespace snug
