// SPDX-License-Identifier: Apache-2.0
// Finds the routed-expert layers among a checkpoint's tensors, and proves each of them complete:
// every expert, projection and component exactly once, every shape and dtype as its scheme says.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "moe/format.h"
#include "weights/model_config.h"
#include "weights/naming.h"
#include "weights/safetensors.h"
#include "weights/source.h"

namespace snug {

/// One set of routed experts that a checkpoint holds. A layer stored in two formats appears twice.
struct MoeLayer {
  int32_t layer = -1;   // the number in the tensors' names
  int32_t scheme = -1;  // into kSchemes
  Format format = Format::nvfp4;
  int32_t num_experts = 0;
  int32_t hidden = 0;  // width the experts see
  int32_t intermediate = 0;
  bool gated = true;      // false: one FC1 matrix, ExpertSource::gate
  bool has_bias = false;  // then every projection has one
};

/// A layer with its tensors, ordered expert-major (then projection, then component); a fused
/// scheme has one "expert". Global scales and shapes have been checked.
struct MoeLayerTensors {
  MoeLayer layer;
  std::vector<const TensorView*> tensors;
};

/// The routed-expert layers among `tensors` (any order), sorted by layer, then format.
/// Time:    n log n in the number of tensors.
/// Skipped: names that are no routed expert's, tensors of activation quantisation, multi-token
///          prediction blocks (names under `mtp`, or numbered at or past config.num_layers when no
///          scheme of this build holds them).
/// Errors:  corrupt_checkpoint naming layer, expert, projection and component: a tensor that is
///          missing, comes twice or fits no pattern, a wrong dtype or shape, a disagreement with
///          `config`, a global scale that is not finite and positive. unsupported for experts in a
///          format outside kSchemes (naming what was found), two schemes of one format in a layer,
///          and sizes that are no multiple of the format's group.
Result<std::vector<MoeLayerTensors>> find_moe_layers(std::span<const TensorView* const> tensors,
                                                     const ModelConfig& config);

/// Where one expert lies. Pointers lead into the mapped files; nothing is copied.
///   expert   0..num_experts-1
Result<ExpertSource> expert_source(const MoeLayerTensors& layer, int32_t expert);

/// Bytes of all tensors of the layer.
uint64_t source_nbytes(const MoeLayerTensors& layer);

}  // namespace snug
