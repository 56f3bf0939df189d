// SPDX-License-Identifier: Apache-2.0
// Where every code, scale and bias of a prepared expert lies. One struct answers for the preparer,
// the planner, the kernels and the tests; nobody else does arithmetic on weight bytes.
//
// An expert is one record, 64-byte aligned:
//   fc1 codes | fc1 scales | fc2 codes | fc2 scales | fc1 bias | fc2 bias | global scales
//
// `plain` keeps the checkpoint's order (gate rows, then up rows; codes [rows, k/2], low nibble
// first). `panel_16x32` is for CPUs:
//   panel = 32 packed rows: 16 gate + 16 up of the same indices, or 32 plain rows
//   tile  = 16 packed rows x 32 k = 256 bytes = u32[4 vectors][16 lanes]; the u32 of (vector j,
//           lane n) holds the eight codes k = 8j .. 8j+7 of row n. Its low half has the even k,
//           its high half the odd ones, lowest nibble first: shifted right by 4r, the two halves
//           begin with the pair k = 8j + 2r, 8j + 2r + 1, as dot-product instructions want it
//   a panel's tiles follow K: (k tile 0: half 0, half 1), (k tile 1: ...), ...
//   scales = u8[groups of the tile][16 lanes] a tile, in the tiles' order
// Both operands of an activation pair therefore meet in one panel. Tiles are stored whole; what
// lies past the logical rows or past k is zero. panel_codes.h says what nibbles and scale bytes
// mean.
#pragma once

#include <cstdint>

#include "base/integers.h"
#include "moe/activation.h"
#include "moe/format.h"
#include "moe/shape.h"

namespace snug {

/// Values are written into prepared weights and checked by bind; append only.
enum class LayoutTag : int32_t {
  plain = 0,
  panel_16x32 = 1,
  record_16x64 = 2,  // CUDA; priced here, packed by the CUDA backend
};

constexpr const char* layout_name(LayoutTag tag) {
  return tag == LayoutTag::plain         ? "plain"
         : tag == LayoutTag::panel_16x32 ? "panel_16x32"
                                         : "record_16x64";
}

inline constexpr int64_t kRecordAlignment = 64;
inline constexpr int kPanelRows = 32;  // packed rows of a panel
inline constexpr int kTileRows = 16;   // packed rows of a tile
inline constexpr int kTileK = 32;
inline constexpr int kTileNbytes = kTileRows * kTileK / 2;

/// Rows that mean something; predicates use these.
struct Rows {
  int64_t value = 0;
};
/// Rows that are stored; addresses use these. No conversion between the two exists.
struct PaddedRows {
  int64_t value = 0;
};

/// One matrix (FC1 with gate and up together, or FC2) of an expert record.
struct MatrixLayout {
  Rows rows;                 // fc1: intermediate * (gated ? 2 : 1); fc2: hidden
  PaddedRows padded_rows;    // stored
  int64_t k = 0;             // logical
  int64_t padded_k = 0;      // stored
  int64_t codes_offset = 0;  // bytes from the record's start
  int64_t scales_offset = 0;
  int64_t bias_offset = 0;  // f32[padded_rows]; meaningless without bias
  int64_t codes_nbytes = 0;
  int64_t scales_nbytes = 0;
};

/// What the preparer found out about an expert's weights; follows the global scales.
enum class RecordFlag : uint32_t {
  none = 0,
  tiny_scales = 1,  // an E8M0 scale below 2^-125: some weight is not a normal bf16
};
/// E8M0 bytes below this one set tiny_scales: half of the scale is still normal.
inline constexpr uint8_t kLeastNormalE8m0 = 2;

/// The record of one expert and the sizes it came from.
struct PackedLayout {
  LayoutTag tag = LayoutTag::plain;
  Format format = Format::nvfp4;
  int32_t hidden = 0;
  int32_t intermediate = 0;
  int32_t num_local_experts = 0;
  bool gated = true;
  bool has_bias = false;
  MatrixLayout fc1;
  MatrixLayout fc2;
  int64_t globals_offset = 0;  // f32[3]: gate (or the only FC1 matrix), up, down; u32 RecordFlag
  int64_t expert_nbytes = 0;   // record to record

