// SPDX-License-Identifier: Apache-2.0
#include "moe/activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace snug {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Activation of(ActivationKind kind) {
  if (kind == ActivationKind::swiglu_oai) return swiglu_oai_default();
  Activation a{kind};
  if (kind == ActivationKind::silu_clamped) a.limit = 10;
  return a;
}

ActivationKind kind_at(int i) { return static_cast<ActivationKind>(i); }

/// The formulas once more, in long double and in another form where there is one.
long double oracle(const Activation& a, long double g, long double u) {
  const long double limit = a.limit;
  const auto sigm = [](long double x) { return 0.5L * (1.0L + std::tanh(x / 2)); };
  switch (a.kind) {
    case ActivationKind::silu:
      return g * sigm(g) * u;
    case ActivationKind::gelu_tanh: {
      const long double c = std::sqrt(2.0L / std::acos(-1.0L));
      // 0.5 (1 + tanh t) = sigmoid(2 t)
      return g * sigm(2 * c * (g + 0.044715L * g * g * g)) * u;
    }
    case ActivationKind::gelu:
      return g * 0.5L * std::erfc(-g / std::sqrt(2.0L)) * u;
    case ActivationKind::relu2:
      return std::max(g, 0.0L) * std::max(g, 0.0L);
    case ActivationKind::swiglu_oai: {
      const long double gc = std::min(g, limit), uc = std::clamp(u, -limit, limit);
      return gc * sigm(a.alpha * gc) * (uc + a.beta);
    }
    case ActivationKind::silu_clamped: {
      const long double gc = std::min(g, limit);
      return gc * sigm(gc) * std::clamp(u, -limit, limit);
    }
    case ActivationKind::situ:
      return 4 * std::tanh(g / 4) * sigm(g) * 25 * std::tanh(u / 25);
  }
  return 0;
}

TEST(Activation, KnownValues) {
  EXPECT_NEAR(activate(of(ActivationKind::situ), 1.0, 1.0), 0.715818, 5e-7);
  EXPECT_NEAR(activate(swiglu_oai_default(), 1.0, 1.0), 1.6915915, 5e-8);
  EXPECT_NEAR(activate(of(ActivationKind::silu), 1.0, 1.0), 0.731059, 5e-7);
  EXPECT_EQ(activate(of(ActivationKind::relu2), 3.0, 99.0), 9.0);
  EXPECT_EQ(activate(of(ActivationKind::relu2), -3.0, 99.0), 0.0);
  EXPECT_NEAR(activate(of(ActivationKind::gelu), 1.0, 2.0), 2 * 0.841344746, 1e-9);
  EXPECT_NEAR(activate(of(ActivationKind::gelu_tanh), 1.0, 2.0), 2 * 0.841191990, 1e-8);
}

TEST(Activation, DoubleAgainstLongDouble) {
  for (int i = 0; i < kNumActivations; ++i) {
    const Activation a = of(kind_at(i));
    for (double g = -30; g <= 30; g += 0.37) {
      for (double u = -30; u <= 30; u += 1.3) {
        const auto expected = static_cast<double>(oracle(a, g, u));
        // Absolute: 1 + tanh or erf cancels for very negative gates.
        ASSERT_NEAR(activate(a, g, u), expected,
                    1e-14 * (1 + std::fabs(g * u)) + 1e-14 * std::fabs(expected))
            << activation_name(a.kind) << " " << g << " " << u;
      }
    }
  }
}

TEST(Activation, FloatAgainstDouble) {
  for (int i = 0; i < kNumActivations; ++i) {
    const Activation a = of(kind_at(i));
    for (float g = -40; g <= 40; g += 0.173f) {
      for (float u = -40; u <= 40; u += 1.7f) {
        const double expected = activate(a, static_cast<double>(g), static_cast<double>(u));
        ASSERT_NEAR(activate(a, g, u), expected,
                    3e-7 * (1 + std::fabs(static_cast<double>(g) * u)) + 1e-6 * std::fabs(expected))
            << activation_name(a.kind) << " " << g << " " << u;
      }
    }
  }
}

TEST(Activation, NanPassesThrough) {
  for (int i = 0; i < kNumActivations; ++i) {
    const Activation a = of(kind_at(i));
    EXPECT_TRUE(std::isnan(activate(a, kNan, 1.0f))) << activation_name(a.kind);
    EXPECT_EQ(std::isnan(activate(a, 1.0f, kNan)), is_gated(a.kind)) << activation_name(a.kind);
    EXPECT_TRUE(std::isnan(activate(a, static_cast<double>(kNan), 1.0)));
  }
  EXPECT_TRUE(std::isnan(clamp_above(kNan, 1.0f)));
  EXPECT_TRUE(std::isnan(clamp_both(kNan, 1.0f)));
}

