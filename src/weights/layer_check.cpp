// SPDX-License-Identifier: Apache-2.0
#include "weights/layer_check.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <tuple>

#include "moe/shape.h"

namespace snug {

namespace {

/// Expert, projection and component of a tensor; the order of a checked layer.
using Place = std::tuple<int32_t, Projection, Component>;

Place place_of(const LayerTensor& t) {
  // A fused gate_up sorts first, where gate does.
  const Projection p = t.name.projection;
  return {t.name.expert, p == Projection::gate_up ? Projection::gate : p, t.component};
}

/// "layers.0 expert 3 up", or "layers.0 gate_up" for fused tensors.
std::string where(int32_t layer, int32_t expert, Projection projection) {
  std::string text = "layers." + std::to_string(layer);
  if (expert >= 0) text += " expert " + std::to_string(expert);
  return text + " " + projection_name(projection);
}

std::string where(const LayerTensor& t) {
  return where(t.name.layer, t.name.expert, t.name.projection);
}

struct Dims {
  int32_t rank = 0;
  int64_t size[4] = {};
};

std::string shape_text(int32_t rank, const int64_t* size) {
  std::string text = "[";
  for (int32_t i = 0; i < rank; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(size[i]);
  }
  return text + "]";
}

/// The sizes of one layer while it is being checked.
struct LayerChecker {
  const Scheme& scheme;
  const ModelConfig& config;
  std::vector<LayerTensor>& tensors;
  MoeLayer layer;

  int32_t group() const { return format_info(scheme.format).group_size; }
  const char* part(Component c) const { return scheme.components[static_cast<int>(c)].part; }

