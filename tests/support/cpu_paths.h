// SPDX-License-Identifier: Apache-2.0
// The instruction-set paths that tests can run here; what is missing is said once, so that a skip
// is seen.
#pragma once

#include <cstdio>
#include <vector>

#include "base/cpu_path.h"

namespace snug::test {

inline std::vector<CpuPath> cpu_paths() {
  const int best = static_cast<int>(best_cpu_path());
  std::vector<CpuPath> paths;
  for (int p = static_cast<int>(CpuPath::portable); p <= best; ++p) {
    paths.push_back(static_cast<CpuPath>(p));
  }
  static const bool kSaid = [&] {
    for (int p = best + 1; p < kNumCpuPaths; ++p) {
      std::printf("SKIPPED: this machine has no %s path\n", cpu_path_name(static_cast<CpuPath>(p)));
    }
    return true;
  }();
  (void)kSaid;
  return paths;
}

}  // namespace snug::test
