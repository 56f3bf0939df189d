// SPDX-License-Identifier: Apache-2.0
// One dequantised weight of the plain layout.
#pragma once

#include "backend/backend.h"

namespace snug::reference {

/// code * block scale of (packed row, k): exact in f32.
inline float weight_at(const PackedLayout& layout, const MatrixLayout& matrix,
                       const uint8_t* record, int64_t row, int64_t k) {
  const uint8_t pair = record[matrix.codes_offset + code_byte_offset(layout, matrix, row, k)];
  const uint8_t code = (pair >> (4 * code_nibble(layout, k))) & 15u;
  const uint8_t scale = record[matrix.scales_offset + scale_byte_offset(layout, matrix, row, k)];
  return e2m1_to_f32(code) * scale_to_f32(layout.format, scale);
}

}  // namespace snug::reference
