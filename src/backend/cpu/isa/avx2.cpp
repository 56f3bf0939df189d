// SPDX-License-Identifier: Apache-2.0
// tidy: no twin, tests/backend/cpu run every path
// AVX2: the integer products on 256-bit vectors, one 8-lane half of a tile at a time.
#include "backend/cpu/isa/target.h"

#if defined(__x86_64__)
SNUG_TARGET_BEGIN("avx2,fma,f16c,prfchw")

namespace snug::cpu::avx2 {

namespace {

#include "backend/cpu/isa/vectors.h"

#include "backend/cpu/isa/rows.h"

constexpr int kMostSlots = 4;        // of one pass over the codes
constexpr int64_t kPrefetch = 2048;  // bytes ahead in the codes' stream

/// Stored codes as s8, twice their value, for both halves of a vector.
struct alignas(32) CodeTable {
  int8_t values[32];
};
template <bool kMx>
constexpr CodeTable make_codes() {
  CodeTable table = {};
  for (int i = 0; i < 32; ++i) {
    const auto code = static_cast<uint8_t>(i % 16);
    const float twice = 2 * panel_code_to_f32(kMx ? Format::mxfp4 : Format::nvfp4, code);
    table.values[i] = static_cast<int8_t>(twice);
  }
  return table;
}
template <bool kMx>
constexpr CodeTable kCodes = make_codes<kMx>();

/// Eight E8M0 bytes as f32; byte 0 is a subnormal.
SNUG_INLINE __m256 e8m0_scales(const uint8_t* bytes) {
  const __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  return _mm256_castsi256_ps(
      _mm256_max_epi32(_mm256_slli_epi32(b, 23), _mm256_set1_epi32(0x00400000)));
}

/// Eight scales of NVFP4 as f32: shifted by 7 the stored bytes are fp16.
SNUG_INLINE __m256 nvfp4_scales(const uint8_t* bytes) {
  const __m128i b = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  return _mm256_cvtph_ps(_mm_slli_epi16(b, 7));
}

SNUG_INLINE __m256i pair_of(const int16_t* at) {
  int32_t pair;
  __builtin_memcpy(&pair, at, sizeof pair);
  return _mm256_set1_epi32(pair);
}

SNUG_INLINE void prefetch_step(const uint8_t* codes) {
  for (int line = 0; line < 2 * kTileNbytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(codes + line), _MM_HINT_T0);
  }
}

/// Adds eight lanes of a tile of one plane: sum[s] += rows * weights; see integer_512.h.
template <bool kMx, int slots>
SNUG_INLINE void add_eight(const uint8_t* codes, const uint8_t* scales, const int16_t* x,
                           int64_t padded_k, const float* x_scales, __m256i table,
                           __m256 (&sum)[slots]) {
  constexpr int kGroups = kMx ? 1 : 2;
  constexpr int kVectors = 4 / kGroups;  // of a group
  const __m256i nibble = _mm256_set1_epi8(15);
  for (int group = 0; group < kGroups; ++group) {
    __m256i dot[slots];
    for (int s = 0; s < slots; ++s) dot[s] = _mm256_setzero_si256();
    for (int v = group * kVectors; v < (group + 1) * kVectors; ++v) {
      const __m256i word = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + v * 64));
      // Bytes of a u32: k 0, 4, 1, 5 in the low nibbles, 2, 6, 3, 7 in the high ones.
      const __m256i low = _mm256_shuffle_epi8(table, _mm256_and_si256(word, nibble));
      const __m256i high =
          _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(word, 4), nibble));
      const __m256i pairs[4] = {_mm256_srai_epi16(_mm256_slli_epi16(low, 8), 8),
                                _mm256_srai_epi16(_mm256_slli_epi16(high, 8), 8),
                                _mm256_srai_epi16(low, 8), _mm256_srai_epi16(high, 8)};
      for (int s = 0; s < slots; ++s) {
        const int16_t* at = x + s * padded_k + v * 8;
        for (int r = 0; r < 4; ++r) {
          dot[s] = _mm256_add_epi32(dot[s], _mm256_madd_epi16(pairs[r], pair_of(at + 2 * r)));
        }
      }
    }
    const __m256 scale = kMx ? e8m0_scales(scales) : nvfp4_scales(scales + group * kTileRows);
    for (int s = 0; s < slots; ++s) {
      const __m256 x_scale = _mm256_set1_ps(x_scales[s * (padded_k / kTileK)]);
      const __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(dot[s]), x_scale);
      sum[s] = _mm256_fmadd_ps(product, scale, sum[s]);
    }
  }
}

