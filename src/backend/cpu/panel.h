// SPDX-License-Identifier: Apache-2.0
// The one mainloop of the portable path: up to 32 activation rows times one panel of 32 packed
// weight rows. A k tile is decoded to f32 once and used by all rows.
//   bytes a panel:  padded_k * (16 + 32 / group)      work: rows * 32 * k multiply-adds
// The sum over k is strictly in order for every (row, column): bits depend on nothing else.
#pragma once

#include "backend/backend.h"

namespace snug::cpu {

inline constexpr int kMaxPanelRows = 32;  // activation rows of one call

/// acc[r][lane] = sum over k of rows[r][k] * code * scale of packed row 32 * panel + lane.
///   rows  [num_rows]      each bf16[matrix.k]; k past the logical end is not read
///   acc   [num_rows][32]  f32, overwritten
void multiply_panel(const PackedLayout& layout, const MatrixLayout& matrix, const uint8_t* record,
                    int64_t panel, const bf16* const* rows, int num_rows, float (*acc)[kPanelRows]);

}  // namespace snug::cpu