TEST(Activation, LargeGatesStayFinite) {
  for (int i = 0; i < kNumActivations; ++i) {
    const Activation a = of(kind_at(i));
    for (const float g : {-1e30f, -1000.0f, -100.0f}) {
      if (a.kind == ActivationKind::swiglu_oai || a.kind == ActivationKind::silu_clamped) {
        EXPECT_TRUE(std::isfinite(activate(a, g, 1e30f)));
      }
      EXPECT_NEAR(activate(a, g, 1.0f), 0.0f, 1e-30f) << activation_name(a.kind) << " " << g;
    }
  }
}

TEST(Activation, GateIsClampedAboveOnly) {
  for (const ActivationKind kind : {ActivationKind::swiglu_oai, ActivationKind::silu_clamped}) {
    const Activation a = of(kind);
    EXPECT_EQ(activate(a, a.limit + 5, 1.0f), activate(a, a.limit, 1.0f));
    EXPECT_EQ(activate(a, kInf, 1.0f), activate(a, a.limit, 1.0f));
    EXPECT_NE(activate(a, a.limit - 1, 1.0f), activate(a, a.limit, 1.0f));
    // A clamp below at -limit would make these equal.
    EXPECT_NE(activate(a, -static_cast<double>(a.limit) - 3, 1.0),
              activate(a, -static_cast<double>(a.limit), 1.0));
  }
}

TEST(Activation, UpIsClampedOnBothSides) {
  for (const ActivationKind kind : {ActivationKind::swiglu_oai, ActivationKind::silu_clamped}) {
    const Activation a = of(kind);
    for (const float sign : {1.0f, -1.0f}) {
      const float at_limit = activate(a, 1.0f, sign * a.limit);
      EXPECT_EQ(activate(a, 1.0f, sign * (a.limit + 4)), at_limit);
      EXPECT_EQ(activate(a, 1.0f, sign * kInf), at_limit);
      EXPECT_NE(activate(a, 1.0f, sign * (a.limit - 1)), at_limit);
    }
  }
}

TEST(Activation, NamesAndGating) {
  const char* names[] = {"silu",       "gelu_tanh",    "gelu", "relu2",
                         "swiglu_oai", "silu_clamped", "situ"};
  ASSERT_EQ(std::size(names), static_cast<size_t>(kNumActivations));
  for (int i = 0; i < kNumActivations; ++i) {
    EXPECT_STREQ(activation_name(kind_at(i)), names[i]);
    EXPECT_EQ(is_gated(kind_at(i)), kind_at(i) != ActivationKind::relu2);
    EXPECT_EQ(fc1_rows_per_element(kind_at(i)), is_gated(kind_at(i)) ? 2 : 1);
  }
  EXPECT_STREQ(activation_name(kind_at(-1)), "unknown");
  EXPECT_STREQ(activation_name(kind_at(kNumActivations)), "unknown");
}

void expect_refused(const Activation& a, const std::string& field) {
  const Status status = check_activation(a);
  EXPECT_EQ(status.code, Code::invalid_argument);
  EXPECT_EQ(std::string(status.message).rfind(field, 0), 0u) << status.message;
}

TEST(CheckActivation, AcceptsEveryKindWithItsParameters) {
  for (int i = 0; i < kNumActivations; ++i) {
    const Status status = check_activation(of(kind_at(i)));
    EXPECT_TRUE(status.ok()) << status.message;
  }
}

TEST(CheckActivation, RefusesWhatItDocuments) {
  expect_refused({kind_at(-1)}, "activation.kind");
  expect_refused({kind_at(kNumActivations)}, "activation.kind");
  for (int i = 0; i < kNumActivations; ++i) {
    const Activation good = of(kind_at(i));
    const bool takes_limit = good.limit != 0;
    for (const float limit : {kNan, kInf, -1.0f, takes_limit ? 0.0f : 7.0f}) {
      Activation bad = good;
      bad.limit = limit;
      expect_refused(bad, "activation.limit");
    }
    const bool takes_alpha = good.kind == ActivationKind::swiglu_oai;
    for (const float value : {kNan, kInf, takes_alpha ? -kInf : 2.0f}) {
      Activation bad = good;
      bad.alpha = value;
      expect_refused(bad, "activation.alpha");
      bad = good;
      bad.beta = value;
      expect_refused(bad, "activation.alpha, beta");
    }
  }
}

}  // namespace
}  // namespace snug
