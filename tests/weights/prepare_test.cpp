// SPDX-License-Identifier: Apache-2.0
#include "weights/prepare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "geometry/panel_codes.h"
#include "support/layer.h"

namespace snug {
namespace {

using test::GuardedMemory;
using test::LayerOptions;
using test::RandomLayer;
using test::StoredExpert;
using test::StoredMatrix;

constexpr LayoutTag kCpuLayouts[] = {LayoutTag::plain, LayoutTag::panel_16x32};
constexpr Format kFormats[] = {Format::nvfp4, Format::mxfp4};

#define EXPECT_HAS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "have: " << (text)

PackedLayout layout_of(const LayerOptions& o, LayoutTag tag) {
  return make_packed_layout(tag, o.format,
                            {o.hidden, o.intermediate, o.num_experts, o.num_experts, 1},
                            o.activation.kind, o.has_bias);
}

/// A record by the headers' words alone: padding, then every code, scale and bias set one by one.
/// What the preparer may not do (touch padding, lose a row) is any byte that differs.
class Expected {
 public:
  explicit Expected(const PackedLayout& layout)
      : layout_(layout), bytes_(static_cast<size_t>(layout.expert_nbytes), 0) {
    if (layout.tag != LayoutTag::panel_16x32) return;
    for (const MatrixLayout* m : {&layout.fc1, &layout.fc2}) {
      std::fill_n(bytes_.begin() + m->codes_offset, m->codes_nbytes,
                  panel_zero_pair(layout.format));
    }
  }

  void add(const StoredMatrix& m, bool fc1, bool up, int global_index) {
    const MatrixLayout& matrix = fc1 ? layout_.fc1 : layout_.fc2;
    for (int64_t row = 0; row < m.rows; ++row) {
      const int64_t packed = packed_row(layout_, fc1, up, row);
      for (int64_t k = 0; k < m.k; ++k) {
        auto code = static_cast<uint8_t>(m.code_at(row, k));
        uint8_t scale = m.scale_at(row, k);
        if (layout_.tag == LayoutTag::panel_16x32) {
          normalise(&code, &scale);
          if (m.format == Format::mxfp4 && scale < 2) tiny_ = true;
        }
        uint8_t& pair = at(matrix.codes_offset + code_byte_offset(layout_, matrix, packed, k));
        const int shift = 4 * code_nibble(layout_, k);
        pair = static_cast<uint8_t>((pair & ~(15 << shift)) | code << shift);
        at(matrix.scales_offset + scale_byte_offset(layout_, matrix, packed, k)) = scale;
      }
      if (!m.bias.empty()) {
        set_f32(matrix.bias_offset + 4 * packed, m.bias[static_cast<size_t>(row)]);
      }
    }
    set_f32(layout_.globals_offset + 4 * global_index, m.global);
    if (tiny_) at(layout_.globals_offset + 12) = 1;
  }

  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  uint8_t& at(int64_t offset) { return bytes_.at(static_cast<size_t>(offset)); }
  void set_f32(int64_t offset, float value) { std::memcpy(&at(offset), &value, 4); }

  /// As panel_codes.h says: NVFP4 scales become positive and fp16, magnitudes 0 and 1 trade places.
  void normalise(uint8_t* code, uint8_t* scale) const {
    if (layout_.format == Format::mxfp4) return;
    if (*scale >= 128) {
      *scale &= 127;
      *code ^= 8;
    }
    if (*scale == 0) {
      *scale = kPanelOne;
      *code = 0;
    } else {
      *scale = panel_scale(Format::nvfp4, *scale);
    }
    *code = panel_code(Format::nvfp4, *code);
  }

  bool tiny_ = false;
  PackedLayout layout_;
  std::vector<uint8_t> bytes_;
};

std::vector<uint8_t> expected_record(const PackedLayout& layout, const StoredExpert& e) {
  Expected expected(layout);
  expected.add(e.gate, true, false, 0);
  if (layout.gated) expected.add(e.up, true, true, 1);
  expected.add(e.down, false, false, 2);
  return expected.bytes();
}

/// Prepares one expert into a record full of 0xFF that ends at an unmapped page.
std::vector<uint8_t> record_of(const PackedLayout& layout, const ExpertSource& source,
                               Status* status = nullptr, int32_t expert = 3) {
  GuardedMemory memory(static_cast<uint64_t>(layout.expert_nbytes), kRecordAlignment,
                       GuardedMemory::Edge::back);
  const Status made = prepare_expert(layout, source, expert, static_cast<uint8_t*>(memory.data()));
  if (status != nullptr) {
    *status = made;
  } else {
    EXPECT_TRUE(made.ok()) << made.message;
  }
  memory.check_canary();
  const auto* bytes = static_cast<const uint8_t*>(memory.data());
  return std::vector<uint8_t>(bytes, bytes + memory.nbytes());
}

Status status_of(const PackedLayout& layout, const ExpertSource& source) {
  Status status;
  (void)record_of(layout, source, &status);
  return status;
}

LayerOptions one_expert(Format format, int32_t hidden, int32_t intermediate,
                        ActivationKind kind = ActivationKind::silu, bool bias = false) {
  LayerOptions options;
  options.format = format;
  options.hidden = hidden;
  options.intermediate = intermediate;
  options.activation = {kind};
  options.has_bias = bias;
  options.num_experts = options.top_k = 1;
  options.max_tokens = 1;
  options.seed = static_cast<uint32_t>(hidden * 7 + intermediate);
  return options;
}

// --- identity ---------------------------------------------------------------------------------

TEST(Prepare, EveryCodeScaleAndBiasArrivesAndPaddingIsZero) {
  for (const Format format : kFormats) {
    const int32_t group = format_info(format).group_size;
    for (const ActivationKind kind : {ActivationKind::silu, ActivationKind::relu2}) {
      for (const bool bias : {false, true}) {
        for (int32_t h = 1; h <= 7; ++h) {
          for (int32_t i = 1; i <= 7; ++i) {
            const RandomLayer layer(one_expert(format, h * group, i * group, kind, bias));
            for (const LayoutTag tag : kCpuLayouts) {
              const PackedLayout layout = layout_of(layer.options, tag);
              ASSERT_EQ(record_of(layout, layer.source(0)),
                        expected_record(layout, layer.experts[0]))
                  << layout_name(tag) << " H " << h * group << " I " << i * group;
            }
          }
        }
      }
    }
  }
}

/// The same matrix in another producer's conventions, in memory of its own.
struct Rewritten {
  std::vector<uint8_t> codes, scales;
  std::vector<bf16> bias;
  MatrixSource source;

