// SPDX-License-Identifier: Apache-2.0
// What the workers of one run share: task counters and a barrier, all in the arena.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "base/cpu_path.h"
#include "base/macros.h"

namespace snug::cpu {

/// Lives in the sync slice. Every counter has a cache line of its own.
struct Sync {
  alignas(64) std::atomic<int32_t> fc1_task;
  alignas(64) std::atomic<int32_t> fc2_task;
  alignas(64) std::atomic<int32_t> arrived;
  std::atomic<int32_t> phase;
  int32_t num_active;  // experts with slots in this chunk; written by worker 0 between barriers
  CpuPath path;        // whose steps run
};
static_assert(sizeof(Sync) <= 64 * sizeof(int32_t), "the sync slice holds it");

inline Sync* make_sync(void* memory) {
  Sync* sync = new (memory) Sync;
  sync->fc1_task.store(0, std::memory_order_relaxed);
  sync->fc2_task.store(0, std::memory_order_relaxed);
  sync->arrived.store(0, std::memory_order_relaxed);
  sync->phase.store(0, std::memory_order_relaxed);
  sync->num_active = 0;
  sync->path = CpuPath::automatic;
  return sync;
}

/// Returns when all `num_workers` have arrived; what each wrote before is then visible to all.
/// Sleeps after a short spin, so that more workers than cores do no harm.
inline void wait_for_all(Sync& sync, int32_t num_workers) {
  if (num_workers <= 1) return;
  const int32_t phase = sync.phase.load(std::memory_order_relaxed);
  if (sync.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == num_workers) {
    sync.arrived.store(0, std::memory_order_relaxed);
    sync.phase.store(phase + 1, std::memory_order_release);
    sync.phase.notify_all();
    return;
  }
  for (int spin = 0; spin < 1000; ++spin) {
    if (sync.phase.load(std::memory_order_acquire) != phase) return;
  }
  while (sync.phase.load(std::memory_order_acquire) == phase) {
    sync.phase.wait(phase, std::memory_order_acquire);
  }
}

}  // namespace snug::cpu
