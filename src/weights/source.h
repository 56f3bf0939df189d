// SPDX-License-Identifier: Apache-2.0
// Where the weights of one expert lie before preparation, with every convention spelled out.
// Nothing here owns memory: the caller or a mapped file does, until prepare returns.
// tidy: no twin, plain data; prepare and checkpoint tests exercise it
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace snug {

/// Which element of a pair sits in the low nibble. Values are part of the C ABI; append only.
enum class NibbleOrder : int32_t { low_first = 0, high_first = 1 };

/// How block scales are stored.
enum class ScaleOrder : int32_t {
  linear = 0,          // [rows, k / group], row-major
  swizzled_128x4 = 1,  // tiles of 128 rows x 4 groups, rows padded to 128, groups to 4
};

/// What the f32 global scale does to code * block scale.
enum class GlobalScaleUse : int32_t { none = 0, multiply = 1, divide = 2 };

/// Which logical rows and columns of a stored matrix belong to this projection and rank:
/// logical (r, k) is stored at (first_row + r * row_step, first_k + k).
struct RowMap {
  int64_t first_row = 0;
  int64_t row_step = 1;  // 2 where gate and up rows alternate
  int64_t first_k = 0;   // a multiple of the format's group
};

/// One projection (gate, up or down) of one expert.
struct MatrixSource {
  const uint8_t* codes = nullptr;   // [stored rows, stored k / 2]
  int64_t code_row_nbytes = 0;      // from one stored row to the next
  const uint8_t* scales = nullptr;  // linear: [stored rows, stored k / group]
  int64_t scale_row_nbytes = 0;     // linear: row to row; swizzled: groups padded to 4
  const void* bias = nullptr;       // [stored rows] or null; indexed through `rows`
  DType bias_dtype = DType::bf16;   // bf16 or f32
  NibbleOrder nibble_order = NibbleOrder::low_first;
  ScaleOrder scale_order = ScaleOrder::linear;
  GlobalScaleUse global_scale_use = GlobalScaleUse::none;
  float global_scale = 1;
  int32_t e8m0_bias = 127;  // exponent bias of E8M0 scale bytes; some producers wrote 125
  RowMap rows;
};

/// One expert. Ungated activations use `gate` for their only FC1 matrix and leave `up` empty.
/// Fused tensors appear as two matrices over the same bytes with different row maps.
struct ExpertSource {
  MatrixSource gate;
  MatrixSource up;
  MatrixSource down;
};

}  // namespace snug
