// SPDX-License-Identifier: Apache-2.0
// Activation rows as block fixed point for the integer dot products: of each 32 elements the
// largest takes 15 bits, so that an element down to 2^-7 of it keeps all of bf16's 8 bits. A block
// with smaller ones uses a low plane too, for 15 bits more: sums are then as good as f32's.
//   x[k] = high[k] * scale + low[k] * scale * 2^-15, |high| < 2^15; sums are exact in s32
// Included inside a path's namespace, after vectors.h.
// tidy: no twin, tests/backend/cpu run every path

struct IntegerRows {
  int16_t* planes[2];  // high and low, each [slots][padded_k]; low only where it is used
  float* scales[2];    // [slots][padded_k / 32]; a low scale of 0 = not used
  int64_t padded_k;
};

SNUG_INLINE IntegerRows integer_rows(uint8_t* memory, int64_t slots, int64_t padded_k) {
  int16_t* high = reinterpret_cast<int16_t*>(memory);
  int16_t* low = high + slots * padded_k;
  float* scales = reinterpret_cast<float*>(low + slots * padded_k);
  return {{high, low}, {scales, scales + slots * (padded_k / kTileK)}, padded_k};
}

/// What a product of integers is too large by: codes are stored as 2 * E2M1.
constexpr float kIntegerUnit = 0.5f;

constexpr uint32_t kLeastBlockExponent = 20;  // a block below 2^-107 counts as zero ...
constexpr uint32_t kLeastRowExponent = 60;    // ... in a row that reaches 2^-67
constexpr uint32_t kMostExponent = 220;       // above, sums could leave f32's range

SNUG_INLINE bool any_nonzero(F32 v) {
  const U32 bits = as<U32>(v) & 0x7FFFFFFFu;
  uint32_t any = 0;
  for (int i = 0; i < kLanes; ++i) any |= bits[i];
  return any != 0;
}

/// Rounds to integers, ties to even, as f32: adding 1.5 * 2^23 leaves no fraction.
SNUG_INLINE F32 round_lanes(F32 v) { return (v + 12582912.0f) - 12582912.0f; }

SNUG_INLINE void store_integers(int16_t* to, F32 v) {
  store(to, __builtin_convertvector(as<U32>(v + 12582912.0f) - 0x4B400000u, U16));
}

/// Converts block `b` of slot `r` from 32 elements. Returns the largest exponent field.
SNUG_INLINE uint32_t quantize_block(U16 first, U16 second, const IntegerRows& to, int64_t r,
                                    int64_t b) {
  int16_t* high = to.planes[0] + r * to.padded_k + b * kTileK;
  int16_t* low = to.planes[1] + r * to.padded_k + b * kTileK;
  float* high_scale = to.scales[0] + r * (to.padded_k / kTileK) + b;
  float* low_scale = to.scales[1] + r * (to.padded_k / kTileK) + b;
  const U16 magnitudes[2] = {first & static_cast<uint16_t>(0x7FFF),
                             second & static_cast<uint16_t>(0x7FFF)};
  const U16 most = magnitudes[0] > magnitudes[1] ? magnitudes[0] : magnitudes[1];
  uint16_t largest = 0;
  for (int i = 0; i < kLanes; ++i) largest = most[i] > largest ? most[i] : largest;
  const uint32_t exponent = largest >> 7;
  *low_scale = 0;
  if (exponent < kLeastBlockExponent || exponent > kMostExponent) {
    __builtin_memset(high, 0, 2 * kTileK);
    *high_scale = 0;
    return exponent;
  }
  // 2^(14 - e) and its inverse, e = exponent - 127.
  const float up = __builtin_bit_cast(float, (268u - exponent) << 23);
  *high_scale = __builtin_bit_cast(float, (exponent - 14u) << 23) * kIntegerUnit;
  const F32 x[2] = {bf16_to_f32(first) * up, bf16_to_f32(second) * up};
  const F32 rounded[2] = {round_lanes(x[0]), round_lanes(x[1])};
  const F32 rest[2] = {x[0] - rounded[0], x[1] - rounded[1]};  // exact
  store_integers(high, rounded[0]);
  store_integers(high + kLanes, rounded[1]);
  if (any_nonzero(rest[0]) || any_nonzero(rest[1])) {
    store_integers(low, rest[0] * 0x1p15f);
    store_integers(low + kLanes, rest[1] * 0x1p15f);
    *low_scale = *high_scale * 0x1p-15f;
  }
  return exponent;
}

/// Converts a row of k elements and fills up to padded_k with zeros. False when the row is not
/// finite or too large or small as a whole: what was written is then not to be used.
inline bool quantize_row(const bf16* row, int64_t k, const IntegerRows& to, int64_t r) {
  uint32_t largest = 0;
  for (int64_t first = 0; first < to.padded_k; first += kTileK) {
    alignas(32) uint16_t tail[kTileK] = {};
    const uint16_t* from = reinterpret_cast<const uint16_t*>(row + first);
    if (first + kTileK > k) {
      __builtin_memcpy(tail, from, static_cast<size_t>(k - first) * 2);
      from = tail;
    }
    const uint32_t exponent =
        quantize_block(load<U16>(from), load<U16>(from + kLanes), to, r, first / kTileK);
    largest = exponent > largest ? exponent : largest;
  }
  return largest <= kMostExponent && (largest == 0 || largest >= kLeastRowExponent);
}

/// Rows of a block that integers cannot hold: multiplied by the portable loop instead.
struct OddRows {
  uint64_t bits[kMaxBlockSlots / 64] = {};
  bool any = false;

  void add(int r) {
    bits[r / 64] |= uint64_t{1} << (r % 64);
    any = true;
  }
  bool has(int r) const { return (bits[r / 64] >> (r % 64) & 1u) != 0; }
};

/// Converts a block's rows.
inline OddRows quantize_rows(const bf16* const* from, int count, int64_t k, const IntegerRows& to) {
  OddRows odd;
  for (int r = 0; r < count; ++r) {
    const bool held = quantize_row(from[r], k, to, r);
    if (!held) odd.add(r);
  }
  return odd;
}

/// Replaces the sums of the odd rows.
inline void multiply_odd_rows(const PackedLayout& layout, const MatrixLayout& matrix,
                              const uint8_t* record, int64_t panel, const bf16* const* rows,
                              int count, const OddRows& odd, float (*acc)[kPanelRows]) {
  for (int r = 0; odd.any && r < count; ++r) {
    if (odd.has(r)) multiply_panel(layout, matrix, record, panel, rows + r, 1, acc + r);
  }
}
