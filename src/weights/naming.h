// SPDX-License-Identifier: Apache-2.0
// From a tensor's name to what it means: layer, expert, projection, component. Pure functions and
// one table of the checkpoint schemes; a scheme is a row of kSchemes and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"
#include "moe/format.h"
#include "weights/source.h"

namespace snug {

/// A stored weight matrix of an expert; gate_up is both in one tensor (fused schemes).
enum class Projection : int32_t { gate = 0, up = 1, down = 2, gate_up = 3 };

/// A tensor of a projection.
enum class Component : int32_t { codes = 0, scales = 1, global_scale = 2, bias = 3 };
inline constexpr int kNumComponents = 4;

/// Where the rows of gate and up lie.
enum class GateUp : int32_t {
  separate = 0,          // a tensor each
  interleaved_rows = 1,  // row 2i gate, 2i + 1 up
  gate_then_up = 2,      // rows 0..I-1 gate, I..2I-1 up
};

/// A set of element types, one bit each.
using DTypeSet = uint32_t;
constexpr DTypeSet dtype_bit(DType t) { return DTypeSet{1} << static_cast<int>(t); }

/// A component in a scheme: the last part of its tensors' names, and the dtypes they may have.
struct SchemeComponent {
  const char* part = nullptr;  // null: the scheme has no such tensor
  DTypeSet dtypes = 0;
};

/// One way in which checkpoints name and store 4-bit experts: every convention, none guessed.
struct Scheme {
  const char* name;
  Format format;
  bool fused;  // one tensor [E, ...] per projection; else one per expert and projection
  SchemeComponent components[kNumComponents];  // indexed by Component; a bias is always optional
  const char* ignored_part;                    // of activation quantisation; null = none
  NibbleOrder nibble_order;
  ScaleOrder scale_order;
  GlobalScaleUse global_scale_use;
  GateUp gate_up;
};

inline constexpr DTypeSet kFloatBias = dtype_bit(DType::bf16) | dtype_bit(DType::f32);
inline constexpr DTypeSet kPairs = dtype_bit(DType::u8) | dtype_bit(DType::e2m1x2);
inline constexpr DTypeSet kE8m0 = dtype_bit(DType::u8) | dtype_bit(DType::e8m0);

/// Shapes per expert: codes [N, K/2], scales [N, K/group], global scale [] or [1], bias [N].
/// Fused: codes [E, N, K/32, 16], scales [E, N, K/32], bias [E, N], N = 2I for gate_up.
/// Source: the layouts that ModelOpt, compressed-tensors, gpt-oss and DeepSeek-V4 publish.
inline constexpr Scheme kSchemes[] = {
    {"modelopt_nvfp4",
     Format::nvfp4,
     false,
     {{"weight", kPairs},
      {"weight_scale", dtype_bit(DType::e4m3)},
      {"weight_scale_2", dtype_bit(DType::f32)},
      {"bias", kFloatBias}},
     "input_scale",
     NibbleOrder::low_first,
     ScaleOrder::linear,
     GlobalScaleUse::multiply,
     GateUp::separate},
    {"compressed_tensors_nvfp4",
     Format::nvfp4,
     false,
     {{"weight_packed", kPairs},
      {"weight_scale", dtype_bit(DType::e4m3)},
      {"weight_global_scale", dtype_bit(DType::f32)},
      {"bias", kFloatBias}},
     "input_global_scale",
     NibbleOrder::low_first,
     ScaleOrder::linear,
     GlobalScaleUse::divide,
     GateUp::separate},
    {"compressed_tensors_mxfp4",
     Format::mxfp4,
     false,
     {{"weight_packed", kPairs}, {"weight_scale", kE8m0}, {}, {"bias", kFloatBias}},
     nullptr,
     NibbleOrder::low_first,
     ScaleOrder::linear,
     GlobalScaleUse::none,
     GateUp::separate},
    {"gpt_oss_mxfp4",
     Format::mxfp4,
     true,
     {{"blocks", kPairs}, {"scales", kE8m0}, {}, {"bias", kFloatBias}},
     nullptr,
     NibbleOrder::low_first,
     ScaleOrder::linear,
     GlobalScaleUse::none,
     GateUp::interleaved_rows},
    {"deepseek_v4_mxfp4",
     Format::mxfp4,
     false,
     {{"weight", kPairs | dtype_bit(DType::s8)}, {"scale", kE8m0}, {}, {"bias", kFloatBias}},
     nullptr,
     NibbleOrder::low_first,
     ScaleOrder::linear,
     GlobalScaleUse::none,
     GateUp::separate},
};
inline constexpr int32_t kNumSchemes = sizeof(kSchemes) / sizeof(kSchemes[0]);

/// A set of schemes, bit i for kSchemes[i].
using SchemeSet = uint32_t;

enum class NameKind : int32_t {
  other = 0,      // not a routed expert's (attention, norms, shared experts, routers)
  draft = 1,      // an expert of a multi-token-prediction block, which is no layer of the model
  expert = 2,     // the fields below hold
  unmatched = 3,  // under an `experts` component, yet of no known pattern
};

/// What a name says. `part` points into the name that was parsed.
struct ExpertName {
  NameKind kind = NameKind::other;
  int32_t layer = -1;
  int32_t expert = -1;  // -1: a fused tensor of all experts
  Projection projection = Projection::gate;
  std::string_view part;  // "weight_scale", "blocks"; empty for a fused tensor without a suffix
};

/// Understands
///   <any>.layers.<L>.<block>.experts.<e>.<proj>.<part>
///   <any>.layers.<L>.<block>.experts.{gate_up_proj,down_proj}[_<part>]
///   block.<L>.mlp.mlp{1,2}_weight.<part>  and  block.<L>.mlp.mlp{1,2}_bias
/// with block one of mlp, block_sparse_moe, mixer, ffn, feed_forward, moe, and proj one of
/// gate_proj | w1, up_proj | w3, down_proj | w2. Numbers are plain decimals without leading zeros.
ExpertName parse_tensor_name(std::string_view name);

/// The schemes that have a tensor of this part, by name alone, and those that also take its dtype.
SchemeSet schemes_with_part(bool fused, std::string_view part);
SchemeSet schemes_with_part(bool fused, std::string_view part, std::optional<DType> dtype);

/// Which component of the scheme the part is; none when it is not one.
std::optional<Component> component_of(const Scheme& scheme, std::string_view part);

/// True for tensors of activation quantisation, which W4A16 does not read.
bool is_ignored_part(std::string_view part);

/// A guess, for error messages only, at what a tensor outside every scheme belongs to:
/// "GPTQ or AWQ", "int4 pack-quantized", "EXL3", "bitsandbytes", "fp8", "unquantised" or "unknown".
const char* foreign_format(std::string_view part, std::string_view stored_dtype);

/// Rows of gate or up in a tensor that holds both (or, when separate, only the one).
RowMap row_map(GateUp arrangement, Projection projection, int32_t intermediate);

const char* projection_name(Projection projection);

}  // namespace snug
