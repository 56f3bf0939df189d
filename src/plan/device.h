// SPDX-License-Identifier: Apache-2.0
// A device as a value: a plan for an H200 can be made and priced on a laptop.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"

namespace snug {

/// Values are part of the C ABI (snug_backend); append only.
enum class Machine : int32_t { reference = 0, cpu = 1, cuda = 2 };
inline constexpr int kNumMachines = 3;

constexpr const char* machine_name(Machine m) {
  return m == Machine::reference ? "reference" : m == Machine::cpu ? "cpu" : "cuda";
}

/// What the planner needs to know of a machine. Rates are what a kernel can reach, not data-sheet
/// peaks, where a measurement exists; the table says which.
struct Device {
  char name[24] = {};
  Machine machine = Machine::cpu;
  int32_t arch = 0;          // CUDA: 80, 89, 90, 120; CPU: its best CpuPath; reference: 0
  int32_t num_units = 1;     // SMs, or cores
  int32_t smem_nbytes = 0;   // shared memory a CTA may ask for; CPU: 0
  int64_t l2_nbytes = 0;     // shared by all units
  double read_gbps = 1;      // device memory, whole device
  double matrix_tflops = 1;  // dense bf16 with f32 accumulation, whole device
  double step_us = 1;        // a dependent launch, or a barrier over all workers
};

/// The devices known by name: h200, rtx-pro-6000, a100, l40s, cpu-amx, cpu-bf16, cpu-vnni,
/// cpu-avx512, cpu-avx2, cpu-portable, reference, and cpu: this machine's best of the cpu-* ones.
std::span<const Device> known_devices();

/// Looks a device up; the error lists the known names.
Result<Device> device_by_name(const char* name);

/// Refuses a device value whose numbers cannot be planned with, naming the field.
Status check_device(const Device& device);

}  // namespace snug
