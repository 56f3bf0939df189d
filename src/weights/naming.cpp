// SPDX-License-Identifier: Apache-2.0
#include "weights/naming.h"

#include <algorithm>
#include <utility>

namespace snug {

namespace {

constexpr std::string_view kBlocks[] = {"mlp", "block_sparse_moe", "mixer",
                                        "ffn", "feed_forward",     "moe"};

constexpr std::pair<std::string_view, Projection> kProjections[] = {
    {"gate_proj", Projection::gate}, {"w1", Projection::gate}, {"up_proj", Projection::up},
    {"w3", Projection::up},          {"w2", Projection::down}, {"down_proj", Projection::down},
};

constexpr std::pair<std::string_view, Projection> kFusedProjections[] = {
    {"gate_up_proj", Projection::gate_up},
    {"down_proj", Projection::down},
};

/// Splits off the last component of a dotted path.
std::string_view pop_back(std::string_view* path) {
  const size_t dot = path->rfind('.');
  const std::string_view last = dot == path->npos ? *path : path->substr(dot + 1);
  *path = dot == path->npos ? std::string_view() : path->substr(0, dot);
  return last;
}

/// Splits off the first component of a dotted path.
std::string_view pop_front(std::string_view* path) {
  const size_t dot = path->find('.');
  const std::string_view first = path->substr(0, dot);
  *path = dot == path->npos ? std::string_view() : path->substr(dot + 1);
  return first;
}

/// A plain decimal below 10^7; -1 otherwise. "01" would be a second name for 1.
int32_t parse_index(std::string_view text) {
  if (text.empty() || text.size() > 7 || (text.size() > 1 && text[0] == '0')) return -1;
  int32_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  return value;
}

bool has_component(std::string_view path, std::string_view component) {
  while (!path.empty()) {
    if (pop_front(&path) == component) return true;
  }
  return false;
}

/// Reads <any>.layers.<L>.<block> into the layer.
bool parse_head(std::string_view head, ExpertName* out) {
  const std::string_view block = pop_back(&head);
  if (std::find(std::begin(kBlocks), std::end(kBlocks), block) == std::end(kBlocks)) return false;
  out->layer = parse_index(pop_back(&head));
  return out->layer >= 0 && pop_back(&head) == "layers";
}

/// Reads <e>.<proj>.<part>, or the fused {gate_up_proj,down_proj}[_<part>].
bool parse_tail(std::string_view tail, ExpertName* out) {
  std::string_view rest = tail;
  const std::string_view first = pop_front(&rest);
  if (rest.empty()) {
    for (const auto& [prefix, projection] : kFusedProjections) {
      if (first.substr(0, prefix.size()) != prefix) continue;
      std::string_view part = first.substr(prefix.size());
      if (!part.empty() && part[0] != '_') return false;
      if (!part.empty()) part.remove_prefix(1);
      out->projection = projection;
      out->part = part;
      return true;
    }
    return false;
  }
  out->expert = parse_index(first);
  const std::string_view name = pop_front(&rest);
  out->part = rest;
  for (const auto& [text, projection] : kProjections) {
    if (name != text) continue;
    out->projection = projection;
    return out->expert >= 0 && !rest.empty();
  }
  return false;
}

/// gpt-oss in its original names: block.<L>.mlp.mlp1_weight.blocks, block.<L>.mlp.mlp1_bias.
bool parse_original_gpt_oss(std::string_view name, ExpertName* out) {
  if (pop_front(&name) != "block") return false;
  out->layer = parse_index(pop_front(&name));
  if (out->layer < 0 || pop_front(&name) != "mlp") return false;
  const std::string_view tensor = pop_front(&name);
  const std::string_view matrix = tensor.substr(0, 5);
  if (matrix != "mlp1_" && matrix != "mlp2_") return false;
  out->projection = matrix == "mlp1_" ? Projection::gate_up : Projection::down;
  const std::string_view kind = tensor.substr(5);
  if (kind == "bias" && name.empty()) {
    out->part = kind;
    return true;
  }
  out->part = name;
  return kind == "weight";
}

template <size_t N>
bool is_one_of(std::string_view text, const std::string_view (&list)[N]) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

}  // namespace

ExpertName parse_tensor_name(std::string_view name) {
  constexpr std::string_view kExperts = ".experts.";
  ExpertName result;
  const size_t at = name.find(kExperts);
  if (at == name.npos) {
    ExpertName original;
    if (parse_original_gpt_oss(name, &original)) {
      original.kind = NameKind::expert;
      return original;
    }
    if (has_component(name, "experts")) result.kind = NameKind::unmatched;
    return result;
  }
  const std::string_view head = name.substr(0, at);
  if (has_component(head, "mtp")) {
    result.kind = NameKind::draft;
    return result;
  }
  ExpertName found;
  if (!parse_head(head, &found) || !parse_tail(name.substr(at + kExperts.size()), &found)) {
    result.kind = NameKind::unmatched;
    return result;
  }
  found.kind = NameKind::expert;
  return found;
}

SchemeSet schemes_with_part(bool fused, std::string_view part) {
  SchemeSet set = 0;
  for (int32_t i = 0; i < kNumSchemes; ++i) {
    if (kSchemes[i].fused == fused && component_of(kSchemes[i], part)) set |= SchemeSet{1} << i;
  }
  return set;
}

SchemeSet schemes_with_part(bool fused, std::string_view part, std::optional<DType> dtype) {
  if (!dtype.has_value()) return 0;
  SchemeSet set = schemes_with_part(fused, part);
  for (int32_t i = 0; i < kNumSchemes; ++i) {
    if ((set >> i & 1) == 0) continue;
    const int component = static_cast<int>(*component_of(kSchemes[i], part));
    const bool takes = (kSchemes[i].components[component].dtypes & dtype_bit(*dtype)) != 0;
    if (!takes) set &= ~(SchemeSet{1} << i);
  }
  return set;
}

std::optional<Component> component_of(const Scheme& scheme, std::string_view part) {
  for (int i = 0; i < kNumComponents; ++i) {
    const char* own = scheme.components[i].part;
    if (own != nullptr && part == own) return static_cast<Component>(i);
  }
  return std::nullopt;
}

bool is_ignored_part(std::string_view part) {
  return std::any_of(std::begin(kSchemes), std::end(kSchemes), [&](const Scheme& scheme) {
    return scheme.ignored_part != nullptr && part == scheme.ignored_part;
  });
}

const char* foreign_format(std::string_view part, std::string_view stored_dtype) {
  constexpr std::string_view kGptq[] = {"qweight", "qzeros", "scales", "g_idx"};
  constexpr std::string_view kPacked[] = {"weight_shape", "weight_zero_point", "weight_g_idx"};
  constexpr std::string_view kExl3[] = {"trellis", "suh", "svh", "su", "sv", "mcg", "mul1"};
  constexpr std::string_view kFloats[] = {"BF16", "F16", "F32", "F64"};
  constexpr std::string_view kFp8[] = {"weight_scale_inv", "weight_scale", "scale_inv"};
  if (is_one_of(part, kGptq)) return "GPTQ or AWQ";
  if (is_one_of(part, kPacked) || (part == "weight_packed" && stored_dtype == "I32")) {
    return "int4 pack-quantized";
  }
  if (is_one_of(part, kExl3)) return "EXL3";
  if (part.substr(0, 7) == "weight.") return "bitsandbytes";
  if (stored_dtype == "F8_E4M3" || stored_dtype == "F8_E5M2" || is_one_of(part, kFp8)) return "fp8";
  const bool is_weight = part.empty() || part == "weight" || part == "bias";
  return is_weight && is_one_of(stored_dtype, kFloats) ? "unquantised" : "unknown";
}

RowMap row_map(GateUp arrangement, Projection projection, int32_t intermediate) {
  const int64_t is_up = projection == Projection::up ? 1 : 0;
  switch (arrangement) {
    case GateUp::separate:
      break;
    case GateUp::interleaved_rows:
      return {is_up, 2, 0};
    case GateUp::gate_then_up:
      return {is_up * intermediate, 1, 0};
  }
  return {};
}

const char* projection_name(Projection projection) {
  constexpr const char* kNames[] = {"gate", "up", "down", "gate_up"};
  const int i = static_cast<int>(projection);
  return i >= 0 && i < 4 ? kNames[i] : "unknown";
}

}  // namespace snug