/// Sums `slots` rows, from `first` on, over one panel.
///   next  the codes that are read after these
///   acc   [slots][32]  f32, overwritten
template <bool kMx, int slots>
inline void multiply_slots(const uint8_t* codes, const uint8_t* scales, const uint8_t* next,
                           const IntegerRows& rows, int first, float (*acc)[kPanelRows]) {
  constexpr int kScaleNbytes = (kMx ? 1 : 2) * kTileRows;  // of a tile
  constexpr int kEights = kPanelRows / 8;
  const __m256i table = _mm256_load_si256(reinterpret_cast<const __m256i*>(kCodes<kMx>.values));
  __m256 sum[kEights][slots];
  for (int e = 0; e < kEights; ++e) {
    for (int s = 0; s < slots; ++s) sum[e][s] = _mm256_setzero_ps();
  }
  const int64_t padded_k = rows.padded_k, k_tiles = padded_k / kTileK;
  const int64_t steps_ahead = min_of(kPrefetch / (2 * kTileNbytes), k_tiles);
  for (int64_t t = 0; t < k_tiles; ++t) {
    prefetch_step(codes_ahead(codes, next, t, steps_ahead, k_tiles));
    const float* low_scales = rows.scales[1] + first * k_tiles + t;
    float low = 0;  // scales are not negative
    for (int s = 0; s < slots; ++s) low += low_scales[s * k_tiles];
    const int64_t at = first * padded_k + t * kTileK;
    for (int e = 0; e < kEights; ++e) {
      const uint8_t* eight = codes + t * 2 * kTileNbytes + e / 2 * kTileNbytes + e % 2 * 32;
      const uint8_t* eight_scales = scales + (2 * t + e / 2) * kScaleNbytes + e % 2 * 8;
      add_eight<kMx, slots>(eight, eight_scales, rows.planes[0] + at, padded_k,
                            rows.scales[0] + first * k_tiles + t, table, sum[e]);
      if (__builtin_expect(low != 0, 0)) {
        add_eight<kMx, slots>(eight, eight_scales, rows.planes[1] + at, padded_k, low_scales, table,
                              sum[e]);
      }
    }
  }
  for (int s = 0; s < slots; ++s) {
    for (int e = 0; e < kEights; ++e) _mm256_storeu_ps(acc[s] + e * 8, sum[e][s]);
  }
}

template <bool kMx>
inline void multiply_rest(const uint8_t* codes, const uint8_t* scales, const uint8_t* next,
                          const IntegerRows& rows, int first, int slots, float (*acc)[kPanelRows]) {
  switch (slots) {
    case 1:
      return multiply_slots<kMx, 1>(codes, scales, next, rows, first, acc);
    case 2:
      return multiply_slots<kMx, 2>(codes, scales, next, rows, first, acc);
    case 3:
      return multiply_slots<kMx, 3>(codes, scales, next, rows, first, acc);
    default:
      return multiply_slots<kMx, kMostSlots>(codes, scales, next, rows, first, acc);
  }
}

#include "backend/cpu/isa/integer_kernel.h"

using Kernel = IntegerKernel;

#include "backend/cpu/fc1.h"

#include "backend/cpu/fc2.h"

#include "backend/cpu/combine.h"

}  // namespace

const Path kPath = {CpuPath::avx2, fc1, fc2, combine};

}  // namespace snug::cpu::avx2

SNUG_TARGET_END
#endif
