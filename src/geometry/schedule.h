// SPDX-License-Identifier: Apache-2.0
// Task arithmetic of a layer: chunks of tokens, panels of FC1, column blocks of FC2.
#pragma once

#include <cstdint>

#include "base/integers.h"
#include "geometry/packed_weights.h"

namespace snug {

/// A half-open range of tokens, columns or tasks.
struct Range {
  int64_t first = 0;
  int64_t last = 0;  // one past the end
  SNUG_HD constexpr int64_t size() const { return last - first; }
};

/// Part `index` of `total` cut into pieces of `piece`; the last one may be shorter.
SNUG_HD constexpr Range piece_of(int64_t total, int64_t piece, int64_t index) {
  const int64_t first = index * piece;
  return {first, min_of(first + piece, total)};
}

/// Intermediate elements that one FC1 panel yields: 16 pairs, or 32 rows of an ungated FC1.
SNUG_HD constexpr int fc1_columns_per_panel(bool gated) { return gated ? kTileRows : kPanelRows; }

/// Panels of FC1 and FC2 (both count whole panels; tails are predicated by logical rows).
SNUG_HD constexpr int64_t fc1_panels(const PackedLayout& layout) {
  return ceil_div(layout.intermediate, fc1_columns_per_panel(layout.gated));
}
SNUG_HD constexpr int64_t fc2_panels(const PackedLayout& layout) {
  return ceil_div(layout.hidden, kPanelRows);
}

}  // namespace snug
