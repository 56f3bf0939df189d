// SPDX-License-Identifier: Apache-2.0
#include "plan/device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>

#include "base/cpu_path.h"

namespace snug {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int32_t kKiB = 1 << 10;

// Shared memory: CUDA programming guide, table of limits by compute capability (maximum a CTA).
constexpr int kNumDevices = 12;
constexpr Device kDevices[kNumDevices - 1] = {
    // Read rate and bf16 rate measured: 4426 GB/s, 746 TFLOP/s (8192^3); launch in a graph.
    {"h200", Machine::cuda, 90, 132, 227 * kKiB, 60 * kMiB, 4426, 746, 1.2},
    // The others: 0.92 of the data sheet's bandwidth, 0.75 of its dense bf16 rate.
    {"rtx-pro-6000", Machine::cuda, 120, 188, 99 * kKiB, 128 * kMiB, 1650, 378, 1.5},
    {"a100", Machine::cuda, 80, 108, 163 * kKiB, 40 * kMiB, 1875, 234, 1.5},
    {"l40s", Machine::cuda, 89, 142, 99 * kKiB, 96 * kMiB, 795, 271, 1.5},
    // Two cores of a server that others use too: 12 GB/s and what the path's own units reach.
    {"cpu-amx", Machine::cpu, 6, 2, 0, 32 * kMiB, 24, 5.3, 5},
    {"cpu-bf16", Machine::cpu, 5, 2, 0, 32 * kMiB, 24, 0.6, 5},
    {"cpu-vnni", Machine::cpu, 4, 2, 0, 32 * kMiB, 24, 0.6, 5},
    {"cpu-avx512", Machine::cpu, 3, 2, 0, 32 * kMiB, 24, 0.3, 5},
    {"cpu-avx2", Machine::cpu, 2, 2, 0, 32 * kMiB, 24, 0.3, 5},
    {"cpu-portable", Machine::cpu, 1, 2, 0, 32 * kMiB, 24, 0.05, 5},
    // The same machine driving the plain loops.
    {"reference", Machine::reference, 0, 1, 0, 32 * kMiB, 12, 0.001, 0.1},
};

Status check_positive(const char* field, double have) {
  if (std::isfinite(have) && have > 0) return {};
  return make_error(Code::invalid_argument, "device.%s: have %g, need a positive value", field,
                    have);
}

struct DeviceTable {
  Device devices[kNumDevices];  // the fixed ones, then this CPU
};

DeviceTable make_table() {
  DeviceTable table;
  std::copy(std::begin(kDevices), std::end(kDevices), table.devices);
  Device& here = table.devices[kNumDevices - 1];
  for (const Device& device : kDevices) {
    const bool best =
        device.machine == Machine::cpu && device.arch == static_cast<int32_t>(best_cpu_path());
    if (best) here = device;
  }
  std::memset(here.name, 0, sizeof here.name);
  std::memcpy(here.name, "cpu", 4);
  return table;
}

}  // namespace

std::span<const Device> known_devices() {
  static const DeviceTable table = make_table();
  return table.devices;
}

Result<Device> device_by_name(const char* name) {
  std::string names;
  for (const Device& device : known_devices()) {
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
  if (d.machine == Machine::cpu && (d.arch < 1 || d.arch >= kNumCpuPaths)) {
    return make_error(Code::invalid_argument, "device.arch: have %d, a CPU needs 1..%d", d.arch,
                      kNumCpuPaths - 1);
  }
  SNUG_RETURN_IF_ERROR(check_positive("num_units", d.num_units));
  SNUG_RETURN_IF_ERROR(check_positive("l2_nbytes", static_cast<double>(d.l2_nbytes)));
  SNUG_RETURN_IF_ERROR(check_positive("read_gbps", d.read_gbps));
  SNUG_RETURN_IF_ERROR(check_positive("matrix_tflops", d.matrix_tflops));
  return check_positive("step_us", d.step_us);
}

}  // namespace snug
