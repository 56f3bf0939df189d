// SPDX-License-Identifier: Apache-2.0
// tidy: no twin, tests/backend/cpu run every path
// AVX-512 BF16. Wins where a dot product of
// bf16 costs no more than one of s16: AMD's Zen 4 and later.
#include "backend/cpu/isa/target.h"

#if defined(__x86_64__)
SNUG_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,f16c,avx2,prfchw")

namespace snug::cpu::bf16dot {

namespace {

#include "backend/cpu/isa/vectors.h"

#include "backend/cpu/isa/tiles_512.h"

#include "backend/cpu/isa/bf16_512.h"

using Kernel = Bf16Kernel;

#include "backend/cpu/fc1.h"

#include "backend/cpu/fc2.h"

#include "backend/cpu/combine.h"

}  // namespace

const Path kPath = {CpuPath::bf16, fc1, fc2, combine};

}  // namespace snug::cpu::bf16dot

SNUG_TARGET_END
#endif