  /// Rows lie at first_row + r * row_step among noise, columns after first_k of noise.
  Rewritten(const StoredMatrix& m, NibbleOrder nibbles, ScaleOrder order, RowMap map) {
    const int64_t group = m.group(), k = map.first_k + m.k + group, groups = k / group;
    const int64_t rows = map.first_row + m.rows * map.row_step + 1;
    const int64_t padded = order == ScaleOrder::linear ? groups : (groups + 3) / 4 * 4;
    const int64_t row_nbytes = k / 2 + 3;  // rows need not be dense
    codes.assign(static_cast<size_t>(rows * row_nbytes), 0x9E);
    scales.assign(static_cast<size_t>((rows + 127) / 128 * 128 * padded), 0xFF);  // NaN
    bias.assign(m.bias.empty() ? 0 : static_cast<size_t>(rows), bf16{0x7FC0});
    for (int64_t r = 0; r < m.rows; ++r) {
      const int64_t stored = map.first_row + r * map.row_step;
      for (int64_t c = 0; c < m.k; ++c) {
        const int64_t at = map.first_k + c;
        uint8_t& pair = codes[static_cast<size_t>(stored * row_nbytes + at / 2)];
        const bool low = (at % 2 == 0) == (nibbles == NibbleOrder::low_first);
        pair = static_cast<uint8_t>(low ? (pair & 0xF0) | m.code_at(r, c)
                                        : (pair & 0x0F) | m.code_at(r, c) << 4);
        const int64_t g = at / group;
        // The 128x4 tiles of cuBLAS, written from their description.
        const int64_t swizzled = (stored / 128 * (padded / 4) + g / 4) * 512 + stored % 32 * 16 +
                                 stored % 128 / 32 * 4 + g % 4;
        scales[static_cast<size_t>(order == ScaleOrder::linear ? stored * padded + g : swizzled)] =
            m.scale_at(r, c);
      }
      if (!m.bias.empty()) {
        bias[static_cast<size_t>(stored)] = f32_to_bf16(m.bias[static_cast<size_t>(r)]);
      }
    }
    source = m.source();
    source.codes = codes.data();
    source.code_row_nbytes = row_nbytes;
    source.scales = scales.data();
    source.scale_row_nbytes = padded;
    source.bias = bias.empty() ? nullptr : bias.data();
    source.bias_dtype = DType::bf16;
    source.nibble_order = nibbles;
    source.scale_order = order;
    source.rows = map;
  }
};

TEST(Prepare, ConventionsChangeNoByteOfTheRecord) {
  for (const Format format : kFormats) {
    const int32_t group = format_info(format).group_size;
    for (const int32_t groups : {1, 3, 5}) {
      const RandomLayer layer(one_expert(format, groups * group, 160, ActivationKind::silu, true));
      const StoredExpert& e = layer.experts[0];
      for (const LayoutTag tag : kCpuLayouts) {
        const PackedLayout layout = layout_of(layer.options, tag);
        const std::vector<uint8_t> want = expected_record(layout, e);
        for (const NibbleOrder nibbles : {NibbleOrder::low_first, NibbleOrder::high_first}) {
          for (const ScaleOrder order : {ScaleOrder::linear, ScaleOrder::swizzled_128x4}) {
            for (const RowMap map : {RowMap{0, 1, 0}, RowMap{5, 1, 2 * group}, RowMap{1, 2, 0},
                                     RowMap{130, 3, 5 * group}}) {
              const Rewritten gate(e.gate, nibbles, order, map), up(e.up, nibbles, order, map),
                  down(e.down, nibbles, order, map);
              ASSERT_EQ(record_of(layout, {gate.source, up.source, down.source}), want)
                  << layout_name(tag) << " nibbles " << static_cast<int>(nibbles) << " scales "
                  << static_cast<int>(order) << " map " << map.first_row << " " << map.row_step
                  << " " << map.first_k;
            }
          }
        }
      }
    }
  }
}

// One fused tensor, read twice through two row maps: alternating rows, or gate above up.
TEST(Prepare, FusedGateAndUpAreTwoMapsOverOneTensor) {
  const RandomLayer layer(one_expert(Format::mxfp4, 64, 96, ActivationKind::silu, true));
  const StoredExpert& e = layer.experts[0];
  for (const bool alternating : {true, false}) {
    StoredMatrix fused = e.gate;
    fused.rows = 192;
    fused.codes.clear(), fused.scales.clear(), fused.bias.clear();
    for (int64_t row = 0; row < 192; ++row) {
      const bool up = alternating ? row % 2 == 1 : row >= 96;
      const StoredMatrix& from = up ? e.up : e.gate;
      const auto at = static_cast<size_t>(alternating ? row / 2 : row % 96);
      const auto* codes = from.codes.data() + at * 32;
      const auto* scales = from.scales.data() + at * 2;
      fused.codes.insert(fused.codes.end(), codes, codes + 32);
      fused.scales.insert(fused.scales.end(), scales, scales + 2);
      fused.bias.push_back(from.bias[at]);
    }
    ExpertSource source = layer.source(0);
    source.gate = source.up = fused.source();
    source.gate.rows = alternating ? RowMap{0, 2, 0} : RowMap{0, 1, 0};
    source.up.rows = alternating ? RowMap{1, 2, 0} : RowMap{96, 1, 0};
    for (const LayoutTag tag : kCpuLayouts) {
      const PackedLayout layout = layout_of(layer.options, tag);
      ASSERT_EQ(record_of(layout, source), expected_record(layout, e)) << alternating;
    }
  }
}

// The defect of truncated scale tiles: every number of rows keeps every row's scale. Rows have a
// scale each, so a swap shows too.
TEST(Prepare, EveryNumberOfRowsKeepsItsScales) {
  for (const ActivationKind kind : {ActivationKind::silu, ActivationKind::relu2}) {
    for (const LayoutTag tag : kCpuLayouts) {
      for (int32_t rows = 1; rows <= 200; ++rows) {
        RandomLayer layer(one_expert(Format::nvfp4, 32, 208, kind));
        StoredExpert& e = layer.experts[0];
        for (StoredMatrix* m : {&e.gate, &e.up}) {
          if (m->rows == 0) continue;
          m->rows = rows;
          for (int64_t r = 0; r < rows; ++r) {
            const auto byte = static_cast<uint8_t>(m == &e.gate ? r % 127 : 126 - r % 127);
            m->set_scale(r, 0, r < 127 ? byte : static_cast<uint8_t>(byte | 0x80));
            m->set_scale(r, 16, static_cast<uint8_t>((byte + 1) % 127));
          }
        }
        // Any number of FC1 rows, whole groups of FC2's columns: the preparer's own limits.
        PackedLayout layout = layout_of(one_expert(Format::nvfp4, 32, rows, kind), tag);
        layout.fc2.k = e.down.k = align_up(rows, 16);
        e.down.codes.resize(static_cast<size_t>(e.down.rows * e.down.k / 2));
        e.down.scales.resize(static_cast<size_t>(e.down.rows * e.down.k / 16));
        ASSERT_EQ(record_of(layout, layer.source(0)), expected_record(layout, e))
            << layout_name(tag) << " rows " << rows;
      }
    }
  }
}

// 130 rows, 256 columns, two experts: sizes that are no multiple of any tile. The layer is refused
// by name before it is prepared; packed all the same, it stays inside its bytes.
TEST(Prepare, SizesOfNoTileAreRefusedByNameOrStayInside) {
  Caps caps = test::make_caps(2, 1, 256, 130, 8);
  caps.format = Format::mxfp4;
  const Status refused = check_caps(caps);
  EXPECT_EQ(refused.code, Code::unsupported);
  EXPECT_HAS(refused.message, "intermediate: have 130");

  LayerOptions options = one_expert(Format::mxfp4, 256, 160);
  options.num_experts = 2;
  RandomLayer layer(options);
  for (const LayoutTag tag : kCpuLayouts) {
    PackedLayout layout =
        make_packed_layout(tag, Format::mxfp4, {256, 130, 2, 2, 1}, ActivationKind::silu, false);
    layout.fc2.k = 160;
    for (StoredExpert& e : layer.experts) e.gate.rows = e.up.rows = 130;
    const GuardedMemory memory = test::prepare(layer, layout);
    const auto* bytes = static_cast<const uint8_t*>(memory.data());
    for (size_t e = 0; e < 2; ++e) {
      const std::vector<uint8_t> want = expected_record(layout, layer.experts[e]);
      EXPECT_EQ(std::memcmp(bytes + static_cast<int64_t>(e) * layout.expert_nbytes, want.data(),
                            want.size()),
                0);
    }
  }
}

// --- values -----------------------------------------------------------------------------------

TEST(Prepare, ScalesThatAreNoNumbersAreRefusedWithTheirPlace) {
  struct Bad {
    Format format;
    int byte;
  };
  for (const Bad& bad :
       {Bad{Format::nvfp4, 0x7F}, Bad{Format::nvfp4, 0xFF}, Bad{Format::mxfp4, 255}}) {
    for (const LayoutTag tag : kCpuLayouts) {
      for (const char* projection : {"gate", "up", "down"}) {
        RandomLayer layer(one_expert(bad.format, 96, 96));
        StoredExpert& e = layer.experts[0];
        StoredMatrix& m = *projection == 'g' ? e.gate : *projection == 'u' ? e.up : e.down;
        m.set_all(0);  // a NaN scale is refused whatever it multiplies
        m.set_scale(61, 64, static_cast<uint8_t>(bad.byte));
        const Status status = status_of(layout_of(layer.options, tag), layer.source(0));
        EXPECT_EQ(status.code, Code::corrupt_checkpoint);
        EXPECT_HAS(status.message,
                   std::string("expert 3 ") + projection + " row 61: scale byte 0x");
        EXPECT_HAS(status.message, "of group " + std::to_string(64 / m.group()) + " is NaN");
      }
    }
  }
}

// Every byte of E8M0 with every code: refused when, and only when, the product is no f32.
TEST(Prepare, AScaleMayBeAsLargeAsItsCodesAllow) {
  const PackedLayout layout = layout_of(one_expert(Format::mxfp4, 64, 32), LayoutTag::panel_16x32);
  RandomLayer layer(one_expert(Format::mxfp4, 64, 32));
  StoredMatrix& gate = layer.experts[0].gate;
  int refused = 0;
  for (int byte = 0; byte < 255; ++byte) {
    for (int code = 0; code < 16; ++code) {
      gate.set_all(0);
      gate.set_scale(17, 32, static_cast<uint8_t>(byte));
      gate.set_code(17, 63, code);
      const bool finite = std::fabs(gate.weight(17, 63)) <= static_cast<double>(FLT_MAX);
      const Status status = status_of(layout, layer.source(0));
      ASSERT_EQ(status.ok(), finite) << byte << " " << code << " " << status.message;
      if (finite) continue;
      ++refused;
      ASSERT_EQ(status.code, Code::corrupt_checkpoint);
      EXPECT_HAS(status.message, "expert 3 gate row 17");
      EXPECT_HAS(status.message, "makes a weight infinite");
    }
  }
  EXPECT_EQ(refused, 2 * (2 + 4));  // 2^126 times 4 and 6; 2^127 times 2, 3, 4 and 6
}

TEST(Prepare, E4m3SubnormalsZerosAndNegativesAreKept) {
  RandomLayer layer(one_expert(Format::nvfp4, 256, 32));
  StoredMatrix& gate = layer.experts[0].gate;
  for (int byte = 0; byte < 256; ++byte) {
    if (byte % 128 == 127) continue;
    gate.set_scale(byte / 16, byte % 16 * 16, static_cast<uint8_t>(byte));
  }
  for (const LayoutTag tag : kCpuLayouts) {
    const PackedLayout layout = layout_of(layer.options, tag);
    EXPECT_EQ(record_of(layout, layer.source(0)), expected_record(layout, layer.experts[0]));
  }
}

TEST(Prepare, GlobalScalesMultiplyOrDivide) {
  const RandomLayer layer(one_expert(Format::nvfp4, 32, 32));
  const PackedLayout layout = layout_of(layer.options, LayoutTag::plain);
  ExpertSource source = layer.source(0);
  source.gate.global_scale = 8;
  source.up.global_scale = 8;
  source.up.global_scale_use = GlobalScaleUse::divide;
  source.down.global_scale = 3;
  source.down.global_scale_use = GlobalScaleUse::divide;
  const std::vector<uint8_t> record = record_of(layout, source);
  float globals[3];
  std::memcpy(globals, record.data() + layout.globals_offset, sizeof globals);
  EXPECT_EQ(globals[0], 8.0f);
  EXPECT_EQ(globals[1], 0.125f);
  EXPECT_EQ(globals[2], 1.0f / 3);

  source.up.global_scale = 1e-39f;  // a subnormal: its reciprocal is no f32
  const Status status = status_of(layout, source);
  EXPECT_FALSE(status.ok());
  EXPECT_HAS(status.message, "expert 3 up: the reciprocal");
}

TEST(Prepare, GlobalScalesThatScaleNothingAreRefused) {
  const RandomLayer layer(one_expert(Format::nvfp4, 32, 32));
  const PackedLayout layout = layout_of(layer.options, LayoutTag::panel_16x32);
  for (const float bad : {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, -1.0f}) {
    for (int p = 0; p < 3; ++p) {
      for (const GlobalScaleUse use : {GlobalScaleUse::multiply, GlobalScaleUse::divide}) {
        ExpertSource source = layer.source(0);
        MatrixSource& m = p == 0 ? source.gate : p == 1 ? source.up : source.down;
        m.global_scale = bad;
        m.global_scale_use = use;
        const Status status = status_of(layout, source);
        EXPECT_EQ(status.code, Code::corrupt_checkpoint) << bad;
        const char* names[] = {"gate", "up", "down"};
        EXPECT_HAS(status.message, std::string("expert 3 ") + names[p] + ": global scale is");
      }
    }
  }
}

TEST(Prepare, AnotherExponentBiasIsMovedToTheFormats) {
  RandomLayer layer(one_expert(Format::mxfp4, 64, 32));
  StoredExpert moved = layer.experts[0];
  ExpertSource source = layer.source(0);
  source.gate.e8m0_bias = 125;  // the byte means 2^(byte - 125)
  for (uint8_t& scale : moved.gate.scales) scale = static_cast<uint8_t>(scale + 2);
  for (const LayoutTag tag : kCpuLayouts) {
    const PackedLayout layout = layout_of(layer.options, tag);
    EXPECT_EQ(record_of(layout, source), expected_record(layout, moved));
  }
  layer.experts[0].gate.set_all(0);
  layer.experts[0].gate.set_scale(4, 0, 253);  // 2^128
  const Status status = status_of(layout_of(layer.options, LayoutTag::plain), source);
  EXPECT_EQ(status.code, Code::corrupt_checkpoint);
  EXPECT_HAS(status.message, "expert 3 gate row 4");
}

TEST(Prepare, BiasesThatAreNotFiniteAreRefused) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (int p = 0; p < 3; ++p) {
      RandomLayer layer(one_expert(Format::nvfp4, 32, 32, ActivationKind::silu, true));
      StoredExpert& e = layer.experts[0];
      (p == 0 ? e.gate : p == 1 ? e.up : e.down).bias[9] = bad;
      const Status status = status_of(layout_of(layer.options, LayoutTag::plain), layer.source(0));
      EXPECT_EQ(status.code, Code::corrupt_checkpoint);
      const char* names[] = {"gate", "up", "down"};
      EXPECT_HAS(status.message, std::string("expert 3 ") + names[p] + " row 9: bias");
    }
  }
}

