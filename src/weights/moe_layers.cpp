// SPDX-License-Identifier: Apache-2.0
#include "weights/moe_layers.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "weights/layer_check.h"

namespace snug {

namespace {

constexpr SchemeSet scheme_bit(int32_t scheme) { return SchemeSet{1} << scheme; }

/// A tensor of an expert, before and after its scheme is known.
struct Found {
  ExpertName name;
  const TensorView* tensor;
  int32_t scheme;
};

Status foreign_error(const Found& found) {
  const TensorView& tensor = *found.tensor;
  return make_error(Code::unsupported,
                    "%.120s: is %.12s of format '%s', not a format of this build",
                    tensor.name.data(), tensor.stored_dtype.data(),
                    foreign_format(found.name.part, tensor.stored_dtype));
}

/// The tensors of routed experts, sorted by layer.
Result<std::vector<Found>> collect_expert_tensors(std::span<const TensorView* const> tensors) {
  std::vector<Found> result;
  for (const TensorView* tensor : tensors) {
    const ExpertName name = parse_tensor_name(tensor->name);
    if (name.kind == NameKind::unmatched) {
      return make_error(Code::corrupt_checkpoint,
                        "%.180s: lies under experts but fits no known name", tensor->name.data());
    }
    if (name.kind != NameKind::expert || is_ignored_part(name.part)) continue;
    result.push_back({name, tensor, -1});
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Found& a, const Found& b) { return a.name.layer < b.name.layer; });
  return result;
}

/// The scheme of the tensors of one layer whose part no scheme certainly present has.
Status assign_leftovers(std::span<Found> found) {
  SchemeSet common = ~SchemeSet{0};
  const Found* first = nullptr;
  for (Found& f : found) {
    if (f.scheme >= 0) continue;
    const SchemeSet takes = schemes_with_part(f.name.expert < 0, f.name.part, f.tensor->dtype);
    if (takes == 0) return foreign_error(f);
    if (first == nullptr) first = &f;
    if ((common & takes) == 0) {
      return make_error(Code::unsupported, "%.110s: no scheme has both it and %.110s",
                        f.tensor->name.data(), first->tensor->name.data());
    }
    common &= takes;
  }
  for (Found& f : found) {
    // With several left the layer lacks scales; the completeness check names what is missing.
    if (f.scheme < 0) f.scheme = std::countr_zero(common);
  }
  return {};
}

/// Gives every tensor of one layer its scheme. A part that only one scheme has proves that scheme
/// present; shared parts ("weight", "weight_scale") go to the one present scheme that has them.
Status assign_schemes(std::span<Found> found) {
  SchemeSet present = 0;
  for (const Found& f : found) {
    const SchemeSet named = schemes_with_part(f.name.expert < 0, f.name.part);
    if (named == 0) return foreign_error(f);
    if (std::has_single_bit(named)) present |= named;
  }
  for (Found& f : found) {
    const SchemeSet fits = schemes_with_part(f.name.expert < 0, f.name.part) & present;
    if (fits == 0) continue;
    if (!std::has_single_bit(fits)) {
      const int first = std::countr_zero(fits);
      return make_error(Code::unsupported, "%.120s: may belong to %s or to %s, both in layer %d",
                        f.tensor->name.data(), kSchemes[first].name,
                        kSchemes[std::countr_zero(fits & ~scheme_bit(first))].name, f.name.layer);
    }
    f.scheme = std::countr_zero(fits);
  }
  return assign_leftovers(found);
}

bool comes_before(const Found& a, const Found& b) {
  const Format format_a = kSchemes[a.scheme].format, format_b = kSchemes[b.scheme].format;
  return std::pair(format_a, a.scheme) < std::pair(format_b, b.scheme);
}

/// Splits one layer by scheme, checks each part, appends the results.
Status add_layer(std::span<Found> found, const ModelConfig& config,
                 std::vector<MoeLayerTensors>* out) {
  const Status assigned = assign_schemes(found);
  if (!assigned.ok()) {
    // Past the last layer lie multi-token-prediction blocks, often kept unquantised.
    const bool past_end = config.num_layers > 0 && found[0].name.layer >= config.num_layers;
    return past_end && assigned.code == Code::unsupported ? Status() : assigned;
  }
  std::stable_sort(found.begin(), found.end(), comes_before);
  while (!found.empty()) {
    const int32_t scheme = found[0].scheme;
    std::vector<LayerTensor> tensors;
    for (const Found& f : found) {
      if (f.scheme != scheme) break;
      tensors.push_back({f.name, *component_of(kSchemes[scheme], f.name.part), f.tensor});
    }
    found = found.subspan(tensors.size());
    if (!found.empty() && kSchemes[found[0].scheme].format == kSchemes[scheme].format) {
      return make_error(Code::unsupported, "layers.%d: holds both %s and %s, which is ambiguous",
                        found[0].name.layer, kSchemes[scheme].name, kSchemes[found[0].scheme].name);
    }
    SNUG_ASSIGN_OR_RETURN(MoeLayer layer, check_layer(scheme, &tensors, config));
    MoeLayerTensors& added = out->emplace_back();
    added.layer = layer;
    for (const LayerTensor& t : tensors) added.tensors.push_back(t.tensor);
  }
  return {};
}

}  // namespace

