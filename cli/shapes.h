// SPDX-License-Identifier: Apache-2.0
// Expert layers of published models, by name.
#pragma once

#include <snug/snug.hpp>

#include <array>
#include <string_view>

namespace snug::cli {

struct NamedShape {
  std::string_view name;
  std::string_view what;
  int32_t num_experts, top_k, hidden, intermediate;
  int32_t activation;  // snug_activation_kind
};

inline constexpr std::array<NamedShape, 7> kShapes = {{
    {"qwen3", "Qwen3-30B-A3B", 128, 8, 2048, 768, SNUG_SILU},
    {"gptoss", "gpt-oss-20b", 32, 4, 2880, 2880, SNUG_SWIGLU_OAI},
    {"glm", "GLM, one of 4 tensor-parallel ranks", 160, 8, 6144, 512, SNUG_SILU},
    {"deepseek", "DeepSeek-V3, one of 8 tensor-parallel ranks", 256, 8, 7168, 256, SNUG_SILU},
    {"mixtral", "Mixtral 8x7B", 8, 2, 4096, 14336, SNUG_SILU},
    {"nemotron", "Nemotron 3 Nano", 128, 6, 2688, 1856, SNUG_RELU2},
    {"kjv", "examples/kjv-moe", 32, 4, 256, 96, SNUG_SILU},
}};

/// The shape of a name; null when there is none.
constexpr const NamedShape* find_shape(std::string_view name) {
  for (const NamedShape& shape : kShapes) {
    if (shape.name == name) return &shape;
  }
  return nullptr;
}

/// Caps of a named shape, all experts local; the rest as make_caps has it.
inline snug_caps caps_of(const NamedShape& shape) {
  snug_caps caps = make_caps();
  caps.num_experts = caps.num_local_experts = shape.num_experts;
  caps.top_k = shape.top_k;
  caps.hidden = shape.hidden;
  caps.intermediate = shape.intermediate;
  caps.activation.kind = shape.activation;
  if (shape.activation == SNUG_SWIGLU_OAI) caps.activation = {shape.activation, 1.702f, 1, 7};
  return caps;
}

}  // namespace snug::cli
