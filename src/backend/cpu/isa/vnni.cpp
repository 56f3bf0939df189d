// SPDX-License-Identifier: Apache-2.0
// tidy: no twin, tests/backend/cpu run every path
// AVX-512 VNNI: one instruction multiplies and adds a pair row.
#include "backend/cpu/isa/target.h"

#if defined(__x86_64__)
SNUG_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c,avx2,prfchw")

namespace snug::cpu::vnni {

namespace {

#include "backend/cpu/isa/vectors.h"

#include "backend/cpu/isa/rows.h"

SNUG_INLINE __m512i dot_pairs(__m512i sum, __m512i weights, __m512i x) {
  return _mm512_dpwssd_epi32(sum, weights, x);
}

#include "backend/cpu/isa/tiles_512.h"

#include "backend/cpu/isa/integer_512.h"

#include "backend/cpu/isa/integer_kernel.h"

using Kernel = IntegerKernel;

#include "backend/cpu/fc1.h"

#include "backend/cpu/fc2.h"

#include "backend/cpu/combine.h"

}  // namespace

const Path kPath = {CpuPath::vnni, fc1, fc2, combine};

}  // namespace snug::cpu::vnni

SNUG_TARGET_END
#endif
