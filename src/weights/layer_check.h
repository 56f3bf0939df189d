// SPDX-License-Identifier: Apache-2.0
// The checks on the tensors of one layer in one scheme, from counts to global scales.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "weights/model_config.h"
#include "weights/moe_layers.h"
#include "weights/naming.h"
#include "weights/safetensors.h"

namespace snug {

/// A tensor that belongs to a scheme.
struct LayerTensor {
  ExpertName name;
  Component component;
  const TensorView* tensor;  // borrowed
};

/// Checks a layer's tensors against kSchemes[scheme] and the config, and sorts them by expert,
/// projection, component. Not empty; all of one layer. Errors: those of find_moe_layers.
Result<MoeLayer> check_layer(int32_t scheme, std::vector<LayerTensor>* tensors,
                             const ModelConfig& config);

/// The f32 of a one-element tensor; the file need not align it.
float read_f32(const TensorView& tensor);

}  // namespace snug