// A mapped file aligns nothing: a bias may start at an odd address.
TEST(Prepare, ABiasNeedsNoAlignment) {
  const RandomLayer layer(one_expert(Format::nvfp4, 32, 32, ActivationKind::silu, true));
  const PackedLayout layout = layout_of(layer.options, LayoutTag::plain);
  const StoredMatrix& down = layer.experts[0].down;
  std::vector<uint8_t> shifted(1 + down.bias.size() * 4);
  std::memcpy(shifted.data() + 1, down.bias.data(), down.bias.size() * 4);
  ExpertSource source = layer.source(0);
  source.down.bias = shifted.data() + 1;
  EXPECT_EQ(record_of(layout, source), expected_record(layout, layer.experts[0]));
}

// --- what a source may not be -----------------------------------------------------------------

struct Refusal {
  const char* what;  // in the message, after expert and projection
  std::function<void(MatrixSource&)> change;
};

void expect_each_refused(Format format, bool bias, const std::vector<Refusal>& refusals) {
  const RandomLayer layer(one_expert(format, 64, 96, ActivationKind::silu, bias));
  for (const Refusal& refusal : refusals) {
    for (const LayoutTag tag : kCpuLayouts) {
      for (int p = 0; p < 3; ++p) {
        ExpertSource source = layer.source(0);
        refusal.change(p == 0 ? source.gate : p == 1 ? source.up : source.down);
        const Status status = status_of(layout_of(layer.options, tag), source);
        EXPECT_EQ(status.code, Code::invalid_argument) << refusal.what;
        const char* names[] = {"gate", "up", "down"};
        EXPECT_HAS(status.message, std::string("expert 3 ") + names[p] + ": ");
        EXPECT_HAS(status.message, refusal.what);
      }
    }
  }
}

