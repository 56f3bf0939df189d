// SPDX-License-Identifier: Apache-2.0
// The 128x4 swizzle in which some producers store block scales.
#pragma once

#include <cstdint>

#include "base/macros.h"

namespace snug {

/// Byte offset of the scale of (row, group) in a matrix whose groups are padded to `padded_groups`,
/// a multiple of 4; rows are padded to 128.
///   tile of 128 rows x 4 groups = 512 bytes: row 32a + b, group c  ->  16 b + 4 a + c
/// Source: the block-scale layout of cuBLAS and CUTLASS for NVFP4.
SNUG_HD constexpr int64_t swizzled_scale_offset(int64_t row, int64_t group, int64_t padded_groups) {
  const int64_t tile = row / 128 * (padded_groups / 4) + group / 4;
  const int64_t in_tile = row % 32 * 16 + row % 128 / 32 * 4 + group % 4;
  return tile * 512 + in_tile;
}

}  // namespace snug
