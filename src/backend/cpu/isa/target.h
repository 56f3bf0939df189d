// SPDX-License-Identifier: Apache-2.0
// What every path's translation unit includes before its target pragma, so that the headers'
// functions are compiled for the baseline whoever includes them.
// tidy: no twin, tests/backend/cpu run every path
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "backend/cpu/panel.h"
#include "backend/cpu/path.h"
#include "geometry/cpu_blocks.h"
#include "geometry/panel_codes.h"

// Vectors are passed between functions of one path only. The other two are g++ 12's false alarms
// over its own intrinsics, which begin with undefined vectors on purpose.
#pragma GCC diagnostic ignored "-Wpsabi"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/// Compiles what follows for more instructions than the baseline, up to SNUG_TARGET_END.
#if defined(__clang__)
#define SNUG_PRAGMA(text) _Pragma(#text)
#define SNUG_TARGET_BEGIN(list) \
  SNUG_PRAGMA(clang attribute push(__attribute__((target(list))), apply_to = function))
#define SNUG_TARGET_END _Pragma("clang attribute pop")
#else
#define SNUG_PRAGMA(text) _Pragma(#text)
#define SNUG_TARGET_BEGIN(list) _Pragma("GCC push_options") SNUG_PRAGMA(GCC target(list))
#define SNUG_TARGET_END _Pragma("GCC pop_options")
#endif

namespace snug::cpu {

namespace portable {
extern const Path kPath;
}
namespace avx2 {
extern const Path kPath;
}
namespace avx512 {
extern const Path kPath;
}
namespace vnni {
extern const Path kPath;
}
namespace bf16dot {
extern const Path kPath;
}
namespace amx {
extern const Path kPath;
}

}  // namespace snug::cpu
