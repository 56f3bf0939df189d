// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/panel.h"

#include <cstring>

#include "geometry/panel_codes.h"

namespace snug::cpu {

namespace {

// Four f32 lanes: what every CPU this compiles for has; the compiler splits or joins them.
typedef float F32x4 __attribute__((vector_size(16)));
constexpr int kVectors = kPanelRows / 4;

/// Decodes one 16 x 32 tile: out[k][lane] = code * scale.
///   codes   u32[4][16]                scales  u8[groups][16]
void decode_tile(const PackedLayout& layout, const uint8_t* codes, const uint8_t* scales,
                 float (*out)[kPanelRows]) {
  const int group = format_info(layout.format).group_size;
  float scale[kTileRows];
  for (int vector = 0; vector < kTileK / 8; ++vector) {
    if (vector * 8 % group == 0) {
      const uint8_t* bytes = scales + vector * 8 / group * kTileRows;
      for (int n = 0; n < kTileRows; ++n) scale[n] = panel_scale_to_f32(layout.format, bytes[n]);
    }
    uint32_t words[kTileRows];
    std::memcpy(words, codes + vector * sizeof words, sizeof words);
    for (int i = 0; i < 8; ++i) {
      float* row = out[vector * 8 + i];
      const int shift = 4 * panel_nibble(i);
      for (int n = 0; n < kTileRows; ++n) {
        const auto stored = static_cast<uint8_t>(words[n] >> shift & 15u);
        row[n] = panel_code_to_f32(layout.format, stored) * scale[n];
      }
    }
  }
}

/// acc[lane] += sum over k < count of x[k] * weights[k][lane].
void accumulate_row(const bf16* x, int count, const float (*weights)[kPanelRows], float* acc) {
  F32x4 sum[kVectors];
  std::memcpy(sum, acc, sizeof sum);
  for (int k = 0; k < count; ++k) {
    const float value = bf16_to_f32(x[k]);
    const F32x4 broadcast = {value, value, value, value};
    const F32x4* w = reinterpret_cast<const F32x4*>(weights[k]);
    for (int v = 0; v < kVectors; ++v) sum[v] += broadcast * w[v];
  }
  std::memcpy(acc, sum, sizeof sum);
}

}  // namespace

void multiply_panel(const PackedLayout& layout, const MatrixLayout& matrix, const uint8_t* record,
                    int64_t panel, const bf16* const* rows, int num_rows,
                    float (*acc)[kPanelRows]) {
  alignas(64) float weights[kTileK][kPanelRows];
  std::memset(acc, 0, sizeof(float) * kPanelRows * static_cast<size_t>(num_rows));
  const uint8_t* codes = record + matrix.codes_offset;
  const uint8_t* scales = record + matrix.scales_offset;
  for (int64_t k = 0; k < matrix.k; k += kTileK) {
    for (int half = 0; half < kPanelRows / kTileRows; ++half) {
      const int64_t row = panel * kPanelRows + half * kTileRows;
      decode_tile(layout, codes + code_byte_offset(layout, matrix, row, k),
                  scales + scale_byte_offset(layout, matrix, row, k),
                  reinterpret_cast<float(*)[kPanelRows]>(&weights[0][half * kTileRows]));
    }
    const int count = static_cast<int>(min_of<int64_t>(kTileK, matrix.k - k));
    for (int r = 0; r < num_rows; ++r) accumulate_row(rows[r] + k, count, weights, acc[r]);
  }
}

}  // namespace snug::cpu
