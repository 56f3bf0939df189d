// SPDX-License-Identifier: Apache-2.0
// The one mainloop of the portable path: up to 32 activation rows times one panel of 32 packed
// weight rows. A k tile is decoded to f32 once and used by all rows.
//   bytes a panel:  padded_k * (16 + 32 / group)      work: rows * 32 * k multiply-adds
// The sum over k is strictly in order for every (row, column): bits depend on nothing else.
#pragma once

#include "backend/backend.h"

namespace snug::cpu {

inline constexpr int kMaxPanelRows = 32;  // activation rows of one call

/// A panel's first code and first scale.
inline const uint8_t* panel_codes(const PackedLayout& layout, const MatrixLayout& matrix,
                                  const uint8_t* record, int64_t panel) {
  return record + matrix.codes_offset + code_byte_offset(layout, matrix, panel * kPanelRows, 0);
}
inline const uint8_t* panel_scales(const PackedLayout& layout, const MatrixLayout& matrix,
                                   const uint8_t* record, int64_t panel) {
  return record + matrix.scales_offset + scale_byte_offset(layout, matrix, panel * kPanelRows, 0);
}

/// The codes of both tiles that are read `steps_ahead` k tiles after tile `t`: this panel's, or
/// past its end those at `next`. steps_ahead <= k_tiles.
inline const uint8_t* codes_ahead(const uint8_t* codes, const uint8_t* next, int64_t t,
                                  int64_t steps_ahead, int64_t k_tiles) {
  const int64_t ahead = t + steps_ahead;
  return ahead < k_tiles ? codes + ahead * 2 * kTileNbytes
                         : next + (ahead - k_tiles) * 2 * kTileNbytes;
}

/// acc[r][lane] = sum over k of rows[r][k] * code * scale of packed row 32 * panel + lane.
///   rows  [num_rows]      each bf16[matrix.k]; k past the logical end is not read
///   acc   [num_rows][32]  f32, overwritten
void multiply_panel(const PackedLayout& layout, const MatrixLayout& matrix, const uint8_t* record,
                    int64_t panel, const bf16* const* rows, int num_rows, float (*acc)[kPanelRows]);

/// multiply_panel for any number of rows.
inline void multiply_panel_rows(const PackedLayout& layout, const MatrixLayout& matrix,
                                const uint8_t* record, int64_t panel, const bf16* const* rows,
                                int num_rows, float (*acc)[kPanelRows]) {
  for (int first = 0; first < num_rows; first += kMaxPanelRows) {
    multiply_panel(layout, matrix, record, panel, rows + first,
                   min_of(kMaxPanelRows, num_rows - first), acc + first);
  }
}

}  // namespace snug::cpu
