// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/run.h"

#include <omp.h>

#include "backend/cpu/path.h"
#include "backend/cpu/route.h"
#include "backend/cpu/workers.h"

namespace snug::cpu {

namespace {

Range chunk_of(const Bound& bound, int64_t chunk) {
  return piece_of(bound.io.num_tokens, bound.schedule.policy.chunk_tokens, chunk);
}

Sync& sync_of(const Bound& bound) {
  return *std::launder(reinterpret_cast<Sync*>(slice_data<uint8_t>(bound, SliceId::sync)));
}

/// One worker's share of the layer. The first chunk was routed before the workers started; the
/// region's end is the last one's barrier.
void work(const Bound& bound, int32_t worker, int32_t num_workers) {
  Sync& sync = sync_of(bound);
  const Path& path = path_of(sync.path);
  const int64_t panels = fc2_panels(bound.weights.layout);
  const int64_t together =
      fc2_panels_together(panels, bound.schedule.policy.column_block, bound.schedule.num_workers);
  const int64_t blocks = ceil_div(panels, together);
  for (int64_t chunk = 0; chunk < bound.schedule.num_chunks; ++chunk) {
    const Range tokens = chunk_of(bound, chunk);
    if (chunk > 0) {
      wait_for_all(sync, num_workers);
      if (worker == 0) route(bound, tokens, sync);
      wait_for_all(sync, num_workers);
    }
    path.fc1(bound, tokens, sync, worker);
    wait_for_all(sync, num_workers);
    for (int64_t b; (b = sync.fc2_task.fetch_add(1, std::memory_order_relaxed)) < blocks;) {
      const Range columns = piece_of(panels, together, b);
      path.fc2(bound, sync, columns, worker);
      path.combine(bound, tokens, columns, worker);
    }
  }
}

void work_body(void* argument, int32_t worker, int32_t num_workers) {
  work(*static_cast<const Bound*>(argument), worker, num_workers);
}

}  // namespace

#if SNUG_TSAN
// ThreadSanitizer cannot see how OpenMP's own runtime orders fork and join (it is not
// instrumented), so this function tells it; what the workers do between the two is checked in full.
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
__attribute__((no_sanitize("thread")))
#endif
void parallel_openmp(void* /*context*/, int32_t num_workers, Executor::Body body, void* argument) {
#if SNUG_TSAN
  static char fork, join;
  __tsan_release(&fork);
#endif
#pragma omp parallel num_threads(num_workers)
  {
#if SNUG_TSAN
    __tsan_acquire(&fork);
#endif
    body(argument, omp_get_thread_num(), omp_get_num_threads());
#if SNUG_TSAN
    __tsan_release(&join);
#endif
  }
#if SNUG_TSAN
  __tsan_acquire(&join);
#endif
}

Status run(const Bound& bound, void* /*stream*/) {
  if (bound.io.num_tokens == 0) return {};
  Sync& sync = *make_sync(slice_data<uint8_t>(bound, SliceId::sync));
  sync.path = path_of(bound.schedule.cpu_path).id;
  route(bound, chunk_of(bound, 0), sync);
  void* argument = const_cast<Bound*>(&bound);
  const int32_t num_workers = bound.schedule.num_workers;
  if (bound.executor.parallel != nullptr) {
    bound.executor.parallel(bound.executor.context, num_workers, work_body, argument);
  } else if (num_workers == 1) {
    work_body(argument, 0, 1);
  } else {
    parallel_openmp(nullptr, num_workers, work_body, argument);
  }
  return {};
}

}  // namespace snug::cpu