Result<std::vector<MoeLayerTensors>> find_moe_layers(std::span<const TensorView* const> tensors,
                                                     const ModelConfig& config) {
  SNUG_ASSIGN_OR_RETURN(std::vector<Found> all, collect_expert_tensors(tensors));
  std::vector<MoeLayerTensors> result;
  std::span<Found> rest(all);
  while (!rest.empty()) {
    const int32_t layer = rest[0].name.layer;
    size_t n = 0;
    while (n < rest.size() && rest[n].name.layer == layer) ++n;
    SNUG_RETURN_IF_ERROR(add_layer(rest.first(n), config, &result));
    rest = rest.subspan(n);
  }
  return result;
}

Result<ExpertSource> expert_source(const MoeLayerTensors& layer, int32_t expert) {
  const MoeLayer& l = layer.layer;
  if (expert < 0 || expert >= l.num_experts) {
    return make_error(Code::invalid_argument, "expert: have %d, layers.%d has 0..%d", expert,
                      l.layer, l.num_experts - 1);
  }
  const Scheme& scheme = kSchemes[l.scheme];
  const int num_matrices = scheme.fused || !l.gated ? 2 : 3;
  const int num_components =
      static_cast<int>(layer.tensors.size()) / (num_matrices * (scheme.fused ? 1 : l.num_experts));
  const TensorView* const* own =
      layer.tensors.data() + (scheme.fused ? 0 : expert * num_matrices * num_components);
  // Fused: the expert's share of each tensor follows those of the experts before it.
  const int64_t share = scheme.fused ? expert : 0;

  const auto matrix = [&](int index, Projection projection, int32_t k) {
    const TensorView* const* t = own + index * num_components;
    const int32_t group = format_info(l.format).group_size;
    const uint64_t parts = scheme.fused ? static_cast<uint64_t>(l.num_experts) : 1;
    MatrixSource m;
    m.codes = t[0]->data + share * static_cast<int64_t>(t[0]->nbytes / parts);
    m.code_row_nbytes = k / 2;
    m.scales = t[1]->data + share * static_cast<int64_t>(t[1]->nbytes / parts);
    m.scale_row_nbytes = k / group;
    m.nibble_order = scheme.nibble_order;
    m.scale_order = scheme.scale_order;
    m.global_scale_use = scheme.global_scale_use;
    int next = 2;
    if (scheme.global_scale_use != GlobalScaleUse::none) m.global_scale = read_f32(*t[next++]);
    if (l.has_bias) {
      m.bias = t[next]->data + share * static_cast<int64_t>(t[next]->nbytes / parts);
      m.bias_dtype = *t[next]->dtype;
    }
    if (projection != Projection::down)
      m.rows = row_map(scheme.gate_up, projection, l.intermediate);
    return m;
  };
  ExpertSource source;
  source.gate = matrix(0, Projection::gate, l.hidden);
  if (l.gated) source.up = matrix(scheme.fused ? 0 : 1, Projection::up, l.hidden);
  source.down = matrix(num_matrices - 1, Projection::down, l.intermediate);
  return source;
}

uint64_t source_nbytes(const MoeLayerTensors& layer) {
  uint64_t nbytes = 0;  // each tensor lies in a mapped file, so the sum cannot wrap
  for (const TensorView* tensor : layer.tensors) nbytes += tensor->nbytes;
  return nbytes;
}

}  // namespace snug
