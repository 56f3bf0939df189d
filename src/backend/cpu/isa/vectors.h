// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes in the compiler's own vector types, and what the epilogues compute with them.
// Included inside a path's namespace, after its target pragma: every path has its own copy, and
// the compiler makes of it what the path's instructions allow.
// tidy: no twin, tests/backend/cpu run every path

#define SNUG_INLINE inline __attribute__((always_inline))

constexpr int kLanes = 16;
typedef float F32 __attribute__((vector_size(64)));
typedef int32_t S32 __attribute__((vector_size(64)));
typedef uint32_t U32 __attribute__((vector_size(64)));
typedef uint16_t U16 __attribute__((vector_size(32)));
static_assert(kLanes == kTileRows);

/// Asks for a line that will be written: stores leave in order, and one that waits for memory holds
/// up all that follow.
SNUG_INLINE void prefetch_for_write(const void* at) { __builtin_prefetch(at, 1, 2); }

SNUG_INLINE F32 splat(float v) { return F32{} + v; }
SNUG_INLINE S32 splat(int32_t v) { return S32{} + v; }
SNUG_INLINE U32 splat(uint32_t v) { return U32{} + v; }

template <class V, class T>
SNUG_INLINE V load(const T* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <class V, class T>
SNUG_INLINE void store(T* to, V v) {
  __builtin_memcpy(to, &v, sizeof v);
}
template <class To, class From>
SNUG_INLINE To as(From v) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &v, sizeof to);
  return to;
}

SNUG_INLINE F32 bf16_to_f32(U16 v) { return as<F32>(__builtin_convertvector(v, U32) << 16); }

/// As snug::f32_to_bf16, lane by lane.
SNUG_INLINE U16 f32_to_bf16(F32 v) {
  const U32 u = as<U32>(v);
  const U32 rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  const U32 nan = (u >> 16) | 0x40u;
  const U32 is_nan = as<U32>((u & 0x7FFFFFFFu) > 0x7F800000u);
  return __builtin_convertvector((nan & is_nan) | (rounded & ~is_nan), U16);
}

/// e^x as snug::exp_portable, but clamped to e^-87.3 below; NaN stays NaN.
SNUG_INLINE F32 exp(F32 x) {
  x = x > 88.0f ? splat(88.0f) : x;
  x = x < -87.3f ? splat(-87.3f) : x;
  const F32 shifted = x * 1.44269504f + 12582912.0f;
  const F32 n = shifted - 12582912.0f;
  const F32 r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  F32 p = splat(1.98412698e-4f);
  p = p * r + 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  // shifted's low bits are n; 0x4B400000 is 12582912.
  const U32 exponent = as<U32>(shifted) - 0x4B400000u + 127u;
  return p * as<F32>(exponent << 23);
}

SNUG_INLINE F32 sigmoid(F32 x) { return 1.0f / (1.0f + exp(-x)); }

/// tanh; near zero by its series, where the quotient would cancel.
SNUG_INLINE F32 tanh(F32 x) {
  const F32 x2 = x * x;
  F32 series = splat(62.0f / 2835);
  series = series * x2 - 17.0f / 315;
  series = series * x2 + 2.0f / 15;
  series = series * x2 - 1.0f / 3;
  series = series * x2 * x + x;
  const F32 quotient = 1.0f - 2.0f / (1.0f + exp(2.0f * x));
  return x2 < 0.0625f ? series : quotient;
}

/// As snug::clamp_above and clamp_both: NaN passes.
SNUG_INLINE F32 clamp_above(F32 x, F32 limit) { return x > limit ? limit : x; }
SNUG_INLINE F32 clamp_both(F32 x, F32 limit) { return x > limit ? limit : x < -limit ? -limit : x; }

/// As snug::activate<float>, to the bit.
SNUG_INLINE F32 activate_one_by_one(const Activation& a, F32 gate, F32 up) {
  F32 result;
  for (int i = 0; i < kLanes; ++i) result[i] = activate<float>(a, gate[i], up[i]);
  return result;
}

/// As snug::activate<float>, within a few ulp.
SNUG_INLINE F32 activate_together(const Activation& a, F32 gate, F32 up) {
  const F32 limit = splat(a.limit);
  switch (a.kind) {
    case ActivationKind::silu:
      return gate * sigmoid(gate) * up;
    case ActivationKind::gelu_tanh:  // (1 + tanh(z)) / 2 is sigmoid(2z), without the cancellation
      return gate * sigmoid(1.5957691216057308f * (gate + 0.044715f * gate * gate * gate)) * up;
    case ActivationKind::relu2:
      return gate < 0.0f ? splat(0.0f) : gate * gate;
    case ActivationKind::swiglu_oai: {
      const F32 g = clamp_above(gate, limit);
      return g * sigmoid(a.alpha * g) * (clamp_both(up, limit) + a.beta);
    }
    case ActivationKind::silu_clamped: {
      const F32 g = clamp_above(gate, limit);
      return g * sigmoid(g) * clamp_both(up, limit);
    }
    case ActivationKind::situ:
      return 4.0f * tanh(gate / 4.0f) * sigmoid(gate) * 25.0f * tanh(up / 25.0f);
    case ActivationKind::gelu:  // erf has no short series
      break;
  }
  return activate_one_by_one(a, gate, up);
}
