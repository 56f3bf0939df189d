// SPDX-License-Identifier: Apache-2.0
// Integer dot products on 512-bit vectors: a tile's codes become s16 pairs by one table lookup a
// pair row, each pair meets the same two activations of a slot, sums stay exact in s32 within a
// scale's group and go to f32 once a group. Included inside a path's namespace, after rows.h
// and tiles_512.h; the path brings dot_pairs.
//   bytes a panel:  padded_k * (16 + 32 / group)
//   instructions a tile of 512 weights:  28 to decode, 16 + 3 * groups for every slot; again
//   where a slot uses its low plane
// tidy: no twin, tests/backend/cpu run every path

constexpr int kMostSlots = 8;  // of one pass over the codes

/// Stored codes as s16, twice their value.
template <bool kMx>
constexpr CodeTable make_integer_codes() {
  CodeTable table = {};
  for (int i = 0; i < 32; ++i) {
    const auto code = static_cast<uint8_t>(i % 16);
    const float twice = 2 * panel_code_to_f32(kMx ? Format::mxfp4 : Format::nvfp4, code);
    table.bits[i] = static_cast<uint16_t>(static_cast<int16_t>(twice));
  }
  return table;
}
template <bool kMx>
constexpr CodeTable kIntegerCodes = make_integer_codes<kMx>();

/// Two neighbouring activations in every lane.
SNUG_INLINE __m512i pair_of(const int16_t* at) {
  int32_t pair;
  __builtin_memcpy(&pair, at, sizeof pair);
  return _mm512_set1_epi32(pair);
}

/// Adds one tile of one plane: sum[s] += rows * weights.
///   x, x_scales  the first slot's, at this tile; slots are padded_k and k_tiles apart
template <bool kMx, int slots>
SNUG_INLINE void add_tile(const uint8_t* codes, const uint8_t* scales, const int16_t* x,
                          int64_t padded_k, const float* x_scales, __m512i table,
                          __m512 (&sum)[slots]) {
  constexpr int kGroups = kMx ? 1 : 2;
  constexpr int kVectors = 4 / kGroups;  // of a group
  for (int group = 0; group < kGroups; ++group) {
    __m512i dot[slots];
    for (int s = 0; s < slots; ++s) dot[s] = _mm512_setzero_si512();
    for (int v = group * kVectors; v < (group + 1) * kVectors; ++v) {
      const __m512i word = _mm512_loadu_si512(codes + v * 64);
      const __m512i pairs[4] = {_mm512_permutexvar_epi16(word, table),
                                _mm512_permutexvar_epi16(_mm512_srli_epi16(word, 4), table),
                                _mm512_permutexvar_epi16(_mm512_srli_epi16(word, 8), table),
                                _mm512_permutexvar_epi16(_mm512_srli_epi16(word, 12), table)};
      for (int s = 0; s < slots; ++s) {
        const int16_t* at = x + s * padded_k + v * 8;
        for (int r = 0; r < 4; ++r) dot[s] = dot_pairs(dot[s], pairs[r], pair_of(at + 2 * r));
      }
    }
    const __m512 scale = kMx ? e8m0_scales(scales) : nvfp4_scales(scales + group * kTileRows);
    for (int s = 0; s < slots; ++s) {
      // The slot's factor first: a zero sum stays zero whatever the scale.
      const __m512 x_scale = _mm512_set1_ps(x_scales[s * (padded_k / kTileK)]);
      const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[s]), x_scale);
      sum[s] = _mm512_fmadd_ps(product, scale, sum[s]);
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
  const __m512i table = _mm512_load_si512(kIntegerCodes<kMx>.bits);
  __m512 sum[2][slots];
  for (int half = 0; half < 2; ++half) {
    for (int s = 0; s < slots; ++s) sum[half][s] = _mm512_setzero_ps();
  }
  const int64_t padded_k = rows.padded_k, k_tiles = padded_k / kTileK;
  const int64_t steps_ahead = min_of(kPrefetch / (2 * kTileNbytes), k_tiles);
  for (int64_t t = 0; t < k_tiles; ++t) {
    const uint8_t* fetch = codes_ahead(codes, next, t, steps_ahead, k_tiles);
    const float* low_scales = rows.scales[1] + first * k_tiles + t;
    float low = 0;  // scales are not negative
    for (int s = 0; s < slots; ++s) low += low_scales[s * k_tiles];
    for (int half = 0; half < 2; ++half) {
      const uint8_t* tile = codes + (2 * t + half) * kTileNbytes;
      const uint8_t* tile_scales = scales + (2 * t + half) * kScaleNbytes;
      prefetch_tile(fetch + half * kTileNbytes);
      const int64_t at = first * padded_k + t * kTileK;
      add_tile<kMx, slots>(tile, tile_scales, rows.planes[0] + at, padded_k,
                           rows.scales[0] + first * k_tiles + t, table, sum[half]);
      if (__builtin_expect(low != 0, 0)) {
        add_tile<kMx, slots>(tile, tile_scales, rows.planes[1] + at, padded_k, low_scales, table,
                             sum[half]);
      }
    }
  }
  for (int s = 0; s < slots; ++s) {
    for (int half = 0; half < 2; ++half) {
      _mm512_storeu_ps(acc[s] + half * kTileRows, sum[half][s]);
    }
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
    case 4:
      return multiply_slots<kMx, 4>(codes, scales, next, rows, first, acc);
    case 5:
      return multiply_slots<kMx, 5>(codes, scales, next, rows, first, acc);
    case 6:
      return multiply_slots<kMx, 6>(codes, scales, next, rows, first, acc);
    case 7:
      return multiply_slots<kMx, 7>(codes, scales, next, rows, first, acc);
    default:
      return multiply_slots<kMx, kMostSlots>(codes, scales, next, rows, first, acc);
  }
}