TEST(Prepare, MissingPartsAndImpossibleSourcesAreNamed) {
  const std::vector<Refusal> both = {
      {"codes are missing", [](MatrixSource& m) { m.codes = nullptr; }},
      {"scales are missing", [](MatrixSource& m) { m.scales = nullptr; }},
      {"code_row_nbytes", [](MatrixSource& m) { m.code_row_nbytes = 31; }},
      {"scale_row_nbytes is shorter", [](MatrixSource& m) { m.scale_row_nbytes = 1; }},
      {"code_row_nbytes", [](MatrixSource& m) { m.rows.first_k = 64; }},
      {"first_row", [](MatrixSource& m) { m.rows.first_row = -1; }},
      {"row_step", [](MatrixSource& m) { m.rows.row_step = 0; }},
      {"first_k", [](MatrixSource& m) { m.rows.first_k = -32; }},
      {"first_k", [](MatrixSource& m) { m.rows.first_k = 8; }},
  };
  expect_each_refused(Format::nvfp4, false, both);
  expect_each_refused(Format::mxfp4, false, both);
  expect_each_refused(
      Format::nvfp4, false,
      {{"global scale is missing",
        [](MatrixSource& m) { m.global_scale_use = GlobalScaleUse::none; }},
       {"e8m0_bias", [](MatrixSource& m) { m.e8m0_bias = 125; }},
       {"padded to 4",
        [](MatrixSource& m) {
          m.scale_order = ScaleOrder::swizzled_128x4;
          m.scale_row_nbytes = 7;
        }},
       {"has a bias, the layer has none", [](MatrixSource& m) { m.bias = m.codes; }}});
  expect_each_refused(Format::mxfp4, false,
                      {{"has a global scale",
                        [](MatrixSource& m) { m.global_scale_use = GlobalScaleUse::multiply; }},
                       {"first_k", [](MatrixSource& m) { m.rows.first_k = 16; }},
                       {"e8m0_bias", [](MatrixSource& m) { m.e8m0_bias = -1; }},
                       {"e8m0_bias", [](MatrixSource& m) { m.e8m0_bias = 255; }}});
  expect_each_refused(Format::nvfp4, true,
                      {{"bias dtype", [](MatrixSource& m) { m.bias_dtype = DType::f16; }}});
}

