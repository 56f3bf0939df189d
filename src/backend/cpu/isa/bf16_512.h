// SPDX-License-Identifier: Apache-2.0
// bf16 dot products: codes become bf16 pairs by one table lookup a pair row and meet the
// activations as they are; products are exact, sums are f32, a scale's group at a time. Included
// inside a path's namespace, after vectors.h and tiles_512.h.
//   bytes a panel:  padded_k * (16 + 32 / group)
//   instructions a tile of 512 weights:  28 to decode, 16 + groups for every slot
// tidy: no twin, tests/backend/cpu run every path

constexpr int kMostSlots = 8;  // of one pass over the codes

/// Two neighbouring activations in every lane.
SNUG_INLINE __m512bh pair_of(const bf16* at) {
  int32_t pair;
  __builtin_memcpy(&pair, at, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

SNUG_INLINE __m512bh weights_of(__m512i index, __m512i table) {
  return reinterpret_cast<__m512bh>(_mm512_permutexvar_epi16(index, table));
}

/// Adds one tile: sum[s] += x[s] * weights.
template <bool kMx, int slots>
SNUG_INLINE void add_tile(const uint8_t* codes, const uint8_t* scales, const bf16* const* x,
                          int64_t k, __m512i table, __m512 (&sum)[slots]) {
  constexpr int kGroups = kMx ? 1 : 2;
  constexpr int kVectors = 4 / kGroups;  // of a group
  for (int group = 0; group < kGroups; ++group) {
    __m512 dot[slots];
    for (int s = 0; s < slots; ++s) dot[s] = _mm512_setzero_ps();
    for (int v = group * kVectors; v < (group + 1) * kVectors; ++v) {
      const __m512i word = _mm512_loadu_si512(codes + v * 64);
      const __m512bh pairs[4] = {weights_of(word, table),
                                 weights_of(_mm512_srli_epi16(word, 4), table),
                                 weights_of(_mm512_srli_epi16(word, 8), table),
                                 weights_of(_mm512_srli_epi16(word, 12), table)};
      for (int s = 0; s < slots; ++s) {
        const bf16* at = x[s] + k + v * 8;
        for (int r = 0; r < 4; ++r) {
          dot[s] = _mm512_dpbf16_ps(dot[s], pairs[r], pair_of(at + 2 * r));
        }
      }
    }
    const __m512 scale = kMx ? e8m0_scales(scales) : nvfp4_scales(scales + group * kTileRows);
    for (int s = 0; s < slots; ++s) sum[s] = _mm512_fmadd_ps(dot[s], scale, sum[s]);
  }
}

/// Sums `slots` rows over one panel.
///   next  the codes that are read after these
///   acc   [slots][32]  f32, overwritten
template <bool kMx, int slots>
inline void multiply_slots(const uint8_t* codes, const uint8_t* scales, const uint8_t* next,
                           int64_t k_tiles, const bf16* const* x, float (*acc)[kPanelRows]) {
  constexpr int kScaleNbytes = (kMx ? 1 : 2) * kTileRows;  // of a tile
  const __m512i table = _mm512_load_si512(kBf16Codes<kMx>.bits);
  __m512 sum[2][slots];
  for (int half = 0; half < 2; ++half) {
    for (int s = 0; s < slots; ++s) sum[half][s] = _mm512_setzero_ps();
  }
  const int64_t steps_ahead = min_of(kPrefetch / (2 * kTileNbytes), k_tiles);
  for (int64_t t = 0; t < k_tiles; ++t) {
    const uint8_t* fetch = codes_ahead(codes, next, t, steps_ahead, k_tiles);
    for (int half = 0; half < 2; ++half) {
      prefetch_tile(fetch + half * kTileNbytes);
      add_tile<kMx, slots>(codes + (2 * t + half) * kTileNbytes,
                           scales + (2 * t + half) * kScaleNbytes, x, t * kTileK, table, sum[half]);
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
                          int64_t k_tiles, const bf16* const* x, int slots,
                          float (*acc)[kPanelRows]) {
  switch (slots) {
    case 1:
      return multiply_slots<kMx, 1>(codes, scales, next, k_tiles, x, acc);
    case 2:
      return multiply_slots<kMx, 2>(codes, scales, next, k_tiles, x, acc);
    case 3:
      return multiply_slots<kMx, 3>(codes, scales, next, k_tiles, x, acc);
    case 4:
      return multiply_slots<kMx, 4>(codes, scales, next, k_tiles, x, acc);
    case 5:
      return multiply_slots<kMx, 5>(codes, scales, next, k_tiles, x, acc);
    case 6:
      return multiply_slots<kMx, 6>(codes, scales, next, k_tiles, x, acc);
    case 7:
      return multiply_slots<kMx, 7>(codes, scales, next, k_tiles, x, acc);
    default:
      return multiply_slots<kMx, kMostSlots>(codes, scales, next, k_tiles, x, acc);
  }
}

class Bf16Kernel {
 public:
  static constexpr bool kUsesTiles = false;

  static SNUG_INLINE F32 activate(const Activation& a, F32 gate, F32 up) {
    return activate_together(a, gate, up);
  }

  Bf16Kernel(const Bound& bound, const Scratch& scratch)
      : layout_(bound.weights.layout), memory_(reinterpret_cast<bf16*>(scratch.rows)) {}

  /// Rows of whole tiles are read where they are; others get a copy with zeros at the end.
  void prepare(const MatrixLayout& matrix, const bf16* const* rows, int count, int64_t row_stride) {
    matrix_ = &matrix;
    count_ = count;
    const bool whole = row_stride > 0 || matrix.k == matrix.padded_k;
    for (int r = 0; r < count; ++r) {
      rows_[r] = rows[r];
      if (whole) continue;
      bf16* copy = memory_ + r * matrix.padded_k;
      std::memset(copy + matrix.padded_k - kTileK, 0, kTileK * sizeof(bf16));
      std::memcpy(copy, rows[r], static_cast<size_t>(matrix.k) * sizeof(bf16));
      rows_[r] = copy;
    }
  }

  void multiply(const uint8_t* record, int64_t panel, const Next& next,
                float (*acc)[kPanelRows]) const {
    const uint8_t* codes = panel_codes(layout_, *matrix_, record, panel);
    const uint8_t* scales = panel_scales(layout_, *matrix_, record, panel);
    const int64_t k_tiles = matrix_->padded_k / kTileK;
    for (int first = 0; first < count_; first += kMostSlots) {
      const int slots = min_of(kMostSlots, count_ - first);
      const uint8_t* after = first + slots < count_ ? codes : next.codes;
      if (layout_.format == Format::mxfp4) {
        multiply_rest<true>(codes, scales, after, k_tiles, rows_ + first, slots, acc + first);
      } else {
        multiply_rest<false>(codes, scales, after, k_tiles, rows_ + first, slots, acc + first);
      }
    }
  }

 private:
  const PackedLayout& layout_;
  bf16* memory_;
  const MatrixLayout* matrix_ = nullptr;
  int count_ = 0;
  const bf16* rows_[kMaxBlockSlots];
};