  Status check_arrangement();
  Status check_num_experts();
  Status check_places();
  Status check_dtypes() const;
  Status check_sizes();
  Status check_shapes() const;
  Status check_global_scales() const;
  Status check_place(size_t* next, int32_t expert, Projection projection,
                     Component component) const;
  Dims need_dims(const LayerTensor& t) const;
};

/// Gated or not, biased or not: from what is there, against the config's activation.
Status LayerChecker::check_arrangement() {
  layer.gated = false;
  for (const LayerTensor& t : tensors) {
    const Projection p = t.name.projection;
    layer.gated = layer.gated || p == Projection::gate || p == Projection::gate_up;
    layer.has_bias = layer.has_bias || t.component == Component::bias;
  }
  if (scheme.fused) layer.gated = true;
  if (config.num_experts == 0) return {};
  const ActivationKind kind = config.activation.kind;
  if (is_gated(kind) == layer.gated) return {};
  return make_error(Code::corrupt_checkpoint, "layers.%d: gate %s, %s of config.json %s",
                    layer.layer, layer.gated ? "is there" : "is missing", activation_name(kind),
                    layer.gated ? "has none" : "needs it");
}

/// Without a config the highest expert decides; gaps then show as missing tensors.
Status LayerChecker::check_num_experts() {
  int64_t have = 0;
  if (scheme.fused) {
    const TensorView& first = *tensors.front().tensor;
    have = first.rank > 0 ? first.shape[0] : 0;
  } else {
    for (const LayerTensor& t : tensors) have = std::max(have, int64_t{t.name.expert} + 1);
  }
  if (have < 1 || have > kMaxExperts) {
    return make_error(Code::corrupt_checkpoint,
                      "layers.%d: has %" PRId64 " experts (%s), need 1..%d", layer.layer, have,
                      scheme.name, kMaxExperts);
  }
  const bool configured = config.num_experts > 0;
  if (configured && (scheme.fused || have > config.num_experts) && have != config.num_experts) {
    return make_error(Code::corrupt_checkpoint,
                      "layers.%d: has %" PRId64 " experts (%s), config.json says %d", layer.layer,
                      have, scheme.name, config.num_experts);
  }
  layer.num_experts = configured ? config.num_experts : static_cast<int32_t>(have);
  return {};
}

/// The tensor at *next must be the named one, and the only one of its place.
Status LayerChecker::check_place(size_t* next, int32_t expert, Projection projection,
                                 Component component) const {
  const Projection sorted = projection == Projection::gate_up ? Projection::gate : projection;
  const Place need{expert, sorted, component};
  if (*next == tensors.size() || place_of(tensors[*next]) != need) {
    return make_error(Code::corrupt_checkpoint, "%s: %s is missing (%s)",
                      where(layer.layer, expert, projection).c_str(), part(component), scheme.name);
  }
  ++*next;
  if (*next < tensors.size() && place_of(tensors[*next]) == need) {
    return make_error(Code::corrupt_checkpoint, "%s: %s comes twice, as %.80s and %.80s",
                      where(layer.layer, expert, projection).c_str(), part(component),
                      tensors[*next - 1].tensor->name.data(), tensors[*next].tensor->name.data());
  }
  return {};
}

/// Every (expert, projection, component) exactly once, nothing beside them. Needs sorted tensors.
Status LayerChecker::check_places() {
  std::vector<Projection> projections;
  if (scheme.fused) {
    projections = {Projection::gate_up, Projection::down};
  } else if (layer.gated) {
    projections = {Projection::gate, Projection::up, Projection::down};
  } else {
    projections = {Projection::up, Projection::down};
  }
  size_t next = 0;
  const int32_t first = scheme.fused ? -1 : 0;
  const int32_t end = scheme.fused ? 0 : layer.num_experts;
  for (int32_t expert = first; expert < end; ++expert) {
    for (const Projection projection : projections) {
      for (int c = 0; c < kNumComponents; ++c) {
        const Component component = static_cast<Component>(c);
        if (scheme.components[c].part == nullptr) continue;
        if (component == Component::bias && !layer.has_bias) continue;
        SNUG_RETURN_IF_ERROR(check_place(&next, expert, projection, component));
      }
    }
  }
  SNUG_ASSERT(next == tensors.size());  // a place outside the loops would have stopped them
  return {};
}

std::string dtype_list(DTypeSet set) {
  std::string text;
  for (int i = 0; i < kNumDTypes; ++i) {
    if ((set >> i & 1) == 0) continue;
    text += (text.empty() ? "" : " or ") + std::string(dtype_name(static_cast<DType>(i)));
  }
  return text;
}

Status LayerChecker::check_dtypes() const {
  for (const LayerTensor& t : tensors) {
    const SchemeComponent& need = scheme.components[static_cast<int>(t.component)];
    const std::optional<DType> have = t.tensor->dtype;
    if (have.has_value() && (need.dtypes & dtype_bit(*have)) != 0) continue;
    return make_error(Code::corrupt_checkpoint, "%s: %s is %s, %s needs %s", where(t).c_str(),
                      need.part, t.tensor->stored_dtype.data(), scheme.name,
                      dtype_list(need.dtypes).c_str());
  }
  return {};
}

/// hidden and intermediate: the config's where it says them, else those of the first FC1 matrix.
Status LayerChecker::check_sizes() {
  const LayerTensor& first = tensors.front();
  const TensorView& codes = *first.tensor;
  const int32_t rank = scheme.fused ? 4 : 2;
  if (codes.rank != rank) {
    return make_error(Code::corrupt_checkpoint, "%s: %s is %s, need %d dimensions",
                      where(first).c_str(), part(Component::codes),
                      shape_text(codes.rank, codes.shape).c_str(), rank);
  }
  const int64_t rows = scheme.fused ? codes.shape[1] / 2 : codes.shape[0];
  const int64_t units = scheme.fused ? codes.shape[2] : codes.shape[1];
  const int64_t per_unit = scheme.fused ? group() : 2;
  if (rows < 1 || rows > kMaxWidth || units < 1 || units > kMaxWidth / per_unit) {
    return make_error(Code::corrupt_checkpoint, "%s: %s is %s, sizes must be 1..%d",
                      where(first).c_str(), part(Component::codes),
                      shape_text(codes.rank, codes.shape).c_str(), kMaxWidth);
  }
  layer.intermediate = config.intermediate > 0 ? config.intermediate : static_cast<int32_t>(rows);
  layer.hidden = config.hidden > 0 ? config.hidden : static_cast<int32_t>(units * per_unit);
  const bool hidden_fits = layer.hidden % group() == 0;
  if (!hidden_fits || layer.intermediate % group() != 0) {
    return make_error(Code::unsupported, "layers.%d: %s is %d, need a multiple of %d (%s)",
                      layer.layer, hidden_fits ? "intermediate" : "hidden",
                      hidden_fits ? layer.intermediate : layer.hidden, group(), scheme.name);
  }
  return {};
}

Dims LayerChecker::need_dims(const LayerTensor& t) const {
  const Projection p = t.name.projection;
  const int64_t e = layer.num_experts;
  const int64_t rows = p == Projection::down      ? layer.hidden
                       : p == Projection::gate_up ? int64_t{2} * layer.intermediate
                                                  : layer.intermediate;
  const int64_t k = p == Projection::down ? layer.intermediate : layer.hidden;
  const int64_t g = group();
  switch (t.component) {
    case Component::codes:
      return scheme.fused ? Dims{4, {e, rows, k / g, g / 2}} : Dims{2, {rows, k / 2}};
    case Component::scales:
      return scheme.fused ? Dims{3, {e, rows, k / g}} : Dims{2, {rows, k / g}};
    case Component::bias:
      return scheme.fused ? Dims{2, {e, rows}} : Dims{1, {rows}};
    case Component::global_scale:
      return Dims{1, {1}};
  }
  return {};
}

Status LayerChecker::check_shapes() const {
  for (const LayerTensor& t : tensors) {
    const TensorView& have = *t.tensor;
    if (t.component == Component::global_scale && have.rank == 0) continue;
    const Dims need = need_dims(t);
    if (have.rank == need.rank && std::equal(need.size, need.size + need.rank, have.shape))
      continue;
    return make_error(Code::corrupt_checkpoint,
                      "%s: %s is %s, need %s (hidden %d, intermediate %d%s)", where(t).c_str(),
                      part(t.component), shape_text(have.rank, have.shape).c_str(),
                      shape_text(need.rank, need.size).c_str(), layer.hidden, layer.intermediate,
                      config.hidden > 0 || config.intermediate > 0 ? " by config.json" : "");
  }
  return {};
}

/// A scale that calibration never set is zero or NaN and would silence or poison its expert.
Status LayerChecker::check_global_scales() const {
  for (const LayerTensor& t : tensors) {
    if (t.component != Component::global_scale) continue;
    const float value = read_f32(*t.tensor);
    if (std::isfinite(value) && value > 0) continue;
    return make_error(Code::corrupt_checkpoint, "%s: %s is %g, need a finite positive value",
                      where(t).c_str(), part(t.component), static_cast<double>(value));
  }
  return {};
}

}  // namespace

Result<MoeLayer> check_layer(int32_t scheme, std::vector<LayerTensor>* tensors,
                             const ModelConfig& config) {
  SNUG_ASSERT(!tensors->empty());
  std::stable_sort(
      tensors->begin(), tensors->end(),
      [](const LayerTensor& a, const LayerTensor& b) { return place_of(a) < place_of(b); });
  LayerChecker checker{kSchemes[scheme], config, *tensors, {}};
  checker.layer.layer = tensors->front().name.layer;
  checker.layer.scheme = scheme;
  checker.layer.format = kSchemes[scheme].format;
  SNUG_RETURN_IF_ERROR(checker.check_arrangement());
  SNUG_RETURN_IF_ERROR(checker.check_num_experts());
  SNUG_RETURN_IF_ERROR(checker.check_places());
  SNUG_RETURN_IF_ERROR(checker.check_dtypes());
  SNUG_RETURN_IF_ERROR(checker.check_sizes());
  SNUG_RETURN_IF_ERROR(checker.check_shapes());
  SNUG_RETURN_IF_ERROR(checker.check_global_scales());
  return checker.layer;
}

float read_f32(const TensorView& tensor) {
  float value = 0;
  std::memcpy(&value, tensor.data, sizeof value);
  return value;
}

}  // namespace snug
