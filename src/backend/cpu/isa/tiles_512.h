// SPDX-License-Identifier: Apache-2.0
// What every 512-bit path does with a tile's bytes. Included inside a path's namespace.
// tidy: no twin, tests/backend/cpu run every path

constexpr int64_t kPrefetch = 2048;  // bytes ahead in the codes' stream

/// A table of 16 bit patterns, twice: lookups use five bits of an index, the fifth is the next
/// code's.
struct alignas(64) CodeTable {
  uint16_t bits[32];
};

/// Stored codes as bf16.
template <bool kMx>
constexpr CodeTable make_bf16_codes() {
  CodeTable table = {};
  for (int i = 0; i < 32; ++i) {
    const auto code = static_cast<uint8_t>(i % 16);
    table.bits[i] =
        ::snug::f32_to_bf16(panel_code_to_f32(kMx ? Format::mxfp4 : Format::nvfp4, code)).bits;
  }
  return table;
}
template <bool kMx>
constexpr CodeTable kBf16Codes = make_bf16_codes<kMx>();

/// Sixteen E8M0 bytes as f32; byte 0 is a subnormal.
SNUG_INLINE __m512 e8m0_scales(const uint8_t* bytes) {
  const __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  const __m512i least = _mm512_set1_epi32(0x00400000);
  return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_slli_epi32(b, 23), least));
}

/// Sixteen scales of NVFP4 as f32: shifted by 7 the stored bytes are fp16.
SNUG_INLINE __m512 nvfp4_scales(const uint8_t* bytes) {
  const __m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  return _mm512_cvtph_ps(_mm256_slli_epi16(b, 7));
}

SNUG_INLINE void prefetch_tile(const uint8_t* codes) {
  for (int line = 0; line < kTileNbytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(codes + line), _MM_HINT_T0);
  }
}
