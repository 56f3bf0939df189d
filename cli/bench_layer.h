// SPDX-License-Identifier: Apache-2.0
// A layer of a named shape with random weights, in enough copies that weights come from memory and
// not from a cache; timed with fresh routes for every sample.
#pragma once

#include <snug/snug.hpp>

#include <vector>

#include "layer_runner.h"

namespace snug::cli {

/// One timed sample, with what the routes of that sample touched.
struct Sample {
  double us = 0;
  double weight_nbytes = 0;  // of the touched experts
};

class BenchLayer {
 public:
  /// Prepares `copies` layers for `caps` (its max_tokens is the most that `run` takes).
  static Result<BenchLayer> make(const snug_caps& caps, const snug_device& device, int copies);

  /// Times `samples` calls with `num_tokens` tokens, Gaussian rows and uniform distinct experts.
  Result<std::vector<Sample>> run(const snug_caps& caps, const snug_device& device,
                                  int64_t num_tokens, int samples);

  uint64_t expert_nbytes() const { return expert_nbytes_; }
  double prepare_gbps() const { return prepare_gbps_; }

 private:
  struct Copy {
    Memory storage;
    Weights weights;
  };
  std::vector<Copy> copies_;
  uint64_t expert_nbytes_ = 0;
  double prepare_gbps_ = 0;
  size_t next_ = 0;
};

}  // namespace snug::cli
