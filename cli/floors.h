// SPDX-License-Identifier: Apache-2.0
// What this machine can do at best, measured: the denominators of `snug bench`.
#pragma once

#include <cstdint>
#include <string>

namespace snug::cli {

/// Best instruction set for the matrix floor, as this CPU and system allow it.
enum class MatrixUnit { scalar, fma_ymm, fma_zmm, amx };
const char* matrix_unit_name(MatrixUnit unit);
MatrixUnit best_matrix_unit();

/// Bytes a second, in GB/s, that `threads` threads read together from memory: four sequential
/// streams each, over buffers of `nbytes` in all, which should be several times the caches.
double read_gbps(int threads, uint64_t nbytes);

/// Bytes a second that one core copies to another place in memory (counted once).
double copy_gbps(uint64_t nbytes);

/// GFLOP/s of `threads` threads doing nothing but multiply and add in registers.
double matrix_gflops(int threads, MatrixUnit unit);

/// GB/s of packed E2M1 codes that one core turns into bf16 values from its L2.
double decode_gbps();

}  // namespace snug::cli
