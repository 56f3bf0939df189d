// SPDX-License-Identifier: Apache-2.0
// tidy: no twin, tests/backend/cpu run every path
// AVX-512 without VNNI: a multiply and an addition for every pair row.
#include "backend/cpu/isa/target.h"

#if defined(__x86_64__)
SNUG_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,avx2,prfchw")

namespace snug::cpu::avx512 {

namespace {

#include "backend/cpu/isa/vectors.h"

#include "backend/cpu/isa/rows.h"

SNUG_INLINE __m512i dot_pairs(__m512i sum, __m512i weights, __m512i x) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(weights, x));
}

#include "backend/cpu/isa/tiles_512.h"

#include "backend/cpu/isa/integer_512.h"

#include "backend/cpu/isa/integer_kernel.h"

using Kernel = IntegerKernel;

#include "backend/cpu/fc1.h"

#include "backend/cpu/fc2.h"

#include "backend/cpu/combine.h"

}  // namespace

const Path kPath = {CpuPath::avx512, fc1, fc2, combine};

}  // namespace snug::cpu::avx512

SNUG_TARGET_END
#endif
