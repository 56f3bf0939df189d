// SPDX-License-Identifier: Apache-2.0
#include "plan/device.h"

#include <cmath>
#include <cstring>
#include <string>

namespace snug {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int32_t kKiB = 1 << 10;

// Shared memory: CUDA programming guide, table of limits by compute capability (maximum a CTA).
constexpr Device kDevices[] = {
    // Read rate and bf16 rate measured: 4426 GB/s, 746 TFLOP/s (8192^3); launch in a graph.
    {"h200", Machine::cuda, 90, 132, 227 * kKiB, 60 * kMiB, 4426, 746, 1.2},
    // The others: 0.92 of the data sheet's bandwidth, 0.75 of its dense bf16 rate.
    {"rtx-pro-6000", Machine::cuda, 120, 188, 99 * kKiB, 128 * kMiB, 1650, 378, 1.5},
    {"a100", Machine::cuda, 80, 108, 163 * kKiB, 40 * kMiB, 1875, 234, 1.5},
    {"l40s", Machine::cuda, 89, 142, 99 * kKiB, 96 * kMiB, 795, 271, 1.5},
    // A desktop core pair on portable code; docs/memory.md says how to give other numbers.
    {"cpu", Machine::cpu, 0, 2, 0, 32 * kMiB, 24, 0.05, 5},
    // The same machine driving the plain loops.
    {"reference", Machine::reference, 0, 1, 0, 32 * kMiB, 12, 0.001, 0.1},
};

Status check_positive(const char* field, double have) {
  if (std::isfinite(have) && have > 0) return {};
  return make_error(Code::invalid_argument, "device.%s: have %g, need a positive value", field,
                    have);
}

}  // namespace

std::span<const Device> known_devices() { return kDevices; }

Result<Device> device_by_name(const char* name) {
  std::string names;
  for (const Device& device : kDevices) {
    if (std::strcmp(device.name, name) == 0) return device;
    names.append(names.empty() ? "" : ", ").append(device.name);
  }
  return make_error(Code::invalid_argument, "device: have \"%.60s\", need one of %s", name,
                    names.c_str());
}

Status check_device(const Device& d) {
  const int machine = static_cast<int>(d.machine);
  if (machine < 0 || machine >= kNumMachines) {
    return make_error(Code::invalid_argument, "device.machine: have %d, need 0..%d", machine,
                      kNumMachines - 1);
  }
  SNUG_RETURN_IF_ERROR(check_positive("num_units", d.num_units));
  SNUG_RETURN_IF_ERROR(check_positive("l2_nbytes", static_cast<double>(d.l2_nbytes)));
  SNUG_RETURN_IF_ERROR(check_positive("read_gbps", d.read_gbps));
  SNUG_RETURN_IF_ERROR(check_positive("matrix_tflops", d.matrix_tflops));
  return check_positive("step_us", d.step_us);
}

}  // namespace snug
