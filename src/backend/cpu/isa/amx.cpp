// SPDX-License-Identifier: Apache-2.0
// tidy: no twin, tests/backend/cpu run every path
// AMX: bf16 tiles for experts with several slots, bf16 dot products for the others.
//
// A k step is one tile of K: 16 x 32 activations a tile, 32 x 16 weights a tile, two of each. The
// weights of a panel are decoded to bf16 once, two steps ahead of their use by the first 32 slots;
// further slots of the block read the decoded strip again, from the L2. Sums over k are strictly in
// order for every slot, so that a slot's bits do not depend on its neighbours.
//   bf16(code * scale) is exact; products are summed in f32 by the tile unit
#include "backend/cpu/isa/target.h"

#if defined(__x86_64__)
SNUG_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,f16c,avx2,prfchw")

namespace snug::cpu::amx {

namespace {

#include "backend/cpu/isa/vectors.h"

#include "backend/cpu/isa/tiles_512.h"

#include "backend/cpu/isa/bf16_512.h"

constexpr int kTileBytes = 1024;             // 16 rows of 64
constexpr int kStepNbytes = 2 * kTileBytes;  // a step's weights in the strip
constexpr int kStepsAhead = 2;
constexpr int kRing = 4;  // steps kept when no further slots follow
static_assert(kRingNbytes == kRing * kStepNbytes);
// Experts with fewer slots than this go to the dot products: a tile instruction costs the same for
// one row as for sixteen, while a dot product costs as much for every further row.
constexpr int kLeastTileSlots = 2;

// Tile registers: 0..3 sums [slot tile][half], 4, 5 activations, 6, 7 weights. Written as assembly
// with a memory clobber: g++ 12's own macros tell the compiler nothing of the memory they touch.
template <int tile>
SNUG_INLINE void tile_zero() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(tile));
}
template <int tile>
SNUG_INLINE void tile_load(const void* from, int64_t stride) {
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0"
                   :
                   : "i"(tile), "r"(from), "r"(stride)
                   : "memory");
}
template <int tile>
SNUG_INLINE void tile_store(void* to, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(tile), "r"(to), "r"(stride) : "memory");
}
template <int sum, int rows, int weights>
SNUG_INLINE void tile_multiply() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(rows), "i"(weights));
}