TEST(Prepare, ABiasMayOnlyBeMissingFromDown) {
  const RandomLayer layer(one_expert(Format::nvfp4, 32, 32, ActivationKind::silu, true));
  const PackedLayout layout = layout_of(layer.options, LayoutTag::plain);
  ExpertSource source = layer.source(0);
  source.gate.bias = nullptr;
  EXPECT_HAS(status_of(layout, source).message, "expert 3 gate: bias is missing");
  source = layer.source(0);
  source.up.bias = nullptr;
  EXPECT_HAS(status_of(layout, source).message, "expert 3 up: bias is missing");
  source = layer.source(0);
  source.down.bias = nullptr;  // a rank above 0
  StoredExpert want = layer.experts[0];
  want.down.bias.clear();
  EXPECT_EQ(record_of(layout, source), expected_record(layout, want));
}

TEST(Prepare, AnUngatedExpertHasNoUp) {
  const RandomLayer layer(one_expert(Format::nvfp4, 32, 32, ActivationKind::relu2));
  const PackedLayout layout = layout_of(layer.options, LayoutTag::plain);
  ExpertSource source = layer.source(0);
  source.up = source.gate;
  const Status status = status_of(layout, source);
  EXPECT_EQ(status.code, Code::invalid_argument);
  EXPECT_HAS(status.message, "expert 3 up");
}

