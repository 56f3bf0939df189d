// SPDX-License-Identifier: Apache-2.0
// The expert tensors of one layer in any scheme, for tests of the checkpoint reader. The bytes are
// noise that differs from tensor to tensor; global scales are positive and all different.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support/safetensors_writer.h"
#include "weights/naming.h"
#include "weights/safetensors.h"

namespace snug::test {

struct LayerSpec {
  int32_t scheme = 0;
  int32_t layer = 0;
  int32_t num_experts = 2;
  int32_t hidden = 64;
  int32_t intermediate = 32;
  bool gated = true;
  bool biased = false;
  bool short_names = false;  // w1, w3, w2; for gpt-oss the original names
  std::string prefix = "model.layers.";
  std::string block = "mlp";
};

inline int32_t scheme_id(std::string_view name) {
  for (int32_t i = 0; i < kNumSchemes; ++i) {
    if (name == kSchemes[i].name) return i;
  }
  ADD_FAILURE() << "no scheme " << name;
  return 0;
}

inline std::string noise(const std::string& seed, size_t n) {
  std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>{}(seed)));
  std::string bytes(n, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

inline std::string f32_bytes(float value) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &value, 4);
  return bytes;
}

/// The dtype text that checkpoints use for a component of the scheme.
inline std::string usual_dtype(const Scheme& scheme, Component component) {
  switch (component) {
    case Component::codes:
      return "U8";
    case Component::scales:
      return scheme.format == Format::nvfp4 ? "F8_E4M3" : "U8";
    case Component::global_scale:
      return "F32";
    case Component::bias:
      return "BF16";
  }
  return "";
}

/// global scale of (expert, projection): all different within a layer.
inline float global_scale_of(int32_t expert, int projection) {
  return 0.001f * static_cast<float>(1 + expert * 3 + projection);
}

inline std::string tensor_name(const LayerSpec& s, int32_t expert, int projection,
                               const std::string& part) {
  const Scheme& scheme = kSchemes[s.scheme];
  const std::string layer = std::to_string(s.layer);
  if (scheme.fused && s.short_names) {
    const std::string matrix = projection == 2 ? "mlp2_" : "mlp1_";
    return "block." + layer + ".mlp." + matrix + (part == "bias" ? part : "weight." + part);
  }
  const std::string head = s.prefix + layer + "." + s.block + ".experts.";
  if (scheme.fused) return head + (projection == 2 ? "down_proj_" : "gate_up_proj_") + part;
  static const char* kLong[] = {"gate_proj", "up_proj", "down_proj"};
  static const char* kShort[] = {"w1", "w3", "w2"};
  return head + std::to_string(expert) + "." + (s.short_names ? kShort : kLong)[projection] + "." +
         part;
}

inline StoredTensor make_tensor(const LayerSpec& s, int32_t expert, int projection, Component c) {
  const Scheme& scheme = kSchemes[s.scheme];
  const int64_t group = format_info(scheme.format).group_size;
  const int64_t k = projection == 2 ? s.intermediate : s.hidden;
  const int64_t rows =
      projection == 2 ? s.hidden : s.intermediate * (scheme.fused ? int64_t{2} : int64_t{1});
  StoredTensor t;
  t.name = tensor_name(s, expert, projection, scheme.components[static_cast<int>(c)].part);
  t.dtype = usual_dtype(scheme, c);
  if (scheme.fused) t.shape.push_back(s.num_experts);
  if (c != Component::global_scale) t.shape.push_back(rows);
  if (c == Component::codes && scheme.fused) t.shape.insert(t.shape.end(), {k / group, group / 2});
  if (c == Component::codes && !scheme.fused) t.shape.push_back(k / 2);
  if (c == Component::scales) t.shape.push_back(k / group);
  if (c == Component::global_scale) {
    if (scheme.global_scale_use == GlobalScaleUse::divide) t.shape.push_back(1);
    t.bytes = f32_bytes(global_scale_of(expert, projection));
    return t;
  }
  int64_t n = t.dtype == "BF16" ? 2 : 1;
  for (const int64_t d : t.shape) n *= d;
  t.bytes = noise(t.name, static_cast<size_t>(n));
  return t;
}

/// All tensors of the layer, without those of activation quantisation.
inline std::vector<StoredTensor> make_layer(const LayerSpec& s) {
  const Scheme& scheme = kSchemes[s.scheme];
  std::vector<StoredTensor> result;
  for (int32_t expert = 0; expert < (scheme.fused ? 1 : s.num_experts); ++expert) {
    for (int projection = 0; projection < 3; ++projection) {
      if (projection == 0 && !s.gated) continue;
      if (projection == 1 && scheme.fused) continue;
      for (int c = 0; c < kNumComponents; ++c) {
        const Component component = static_cast<Component>(c);
        if (scheme.components[c].part == nullptr) continue;
        if (component == Component::bias && !s.biased) continue;
        result.push_back(make_tensor(s, expert, projection, component));
      }
    }
  }
  return result;
}

/// Views of tensors that were never in a file. `tensors` must outlive them.
inline std::vector<TensorView> views_of(const std::vector<StoredTensor>& tensors) {
  struct Known {
    const char* name;
    DType dtype;
  };
  static constexpr Known kKnown[] = {
      {"U8", DType::u8},     {"I8", DType::s8},     {"F8_E4M3", DType::e4m3},
      {"F32", DType::f32},   {"BF16", DType::bf16}, {"F8_E8M0", DType::e8m0},
      {"F4", DType::e2m1x2}, {"I32", DType::s32},   {"I64", DType::s64},
      {"F16", DType::f16},
  };
  std::vector<TensorView> views;
  for (const StoredTensor& t : tensors) {
    TensorView view;
    view.name = t.name;
    view.stored_dtype = t.dtype;
    for (const Known& known : kKnown) {
      if (t.dtype == known.name) view.dtype = known.dtype;
    }
    for (const int64_t d : t.shape) view.shape[view.rank++] = d;
    view.data = reinterpret_cast<const uint8_t*>(t.bytes.data());
    view.nbytes = t.bytes.size();
    views.push_back(view);
  }
  return views;
}

}  // namespace snug::test
