// SPDX-License-Identifier: Apache-2.0
// tidy: no twin, tests/backend/cpu run every path
// The path for every CPU: the panel loop in f32, sums and activations as the reference has them to
// the bit.
#include "backend/cpu/isa/target.h"

namespace snug::cpu::portable {

namespace {

#include "backend/cpu/isa/vectors.h"

class Kernel {
 public:
  static constexpr bool kUsesTiles = false;

  static SNUG_INLINE F32 activate(const Activation& a, F32 gate, F32 up) {
    return activate_one_by_one(a, gate, up);
  }

  Kernel(const Bound& bound, const Scratch&) : layout_(bound.weights.layout) {}

  void prepare(const MatrixLayout& matrix, const bf16* const* rows, int count, int64_t) {
    matrix_ = &matrix;
    rows_ = rows;
    count_ = count;
  }

  void multiply(const uint8_t* record, int64_t panel, const Next&, float (*acc)[kPanelRows]) const {
    multiply_panel_rows(layout_, *matrix_, record, panel, rows_, count_, acc);
  }

 private:
  const PackedLayout& layout_;
  const MatrixLayout* matrix_ = nullptr;
  const bf16* const* rows_ = nullptr;
  int count_ = 0;
};

#include "backend/cpu/fc1.h"

#include "backend/cpu/fc2.h"

#include "backend/cpu/combine.h"

}  // namespace

const Path kPath = {CpuPath::portable, fc1, fc2, combine};

}  // namespace snug::cpu::portable
