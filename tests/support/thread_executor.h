// SPDX-License-Identifier: Apache-2.0
// A caller's own thread pool, as snug_io.parallel takes it: one std::thread a worker.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

namespace snug::test {

/// Runs all workers at once; `context` may point to an int32_t that caps their number.
inline void thread_executor(void* context, int32_t num_workers,
                            void (*body)(void* argument, int32_t worker, int32_t num_workers),
                            void* argument) {
  if (context != nullptr && *static_cast<int32_t*>(context) < num_workers) {
    num_workers = *static_cast<int32_t*>(context);
  }
  std::vector<std::thread> threads;
  for (int32_t w = 1; w < num_workers; ++w) threads.emplace_back(body, argument, w, num_workers);
  body(argument, 0, num_workers);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace snug::test