TEST(Prepare, TheCudaLayoutIsNotPackedHere) {
  const RandomLayer layer(one_expert(Format::nvfp4, 32, 32));
  const Status status =
      status_of(layout_of(layer.options, LayoutTag::record_16x64), layer.source(0));
  EXPECT_EQ(status.code, Code::unsupported);
  EXPECT_HAS(status.message, "record_16x64");
}

// --- shards -----------------------------------------------------------------------------------

/// Rows first..first+count-1 and columns of a matrix, cut out the plain way.
StoredMatrix cut(const StoredMatrix& m, int64_t first_row, int64_t rows, int64_t first_k,
                 int64_t k) {
  StoredMatrix part = m;
  part.rows = rows;
  part.k = k;
  part.codes.assign(static_cast<size_t>(rows * k / 2), 0);
  part.scales.assign(static_cast<size_t>(rows * k / m.group()), 0);
  part.bias.clear();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < k; ++c) {
      part.set_code(r, c, m.code_at(first_row + r, first_k + c));
      part.set_scale(r, c, m.scale_at(first_row + r, first_k + c));
    }
    if (!m.bias.empty()) part.bias.push_back(m.bias[static_cast<size_t>(first_row + r)]);
  }
  return part;
}

TEST(PrepareShard, RanksHoldTheirRowsAndColumns) {
  for (const Format format : kFormats) {
    for (const ActivationKind kind : {ActivationKind::silu, ActivationKind::relu2}) {
      for (const bool bias : {false, true}) {
        const RandomLayer layer(one_expert(format, 96, 192, kind, bias));
        const StoredExpert& whole = layer.experts[0];
        for (const int32_t ranks : {1, 2, 3, 6}) {
          const int32_t share = 192 / ranks;
          const PackedLayout layout =
              layout_of(one_expert(format, 96, share, kind, bias), LayoutTag::panel_16x32);
          for (int32_t rank = 0; rank < ranks; ++rank) {
            const Result<ExpertSource> shard =
                shard_expert(layer.source(0), format, 192, rank, ranks);
            ASSERT_TRUE(shard.has_value()) << shard.error().message;
            StoredExpert want;
            want.gate = cut(whole.gate, rank * share, share, 0, 96);
            if (is_gated(kind)) want.up = cut(whole.up, rank * share, share, 0, 96);
            want.down = cut(whole.down, 0, 96, rank * share, share);
            if (rank > 0) want.down.bias.clear();
            ASSERT_EQ(record_of(layout, *shard), expected_record(layout, want))
                << rank << " of " << ranks;
          }
        }
      }
    }
  }
}

TEST(PrepareShard, RowMapsAreStepped) {
  ExpertSource source;
  source.gate.rows = {0, 2, 0};
  source.up.rows = {1, 2, 0};
  source.down.rows = {7, 1, 32};
  const Result<ExpertSource> shard = shard_expert(source, Format::mxfp4, 128, 3, 4);
  ASSERT_TRUE(shard.has_value());
  EXPECT_EQ(shard->gate.rows.first_row, 2 * 96);
  EXPECT_EQ(shard->up.rows.first_row, 1 + 2 * 96);
  EXPECT_EQ(shard->up.rows.row_step, 2);
  EXPECT_EQ(shard->down.rows.first_row, 7);
  EXPECT_EQ(shard->down.rows.first_k, 32 + 96);
}

TEST(PrepareShard, ACutGroupOrAStrangeRankIsRefused) {
  const ExpertSource source;
  struct Bad {
    Format format;
    int64_t intermediate;
    int32_t ranks;
  };
  for (const Bad& bad : {Bad{Format::nvfp4, 64, 3}, Bad{Format::nvfp4, 48, 2},
                         Bad{Format::mxfp4, 96, 2}, Bad{Format::mxfp4, 2880, 8}}) {
    const Result<ExpertSource> shard =
        shard_expert(source, bad.format, bad.intermediate, 0, bad.ranks);
    ASSERT_FALSE(shard.has_value());
    EXPECT_EQ(shard.error().code, Code::unsupported);
    EXPECT_HAS(shard.error().message, "intermediate: " + std::to_string(bad.intermediate));
  }
  for (const auto& [rank, ranks] : {std::pair{-1, 2}, {2, 2}, {0, 0}, {0, -1}}) {
    const Result<ExpertSource> shard = shard_expert(source, Format::nvfp4, 64, rank, ranks);
    ASSERT_FALSE(shard.has_value());
    EXPECT_EQ(shard.error().code, Code::invalid_argument);
    EXPECT_HAS(shard.error().message, "rank");
  }
}

// --- the builder ------------------------------------------------------------------------------

LayerOptions several_experts(int32_t count) {
  LayerOptions options;
  options.num_experts = count;
  options.max_tokens = 1;
  return options;
}

struct Storage {
  PackedLayout layout;
  GuardedMemory memory;
  Result<WeightsBuilder> builder;

  explicit Storage(const LayerOptions& options)
      : layout(layout_of(options, LayoutTag::panel_16x32)),
        memory(static_cast<uint64_t>(layout.total_nbytes()), kRecordAlignment,
               GuardedMemory::Edge::back),
        builder(
            WeightsBuilder::make(layout, static_cast<uint8_t*>(memory.data()), memory.nbytes())) {
    EXPECT_TRUE(builder.has_value());
  }
  std::vector<uint8_t> bytes() const {
    const auto* data = static_cast<const uint8_t*>(memory.data());
    return std::vector<uint8_t>(data, data + memory.nbytes());
  }
};

