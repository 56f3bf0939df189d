// SPDX-License-Identifier: Apache-2.0
// What every instruction-set path does with rows and weights that ordinary layers do not have.
#include "backend/cpu/path.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/cpu_paths.h"
#include "support/layer.h"

namespace snug::cpu {
namespace {

using test::LayerCall;
using test::LayerOptions;
using test::RandomLayer;

class PathTest : public testing::TestWithParam<CpuPath> {
 protected:
  Caps caps_of(const RandomLayer& layer) const {
    Caps caps = layer.caps();
    caps.cpu_path = GetParam();
    return caps;
  }
  std::vector<float> run(const RandomLayer& layer) const {
    const Caps caps = caps_of(layer);
    return LayerCall(layer, Machine::cpu, caps.max_tokens, caps).run();
  }
  static std::vector<float> oracle(const RandomLayer& layer) {
    return test::run(layer, Machine::reference, layer.options.max_tokens, Numerics::float64);
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, PathTest, testing::ValuesIn(test::cpu_paths()),
                         [](const testing::TestParamInfo<CpuPath>& info) {
                           return std::string(cpu_path_name(info.param));
                         });

LayerOptions options_of(Format format, int64_t tokens) {
  LayerOptions options = format == Format::mxfp4 ? test::mxfp4_options() : LayerOptions{};
  options.num_experts = 2;
  options.top_k = 1;
  options.max_tokens = tokens;
  return options;
}

TEST_P(PathTest, IsItself) { EXPECT_EQ(path_of(GetParam()).id, GetParam()); }

// A row of ones beside an outlier: what fixed point alone would round away counts here, as the
// outlier's own weights are zero.
TEST_P(PathTest, SmallElementsBesideAnOutlierCount) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    for (const int64_t tokens : {1, 3, 20}) {
      RandomLayer layer(options_of(format, tokens));
      for (int64_t t = 0; t < tokens; ++t) {
        layer.x[static_cast<size_t>(t * layer.options.hidden + 5)] = f32_to_bf16(3e5f);
      }
      for (test::StoredExpert& e : layer.experts) {
        for (test::StoredMatrix* m : {&e.gate, &e.up}) {
          for (int64_t row = 0; row < m->rows; ++row) m->set_code(row, 5, 0);
        }
      }
      EXPECT_LE(test::relative_l2(run(layer), oracle(layer)), 1e-3) << tokens;
    }
  }
}

// NaN and infinity reach their own token and no other; huge and tiny rows stay right.
TEST_P(PathTest, RowsThatFixedPointCannotHold) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    const int64_t tokens = 24;
    RandomLayer layer(options_of(format, tokens));
    const auto hidden = static_cast<size_t>(layer.options.hidden);
    const auto set = [&](size_t token, size_t k, float value) {
      layer.x[token * hidden + k] = f32_to_bf16(value);
    };
    const RandomLayer plain = layer;
    set(3, 7, std::nanf(""));
    set(4, 8, std::numeric_limits<float>::infinity());
    for (size_t k = 0; k < hidden; ++k) {
      set(5, k, std::ldexp(bf16_to_f32(layer.x[5 * hidden + k]), 100));
      set(6, k, std::ldexp(bf16_to_f32(layer.x[6 * hidden + k]), -90));
      set(7, k, 0.0f);
    }
    const std::vector<float> y = run(layer), want = run(plain), exact = oracle(layer);
    for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
      const auto row = [&](const std::vector<float>& v) {
        return std::vector<float>(v.begin() + static_cast<ptrdiff_t>(t * hidden),
                                  v.begin() + static_cast<ptrdiff_t>((t + 1) * hidden));
      };
      if (t == 3 || t == 4) {
        for (const float v : row(y)) ASSERT_FALSE(std::isfinite(v)) << t;
      } else if (t == 7) {
        for (const float v : row(y)) ASSERT_EQ(v, 0.0f);
      } else if (t == 5) {
        for (size_t n = 0; n < hidden; ++n) {  // the product of gate and up is beyond f32
          ASSERT_EQ(std::isfinite(row(y)[n]), std::isfinite(row(exact)[n])) << n;
        }
      } else if (t != 6) {
        ASSERT_EQ(row(y), row(want)) << "token " << t << " depends on another";
      }
    }
    for (size_t n = 0; n < hidden; ++n) EXPECT_TRUE(std::isfinite(y[6 * hidden + n]));
  }
}

// Scale bytes at both ends; zero and negative scales; every code.
TEST_P(PathTest, ScalesAtTheEnds) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    for (const int64_t tokens : {1, 2, 9, 40}) {
      RandomLayer layer(options_of(format, tokens));
      for (test::StoredExpert& e : layer.experts) {
        int at = 0;
        for (int64_t row = 0; row < e.gate.rows; ++row) {
          for (int64_t k = 0; k < e.gate.k; ++k, ++at) {
            e.gate.set_code(row, k, at % 16);
            if (k % e.gate.group() != 0) continue;
            const uint8_t nvfp4[] = {0x00, 0x80, 0x01, 0x07, 0x81, 0x08, 0x7E, 0xFE, 0x38, 0xB8};
            const uint8_t mxfp4[] = {0, 1, 2, 3, 120, 127, 130, 119, 121, 126};
            e.gate.set_scale(
                row, k,
                format == Format::nvfp4 ? nvfp4[(row + k / 16) % 10] : mxfp4[(row + k / 32) % 10]);
          }
        }
      }
      EXPECT_LE(test::relative_l2(run(layer), oracle(layer)), 1e-3) << tokens;
    }
  }
}

TEST_P(PathTest, BitsDoNotDependOnThreadsNorOnTheRun) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    LayerOptions options = options_of(format, 150);
    options.top_k = 2;
    const RandomLayer layer(options);
    Caps caps = caps_of(layer);
    const std::vector<float> want = LayerCall(layer, Machine::cpu, 150, caps).run();
    for (const int32_t threads : {1, 2, 3, 7}) {
      caps.num_threads = threads;
      EXPECT_EQ(LayerCall(layer, Machine::cpu, 150, caps).run(), want) << threads;
    }
  }
}

// Blocks of more slots than fit together, of every size around a tile.
TEST_P(PathTest, EveryNumberOfSlots) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    LayerOptions options = options_of(format, 300);
    options.hidden = 96;
    RandomLayer layer(options);
    Caps caps = caps_of(layer);
    caps.batch_invariant = true;
    for (int32_t& id : layer.ids) id = 1;
    const std::vector<float> most = LayerCall(layer, Machine::cpu, 300, caps).run();
    EXPECT_LE(test::relative_l2(most, oracle(layer)), 1e-3);
    for (const int64_t tokens : {1, 2, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 80, 255}) {
      const std::vector<float> y = LayerCall(layer, Machine::cpu, tokens, caps).run();
      ASSERT_TRUE(std::equal(y.begin(), y.end(), most.begin())) << tokens;
    }
  }
}

}  // namespace
}  // namespace snug::cpu
