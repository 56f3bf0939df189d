// SPDX-License-Identifier: Apache-2.0
// Host/device markers and the assertion for our own bugs.
#pragma once

#include <cstdio>
#include <cstdlib>

#if defined(__CUDACC__)
#define SNUG_HD __host__ __device__
#define SNUG_DEVICE __device__ __forceinline__
#else
#define SNUG_HD
#define SNUG_DEVICE inline
#endif

// GCC and clang say differently that ThreadSanitizer is on.
#if defined(__SANITIZE_THREAD__)
#define SNUG_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SNUG_TSAN 1
#endif
#endif
#if !defined(SNUG_TSAN)
#define SNUG_TSAN 0
#endif

namespace snug {

/// Prints the failed expression with its place and aborts. Only SNUG_ASSERT calls it.
[[noreturn]] inline void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: snug bug: assertion failed: %s\n", file, line, expression);
  std::abort();
}

}  // namespace snug

/// An invariant of ours; never used on what a caller can influence. Always on outside kernels.
#define SNUG_ASSERT(condition) \
  ((condition) ? void(0) : ::snug::assertion_failed(#condition, __FILE__, __LINE__))