TEST(WeightsBuilder, StorageIsChecked) {
  const PackedLayout layout = layout_of(several_experts(3), LayoutTag::plain);
  const auto need = static_cast<uint64_t>(layout.total_nbytes());
  GuardedMemory memory(need, kRecordAlignment, GuardedMemory::Edge::back);
  auto* data = static_cast<uint8_t*>(memory.data());
  EXPECT_TRUE(WeightsBuilder::make(layout, data, need).has_value());
  Status status = WeightsBuilder::make(layout, data, need - 1).error();
  EXPECT_EQ(status.code, Code::arena_too_small);
  EXPECT_HAS(status.message, "the weights need " + std::to_string(need));
  status = WeightsBuilder::make(layout, nullptr, need).error();
  EXPECT_EQ(status.code, Code::invalid_argument);
  EXPECT_HAS(status.message, "storage: is null");
  status = WeightsBuilder::make(layout, data + 32, need).error();
  EXPECT_EQ(status.code, Code::misaligned);
  EXPECT_HAS(status.message, "storage");
  for (uint64_t i = 0; i < need; ++i) ASSERT_EQ(data[i], 0xFF) << "make wrote";
}

TEST(WeightsBuilder, AnEmptyRankIsComplete) {
  const PackedLayout layout = layout_of(several_experts(0), LayoutTag::plain);
  const Result<WeightsBuilder> builder = WeightsBuilder::make(layout, nullptr, 0);
  ASSERT_TRUE(builder.has_value());
  EXPECT_TRUE(builder->check_complete().ok());
}

TEST(WeightsBuilder, EveryExpertArrivesExactlyOnce) {
  const RandomLayer layer(several_experts(3));
  Storage storage(layer.options);
  WeightsBuilder& builder = *storage.builder;
  EXPECT_EQ(builder.data(), storage.memory.data());
  EXPECT_HAS(builder.check_complete().message, "expert 0 of 3 has not been prepared");
  EXPECT_TRUE(builder.put(0, layer.source(0)).ok());
  EXPECT_TRUE(builder.put(2, layer.source(2)).ok());
  EXPECT_HAS(builder.check_complete().message, "expert 1 of 3 has not been prepared");
  const Status twice = builder.put(2, layer.source(2));
  EXPECT_EQ(twice.code, Code::invalid_argument);
  EXPECT_HAS(twice.message, "expert 2: has already arrived");
  for (const int32_t bad : {-1, 3}) {
    const Status status = builder.put(bad, layer.source(0));
    EXPECT_EQ(status.code, Code::invalid_argument);
    EXPECT_HAS(status.message, "expert: have " + std::to_string(bad) + ", need 0..2");
  }
  EXPECT_TRUE(builder.put(1, layer.source(1)).ok());
  EXPECT_TRUE(builder.check_complete().ok());
  std::vector<uint8_t> want;
  for (const StoredExpert& e : layer.experts) {
    const std::vector<uint8_t> record = expected_record(storage.layout, e);
    want.insert(want.end(), record.begin(), record.end());
  }
  EXPECT_EQ(storage.bytes(), want);
}

TEST(WeightsBuilder, AFailedExpertMayComeAgain) {
  RandomLayer layer(several_experts(1));
  Storage storage(layer.options);
  ExpertSource bad = layer.source(0);
  bad.down.scales = nullptr;
  EXPECT_FALSE(storage.builder->put(0, bad).ok());
  EXPECT_FALSE(storage.builder->check_complete().ok());
  EXPECT_TRUE(storage.builder->put(0, layer.source(0)).ok());
  EXPECT_TRUE(storage.builder->check_complete().ok());
}

TEST(WeightsBuilder, UpdateRewritesOneExpertInPlace) {
  RandomLayer layer(several_experts(3));
  Storage storage(layer.options);
  WeightsBuilder& builder = *storage.builder;
  EXPECT_HAS(builder.update(1, layer.source(1)).message, "only a prepared expert is updated");
  for (int32_t e = 0; e < 3; ++e) ASSERT_TRUE(builder.put(e, layer.source(e)).ok());
  const std::vector<uint8_t> before = storage.bytes();
  const uint8_t* address = builder.data();
  ASSERT_TRUE(builder.update(1, layer.source(2)).ok());
  EXPECT_EQ(builder.data(), address);
  EXPECT_TRUE(builder.check_complete().ok());
  const std::vector<uint8_t> after = storage.bytes();
  const auto record = static_cast<int64_t>(storage.layout.expert_nbytes);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + record, after.begin()));
  EXPECT_TRUE(std::equal(before.begin() + 2 * record, before.end(), after.begin() + 2 * record));
  EXPECT_TRUE(std::equal(before.begin() + 2 * record, before.end(), after.begin() + record));
  for (const int32_t bad : {-1, 3}) {
    EXPECT_HAS(builder.update(bad, layer.source(0)).message, "expert: have " + std::to_string(bad));
  }
  // Half an update is no expert: the layer is incomplete until it comes again.
  ExpertSource broken = layer.source(0);
  broken.up.codes = nullptr;
  EXPECT_FALSE(builder.update(1, broken).ok());
  EXPECT_HAS(builder.check_complete().message, "expert 1 of 3");
  EXPECT_TRUE(builder.put(1, layer.source(1)).ok());
  EXPECT_EQ(storage.bytes(), before);
}