  constexpr int64_t total_nbytes() const { return expert_nbytes * num_local_experts; }
};

/// The packed row of logical row `row` of a projection; `up` selects the up matrix of a gated FC1.
SNUG_HD constexpr int64_t packed_row(const PackedLayout& layout, bool fc1, bool up, int64_t row) {
  if (!fc1 || !layout.gated) return row;
  if (layout.tag == LayoutTag::plain) return (up ? layout.intermediate : 0) + row;
  return row / kTileRows * kPanelRows + (up ? kTileRows : 0) + row % kTileRows;
}

/// The nibble, 0..7, of a panel's u32 that holds the k-th of its eight codes.
SNUG_HD constexpr int panel_nibble(int k) { return k % 2 * 4 + k / 2; }

/// Which nibble of its byte holds (row, k): 0 = low.
SNUG_HD constexpr int code_nibble(const PackedLayout& layout, int64_t k) {
  return layout.tag == LayoutTag::plain ? static_cast<int>(k % 2)
                                        : panel_nibble(static_cast<int>(k % 8)) % 2;
}

/// Byte offset, from the matrix's codes, of the pair that holds (packed row, k).
SNUG_HD constexpr int64_t code_byte_offset(const PackedLayout& layout, const MatrixLayout& m,
                                           int64_t row, int64_t k) {
  if (layout.tag == LayoutTag::plain) return row * (m.padded_k / 2) + k / 2;
  const int64_t tile =
      (row / kPanelRows * (m.padded_k / kTileK) + k / kTileK) * 2 + row % kPanelRows / kTileRows;
  const int64_t vector = k % kTileK / 8, lane = row % kTileRows;
  return tile * kTileNbytes + (vector * kTileRows + lane) * 4 +
         panel_nibble(static_cast<int>(k % 8)) / 2;
}

/// Byte offset, from the matrix's scales, of the scale of (packed row, k).
SNUG_HD constexpr int64_t scale_byte_offset(const PackedLayout& layout, const MatrixLayout& m,
                                            int64_t row, int64_t k) {
  const int64_t group = format_info(layout.format).group_size;
  if (layout.tag == LayoutTag::plain) return row * (m.padded_k / group) + k / group;
  const int64_t tile =
      (row / kPanelRows * (m.padded_k / kTileK) + k / kTileK) * 2 + row % kPanelRows / kTileRows;
  const int64_t groups = kTileK / group;
  return (tile * groups + k % kTileK / group) * kTileRows + row % kTileRows;
}

/// The layout of prepared weights. Inputs were checked by check_caps.
constexpr PackedLayout make_packed_layout(LayoutTag tag, Format format, const MoeShape& shape,
                                          ActivationKind activation, bool has_bias) {
  PackedLayout layout;
  layout.tag = tag;
  layout.format = format;
  layout.hidden = shape.hidden;
  layout.intermediate = shape.intermediate;
  layout.num_local_experts = shape.num_local_experts;
  layout.gated = is_gated(activation);
  layout.has_bias = has_bias;

  const int64_t group = format_info(format).group_size;
  const int64_t row_tile = tag == LayoutTag::plain ? 1 : tag == LayoutTag::panel_16x32 ? 32 : 16;
  const int64_t k_tile = tag == LayoutTag::plain ? group : tag == LayoutTag::panel_16x32 ? 32 : 64;
  const int64_t per_element = fc1_rows_per_element(activation);
  // A gated FC1 pads gate and up each to half a tile, so that no tile mixes other indices.
  const int64_t fc1_unit = tag == LayoutTag::plain ? 1 : row_tile / per_element;

  layout.fc1.rows = {shape.intermediate * per_element};
  layout.fc1.padded_rows = {align_up(shape.intermediate, fc1_unit) * per_element};
  layout.fc1.k = shape.hidden;
  layout.fc2.rows = {shape.hidden};
  layout.fc2.padded_rows = {align_up(shape.hidden, row_tile)};
  layout.fc2.k = shape.intermediate;

  int64_t offset = 0;
  const auto take = [&offset](int64_t nbytes) {
    const int64_t at = offset;
    offset = align_up(offset + nbytes, kRecordAlignment);
    return at;
  };
  const auto place = [&](MatrixLayout& m) {
    m.padded_k = align_up(m.k, k_tile);
    m.codes_nbytes = m.padded_rows.value * m.padded_k / 2;
    m.scales_nbytes = m.padded_rows.value * (m.padded_k / group);
    m.codes_offset = take(m.codes_nbytes);
    m.scales_offset = take(m.scales_nbytes);
  };
  place(layout.fc1);
  place(layout.fc2);
  layout.fc1.bias_offset = take(has_bias ? layout.fc1.padded_rows.value * 4 : 0);
  layout.fc2.bias_offset = take(has_bias ? layout.fc2.padded_rows.value * 4 : 0);
  layout.globals_offset = take(4 * 4);
  layout.expert_nbytes = offset;
  return layout;
}

}  // namespace snug
