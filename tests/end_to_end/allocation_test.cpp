// SPDX-License-Identifier: Apache-2.0
// bind and run allocate nothing: every allocation function of this process is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>

#include "end_to_end/random_model.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SNUG_CANNOT_COUNT 1
#else
#define SNUG_CANNOT_COUNT 0
#endif

namespace {
std::atomic<int64_t> num_allocations{0};
}

#if !SNUG_CANNOT_COUNT
extern "C" {
void* __libc_malloc(size_t nbytes);
void* __libc_calloc(size_t count, size_t nbytes);
void* __libc_realloc(void* p, size_t nbytes);
void* __libc_memalign(size_t alignment, size_t nbytes);

void* malloc(size_t nbytes) {
  ++num_allocations;
  return __libc_malloc(nbytes);
}
void* calloc(size_t count, size_t nbytes) {
  ++num_allocations;
  return __libc_calloc(count, nbytes);
}
void* realloc(void* p, size_t nbytes) {
  ++num_allocations;
  return __libc_realloc(p, nbytes);
}
void* aligned_alloc(size_t alignment, size_t nbytes) {
  ++num_allocations;
  return __libc_memalign(alignment, nbytes);
}
int posix_memalign(void** p, size_t alignment, size_t nbytes) {
  ++num_allocations;
  *p = __libc_memalign(alignment, nbytes);
  return *p == nullptr ? 12 : 0;
}
}
#endif

namespace snug::test {
namespace {

/// Allocations of one bind and one run.
int64_t count_call(BoundLayer& layer, int64_t tokens, void* arena, float* output) {
  const snug_io io = layer.make_io(tokens, arena, output);
  snug_binding binding;
  const int64_t before = num_allocations;
  const snug_status bound = snug_bind(layer.plan(), layer.weights(), &io, &binding, nullptr);
  const snug_status ran = snug_run(&binding, nullptr, nullptr);
  const int64_t after = num_allocations;
  EXPECT_EQ(bound, SNUG_OK);
  EXPECT_EQ(ran, SNUG_OK);
  return after - before;
}

TEST(Allocation, TheCounterCounts) {
  if (SNUG_CANNOT_COUNT) GTEST_SKIP() << "the sanitizer owns malloc";
  const int64_t before = num_allocations;
  std::vector<int>* v = new std::vector<int>(1000);
  EXPECT_GE(num_allocations - before, 2);
  delete v;
}

TEST(Allocation, BindAndRunAllocateNothing) {
  if (SNUG_CANNOT_COUNT) GTEST_SKIP() << "the sanitizer owns malloc";
  LayerSpec spec;
  spec.hidden = 128;
  spec.intermediate = 64;
  const RandomModel model(spec, 33);
  for (const char* device : {"cpu", "reference"}) {
    for (const int32_t threads : {1, 2}) {
      snug_caps caps = make_caps(spec, {SNUG_SILU, 1, 0, 0});
      caps.max_tokens = 33;
      caps.num_threads = threads;
      BoundLayer layer(model, caps, device);
      GuardedMemory arena(snug_plan_required_nbytes(layer.plan()), snug_arena_alignment(),
                          GuardedMemory::Edge::back);
      std::vector<float> y(33 * 128);
      // OpenMP makes its threads in its first parallel region of the process: that one is not ours.
      if (threads > 1) count_call(layer, 33, arena.data(), y.data());
      for (const int64_t tokens : {33, 1, 2, 0, 17, 33}) {
        EXPECT_EQ(count_call(layer, tokens, arena.data(), y.data()), 0)
            << device << " " << threads << " threads, " << tokens << " tokens";
      }
    }
  }
}

TEST(Allocation, RefusalsAllocateNothingEither) {
  if (SNUG_CANNOT_COUNT) GTEST_SKIP() << "the sanitizer owns malloc";
  LayerSpec spec;
  const RandomModel model(spec, 4);
  snug_caps caps = make_caps(spec, {SNUG_SILU, 1, 0, 0});
  caps.max_tokens = 4;
  BoundLayer layer(model, caps, "cpu");
  snug_io io = layer.make_io(4, nullptr, nullptr);
  snug_binding binding;
  snug_error error = {};
  const int64_t before = num_allocations;
  EXPECT_NE(snug_bind(layer.plan(), layer.weights(), &io, &binding, &error), SNUG_OK);
  EXPECT_EQ(num_allocations - before, 0);
}

}  // namespace
}  // namespace snug::test