// --- all at once ------------------------------------------------------------------------------

TEST(PrepareAll, EveryNumberOfThreadsGivesTheSameBytes) {
  const RandomLayer layer(several_experts(13));
  std::vector<uint8_t> want;
  for (const int32_t threads : {1, 2, 3, 4, 32}) {
    Storage storage(layer.options);
    std::vector<std::atomic<int>> asked(13);
    const auto source_of = [&](int32_t e) -> Result<ExpertSource> {
      ++asked[static_cast<size_t>(e)];
      return layer.source(e);
    };
    const Status status = prepare_all(*storage.builder, source_of, threads, nullptr);
    ASSERT_TRUE(status.ok()) << status.message;
    EXPECT_TRUE(storage.builder->check_complete().ok());
    for (const std::atomic<int>& count : asked) EXPECT_EQ(count, 1);
    if (want.empty()) want = storage.bytes();
    EXPECT_EQ(storage.bytes(), want) << threads;
  }
  for (size_t e = 0; e < 13; ++e) {
    const PackedLayout layout = layout_of(layer.options, LayoutTag::panel_16x32);
    const std::vector<uint8_t> record = expected_record(layout, layer.experts[e]);
    EXPECT_TRUE(std::equal(record.begin(), record.end(),
                           want.begin() + static_cast<int64_t>(e) * layout.expert_nbytes));
  }
}

TEST(PrepareAll, ProgressCountsExpertsOnTheCallingThread) {
  const RandomLayer layer(several_experts(7));
  const auto source_of = [&](int32_t e) -> Result<ExpertSource> { return layer.source(e); };
  for (const int32_t threads : {1, 4}) {
    Storage storage(layer.options);
    std::vector<int64_t> calls;
    const auto caller = std::this_thread::get_id();
    const auto progress = [&](int64_t done, int64_t total) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_EQ(total, 7);
      calls.push_back(done);
      return 0;
    };
    ASSERT_TRUE(prepare_all(*storage.builder, source_of, threads, progress).ok());
    ASSERT_FALSE(calls.empty());
    EXPECT_TRUE(std::is_sorted(calls.begin(), calls.end()));
    EXPECT_EQ(calls.back(), 7);
    EXPECT_GE(calls.front(), 1);
    if (threads == 1) {
      EXPECT_EQ(calls, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
    }
  }
}

TEST(PrepareAll, ANonZeroAnswerCancels) {
  const RandomLayer layer(several_experts(9));
  for (const int32_t threads : {1, 3}) {
    Storage storage(layer.options);
    std::atomic<int> asked{0};
    const auto source_of = [&](int32_t e) -> Result<ExpertSource> {
      ++asked;
      return layer.source(e);
    };
    const auto progress = [](int64_t done, int64_t) { return done >= 2 ? 1 : 0; };
    const Status status = prepare_all(*storage.builder, source_of, threads, progress);
    EXPECT_EQ(status.code, Code::cancelled);
    EXPECT_HAS(status.message, "cancelled");
    if (threads == 1) {
      EXPECT_EQ(asked, 2);
      EXPECT_HAS(storage.builder->check_complete().message, "expert 2 of 9");
    }
  }
}

TEST(PrepareAll, AnErrorEndsTheWork) {
  const RandomLayer layer(several_experts(9));
  std::atomic<int> asked{0};
  const auto source_of = [&](int32_t e) -> Result<ExpertSource> {
    ++asked;
    if (e == 2) return make_error(Code::io, "expert 2: no such file");
    return layer.source(e);
  };
  Storage one(layer.options);
  Status status = prepare_all(*one.builder, source_of, 1, nullptr);
  EXPECT_EQ(status.code, Code::io);
  EXPECT_HAS(status.message, "expert 2: no such file");
  EXPECT_EQ(asked, 3);
  Storage several(layer.options);
  status = prepare_all(*several.builder, source_of, 4, nullptr);
  EXPECT_EQ(status.code, Code::io);
  EXPECT_FALSE(several.builder->check_complete().ok());
}

/// Sets a flag when its thread ends.
struct EndOfThread {
  std::atomic<bool>* flag = nullptr;
  ~EndOfThread() {
    if (flag != nullptr) *flag = true;
  }
};
thread_local EndOfThread end_of_thread;

// The calling thread fails only after the helper has failed and gone: the helper's error is first.
TEST(PrepareAll, TheFirstErrorWins) {
  Storage storage(several_experts(2));
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> helper_ended{false};
  const auto source_of = [&](int32_t) -> Result<ExpertSource> {
    if (std::this_thread::get_id() != caller) {
      end_of_thread.flag = &helper_ended;
      return make_error(Code::io, "the helper's error");
    }
    while (!helper_ended) std::this_thread::yield();
    return make_error(Code::corrupt_checkpoint, "the caller's error");
  };
  const Status status = prepare_all(*storage.builder, source_of, 2, nullptr);
  EXPECT_EQ(status.code, Code::io);
  EXPECT_STREQ(status.message, "the helper's error");
}

TEST(PrepareAll, AnEmptyRankHasNothingToDo) {
  const PackedLayout layout = layout_of(several_experts(0), LayoutTag::plain);
  Result<WeightsBuilder> builder = WeightsBuilder::make(layout, nullptr, 0);
  const auto never = [](int32_t) -> Result<ExpertSource> {
    ADD_FAILURE() << "asked for an expert";
    return ExpertSource{};
  };
  EXPECT_TRUE(prepare_all(*builder, never, 4, nullptr).ok());
}

}  // namespace
}  // namespace snug
