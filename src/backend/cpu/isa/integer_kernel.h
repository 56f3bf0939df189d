// SPDX-License-Identifier: Apache-2.0
// The integer paths' Kernel (see fc1.h). Included inside a path's namespace, after its
// multiply_rest.
// tidy: no twin, tests/backend/cpu run every path

class IntegerKernel {
 public:
  static constexpr bool kUsesTiles = false;

  static SNUG_INLINE F32 activate(const Activation& a, F32 gate, F32 up) {
    return activate_together(a, gate, up);
  }

  IntegerKernel(const Bound& bound, const Scratch& scratch)
      : layout_(bound.weights.layout), memory_(scratch.rows) {}

  void prepare(const MatrixLayout& matrix, const bf16* const* rows, int count, int64_t) {
    matrix_ = &matrix;
    from_ = rows;
    count_ = count;
    rows_ = integer_rows(memory_, count, matrix.padded_k);
    odd_ = quantize_rows(rows, count, matrix.k, rows_);
  }

  void multiply(const uint8_t* record, int64_t panel, const Next& next,
                float (*acc)[kPanelRows]) const {
    const uint8_t* codes = panel_codes(layout_, *matrix_, record, panel);
    const uint8_t* scales = panel_scales(layout_, *matrix_, record, panel);
    for (int first = 0; first < count_; first += kMostSlots) {
      const int slots = min_of(kMostSlots, count_ - first);
      const uint8_t* after = first + slots < count_ ? codes : next.codes;
      if (layout_.format == Format::mxfp4) {
        multiply_rest<true>(codes, scales, after, rows_, first, slots, acc + first);
      } else {
        multiply_rest<false>(codes, scales, after, rows_, first, slots, acc + first);
      }
    }
    multiply_odd_rows(layout_, *matrix_, record, panel, from_, count_, odd_, acc);
  }

 private:
  const PackedLayout& layout_;
  uint8_t* memory_;
  const MatrixLayout* matrix_ = nullptr;
  const bf16* const* from_ = nullptr;
  int count_ = 0;
  IntegerRows rows_ = {};
  OddRows odd_;
};