/// Eight full tiles while it lives.
class TileRegisters {
 public:
  TileRegisters() {
    struct alignas(64) Config {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_nbytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static_assert(sizeof(Config) == 64);
    const Config config;
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  ~TileRegisters() { __asm__ volatile("tilerelease"); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

// NVFP4. A weight is (1 or 1.5) * 2^e * scale, or zero. bf16 patterns of 4 * scale and 6 * scale,
// less the binades down from there, are all of them; subtracting 0xFFFF saturates to zero.
constexpr CodeTable make_binades_down() {
  constexpr uint16_t kDown[8] = {3 << 7, 0xFFFF, 2 << 7, 2 << 7, 1 << 7, 1 << 7, 0, 0};
  CodeTable table = {};
  for (int i = 0; i < 32; ++i) table.bits[i] = kDown[i % 8];
  return table;
}
constexpr CodeTable kBinadesDown = make_binades_down();
/// From the pattern of 4 * scale to that of 6 * scale, by the scale's three mantissa bits m:
/// 1.5 * (1 + m / 8) stays in its binade up to m = 2.
constexpr CodeTable make_half_more() {
  CodeTable table = {};
  for (int i = 0; i < 32; ++i) {
    const int m = i % 8;
    table.bits[i] = static_cast<uint16_t>(m <= 2 ? 64 + 8 * m : 96 - 4 * m);
  }
  return table;
}
constexpr CodeTable kHalfMore = make_half_more();
constexpr int16_t kFourTimes = (127 - 15 + 2) << 7;  // fp16's bias to bf16's, and two binades up

/// Sixteen scale bytes, each in both halves of its lane.
SNUG_INLINE __m512i scale_pairs(const uint8_t* bytes) {
  const __m512i lanes =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  return _mm512_or_si512(lanes, _mm512_slli_epi32(lanes, 16));
}

/// Decodes one step of a panel (two tiles) to bf16 pair rows.
///   to  bf16[2][16 pairs of k][16 lanes][2]
SNUG_INLINE void decode_mxfp4(const uint8_t* codes, const uint8_t* scales, uint8_t* to) {
  const __m512i table = _mm512_load_si512(kBf16Codes<true>.bits);
  for (int half = 0; half < 2; ++half, scales += kTileRows) {
    const __m512i exponents =
        _mm512_sub_epi16(_mm512_slli_epi16(scale_pairs(scales), 7), _mm512_set1_epi16(127 << 7));
    for (int vector = 0; vector < 4; ++vector, codes += 64) {
      const __m512i word = _mm512_loadu_si512(codes);
      for (int r = 0; r < 4; ++r, to += 64) {
        const __m512i index = r == 0 ? word : _mm512_srli_epi16(word, static_cast<unsigned>(4 * r));
        const __mmask32 nonzero =
            _mm512_test_epi16_mask(word, _mm512_set1_epi16(static_cast<int16_t>(7 << (4 * r))));
        _mm512_store_si512(
            to, _mm512_maskz_add_epi16(nonzero, _mm512_permutexvar_epi16(index, table), exponents));
      }
    }
  }
}

SNUG_INLINE void decode_nvfp4(const uint8_t* codes, const uint8_t* scales, uint8_t* to) {
  const __m512i down = _mm512_load_si512(kBinadesDown.bits);
  const __m512i half_more = _mm512_load_si512(kHalfMore.bits);
  const __m512i sign = _mm512_set1_epi16(INT16_MIN);
  for (int group = 0; group < 4; ++group, scales += kTileRows) {
    const __m512i pairs = scale_pairs(scales);
    const __m512i four =
        _mm512_add_epi16(_mm512_slli_epi16(pairs, 4), _mm512_set1_epi16(kFourTimes));
    const __m512i six = _mm512_add_epi16(four, _mm512_permutexvar_epi16(pairs, half_more));
    for (int vector = 0; vector < 2; ++vector, codes += 64) {
      const __m512i word = _mm512_loadu_si512(codes);
      for (int r = 0; r < 4; ++r, to += 64) {
        const __m512i index = r == 0 ? word : _mm512_srli_epi16(word, static_cast<unsigned>(4 * r));
        const __mmask32 is_six =
            _mm512_test_epi16_mask(word, _mm512_set1_epi16(static_cast<int16_t>(1 << (4 * r))));
        const __m512i magnitude = _mm512_subs_epu16(_mm512_mask_blend_epi16(is_six, four, six),
                                                    _mm512_permutexvar_epi16(index, down));
        const __m512i signs =
            r == 3 ? word : _mm512_slli_epi16(word, static_cast<unsigned>(12 - 4 * r));
        constexpr int kOrAnd = 0xF8;  // magnitude | (signs & sign)
        _mm512_store_si512(to, _mm512_ternarylogic_epi32(magnitude, signs, sign, kOrAnd));
      }
    }
  }
}

template <bool kMx>
SNUG_INLINE void decode_step(const uint8_t* codes, const uint8_t* scales, uint8_t* to) {
  if (kMx) {
    decode_mxfp4(codes, scales, to);
  } else {
    decode_nvfp4(codes, scales, to);
  }
}

/// Where the activation tiles of a block lie: tile b of step t at base + b * block + t * step.
struct RowTiles {
  const uint8_t* base;
  int64_t block;   // bytes from 16 slots to the next 16
  int64_t step;    // bytes from one k step to the next
  int64_t stride;  // bytes from slot to slot
};

/// Cache lines to fetch into the L2, some at every step, so that memory works while tiles multiply.
struct Stream {
  const uint8_t* at;
  int64_t lines;  // left
  int64_t per_step;

  SNUG_INLINE void fetch() {
    const int64_t now = min_of(per_step, lines);
    for (int64_t i = 0; i < now; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(at + i * 64), _MM_HINT_T1);
    }
    at += now * 64;
    lines -= now;
  }
};

/// The next panel's codes and the next expert's rows.
struct Ahead {
  Stream codes, rows;

  SNUG_INLINE void fetch() {
    codes.fetch();
    rows.fetch();
  }
};

/// One panel's weights.
template <bool kMx>
struct PanelWeights {
  const uint8_t* codes;
  const uint8_t* scales;

  SNUG_INLINE void decode(int64_t step, uint8_t* to) const {
    constexpr int kStepScales = 2 * (kMx ? 1 : 2) * kTileRows;
    decode_step<kMx>(codes + step * 2 * kTileNbytes, scales + step * kStepScales, to);
  }
};

template <int slot_tiles>
SNUG_INLINE void zero_sums() {
  tile_zero<0>();
  tile_zero<1>();
  if (slot_tiles == 2) {
    tile_zero<2>();
    tile_zero<3>();
  }
}

constexpr int64_t kAccStride = kPanelRows * 4;

template <int slot_tiles>
SNUG_INLINE void store_sums(float (*acc)[kPanelRows]) {
  tile_store<0>(acc[0], kAccStride);
  tile_store<1>(acc[0] + kTileRows, kAccStride);
  if (slot_tiles == 2) {
    tile_store<2>(acc[kTileSlots], kAccStride);
    tile_store<3>(acc[kTileSlots] + kTileRows, kAccStride);
  }
}

/// sums += rows of one or two slot tiles, from `a` on, * one step's weights.
template <int slot_tiles>
SNUG_INLINE void multiply_step(const RowTiles& rows, const uint8_t* a, const uint8_t* weights) {
  tile_load<6>(weights, 64);
  tile_load<4>(a, rows.stride);
  tile_load<7>(weights + kTileBytes, 64);
  tile_multiply<0, 4, 6>();
  tile_multiply<1, 4, 7>();
  if (slot_tiles == 2) {
    tile_load<5>(a + rows.block, rows.stride);
    tile_multiply<2, 5, 6>();
    tile_multiply<3, 5, 7>();
  }
}

/// One or two slot tiles over a panel whose weights are decoded on the way, two steps ahead.
///   strip_mask  of the step, for its place in the strip: all steps are kept, or a ring of them
template <bool kMx, int slot_tiles>
inline void multiply_and_decode(const PanelWeights<kMx>& weights, int64_t steps,
                                const RowTiles& rows, uint8_t* strip, int64_t strip_mask,
                                Ahead& ahead, float (*acc)[kPanelRows]) {
  const auto place = [&](int64_t step) { return strip + (step & strip_mask) * kStepNbytes; };
  zero_sums<slot_tiles>();
  for (int64_t t = 0; t < min_of<int64_t>(kStepsAhead, steps); ++t) weights.decode(t, place(t));
  for (int64_t t = 0; t < steps; ++t) {
    if (t + kStepsAhead < steps) weights.decode(t + kStepsAhead, place(t + kStepsAhead));
    ahead.fetch();
    multiply_step<slot_tiles>(rows, rows.base + t * rows.step, place(t));
  }
  store_sums<slot_tiles>(acc);
}

/// One or two further slot tiles over a panel that lies decoded in the strip.
template <int slot_tiles>
inline void multiply_decoded(int64_t steps, const RowTiles& rows, int64_t tile,
                             const uint8_t* strip, Ahead& ahead, float (*acc)[kPanelRows]) {
  const uint8_t* a = rows.base + tile * rows.block;
  zero_sums<slot_tiles>();
  for (int64_t t = 0; t < steps; ++t) {
    ahead.fetch();
    multiply_step<slot_tiles>(rows, a + t * rows.step, strip + t * kStepNbytes);
  }
  store_sums<slot_tiles>(acc + tile * kTileSlots);
}

/// Copies rows into tiles [slot tile][step][16 slots][32 k]. Slots past the count keep what was
/// there: a tile's rows do not mix. k past the end is zero.
inline void gather_tiles(const bf16* const* rows, int count, int64_t k, int64_t steps,
                         uint8_t* to) {
  for (int r = 0; r < count; ++r) {
    uint8_t* at = to + r / kTileSlots * steps * kTileBytes + r % kTileSlots * 64;
    const int64_t whole = k / kTileK;
    for (int64_t t = 0; t < whole; ++t) {
      _mm512_store_si512(at + t * kTileBytes, _mm512_loadu_si512(rows[r] + t * kTileK));
    }
    if (whole < steps) {
      const __mmask32 left = (uint32_t{1} << (k - whole * kTileK)) - 1;
      _mm512_store_si512(at + whole * kTileBytes,
                         _mm512_maskz_loadu_epi16(left, rows[r] + whole * kTileK));
    }
  }
}

class Kernel {
 public:
  static constexpr bool kUsesTiles = true;

  static SNUG_INLINE F32 activate(const Activation& a, F32 gate, F32 up) {
    return activate_together(a, gate, up);
  }

  Kernel(const Bound& bound, const Scratch& scratch)
      : layout_(bound.weights.layout),
        scratch_(scratch),
        few_(bound, scratch),
        // One kernel for every count keeps a token's bits apart from its neighbours.
        least_tile_slots_(bound.caps.batch_invariant ? 1 : kLeastTileSlots) {}

  void prepare(const MatrixLayout& matrix, const bf16* const* rows, int count, int64_t row_stride) {
    matrix_ = &matrix;
    from_ = rows;
    count_ = count;
    if (count < least_tile_slots_) return few_.prepare(matrix, rows, count, row_stride);
    const int64_t steps = matrix.padded_k / kTileK;
    if (row_stride > 0) {
      rows_ = {reinterpret_cast<const uint8_t*>(rows[0]), kTileSlots * row_stride * 2, 64,
               row_stride * 2};
      return;
    }
    gather_tiles(rows, count, matrix.k, steps, scratch_.rows);
    rows_ = {scratch_.rows, steps * kTileBytes, kTileBytes, 64};
  }

  void multiply(const uint8_t* record, int64_t panel, const Next& next,
                float (*acc)[kPanelRows]) const {
    if (count_ < least_tile_slots_) return few_.multiply(record, panel, next, acc);
    if ((record_flags(layout_, record) & static_cast<uint32_t>(RecordFlag::tiny_scales)) != 0) {
      return multiply_panel_rows(layout_, *matrix_, record, panel, from_, count_, acc);
    }
    if (layout_.format == Format::mxfp4) {
      multiply_block<true>(record, panel, next, acc);
    } else {
      multiply_block<false>(record, panel, next, acc);
    }
  }

 private:
  template <bool kMx>
  void multiply_block(const uint8_t* record, int64_t panel, const Next& next,
                      float (*acc)[kPanelRows]) const {
    const uint8_t* codes = panel_codes(layout_, *matrix_, record, panel);
    const uint8_t* scales = panel_scales(layout_, *matrix_, record, panel);
    const PanelWeights<kMx> weights = {codes, scales};
    const int64_t steps = matrix_->padded_k / kTileK;
    const int64_t tiles = ceil_div(count_, kTileSlots);
    const int64_t lines = steps * (2 * kTileNbytes / 64);
    const int64_t turns = steps * ceil_div(tiles, 2);
    Ahead ahead = {{next.codes, lines, ceil_div(lines, turns)},
                   {next.rows, next.row_lines, ceil_div(next.row_lines, turns)}};
    const int64_t mask = tiles > 2 ? ~int64_t{0} : kRing - 1;
    uint8_t* strip = scratch_.strip;
    if (tiles == 1) {
      return multiply_and_decode<kMx, 1>(weights, steps, rows_, strip, mask, ahead, acc);
    }
    multiply_and_decode<kMx, 2>(weights, steps, rows_, strip, mask, ahead, acc);
    int64_t tile = 2;
    for (; tile + 1 < tiles; tile += 2) {
      multiply_decoded<2>(steps, rows_, tile, strip, ahead, acc);
    }
    if (tile < tiles) multiply_decoded<1>(steps, rows_, tile, strip, ahead, acc);
  }

  const PackedLayout& layout_;
  const Scratch scratch_;
  const TileRegisters registers_;
  Bf16Kernel few_;
  const int least_tile_slots_;
  const MatrixLayout* matrix_ = nullptr;
  const bf16* const* from_ = nullptr;
  int count_ = 0;
  RowTiles rows_ = {};
};

#include "backend/cpu/fc1.h"

#include "backend/cpu/fc2.h"

#include "backend/cpu/combine.h"

}  // namespace

const Path kPath = {CpuPath::amx, fc1, fc2, combine};

}  // namespace snug::cpu::amx

SNUG_TARGET_END
#endif
