// SPDX-License-Identifier: Apache-2.0
#include "plan/device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "support/plan_inputs.h"

namespace snug {
namespace {

TEST(Device, KnownDevicesAreFoundByNameAndCanBePlannedWith) {
  std::set<std::string> names;
  for (const Device& device : known_devices()) {
    names.insert(device.name);
    EXPECT_TRUE(check_device(device).ok()) << device.name;
    const Result<Device> found = device_by_name(device.name);
    ASSERT_TRUE(found) << device.name;
    EXPECT_STREQ(found->name, device.name);
    EXPECT_EQ(found->machine, device.machine);
    EXPECT_EQ(found->num_units, device.num_units);
    EXPECT_FALSE(test::families_of(device).empty());
  }
  EXPECT_EQ(names, (std::set<std::string>{"h200", "rtx-pro-6000", "a100", "l40s", "cpu", "cpu-amx",
                                          "cpu-bf16", "cpu-vnni", "cpu-avx512", "cpu-avx2",
                                          "cpu-portable", "reference"}));
}

TEST(Device, AnUnknownNameIsRefusedWithTheKnownOnes) {
  for (const char* name : {"", "h100", "H200", "h200 "}) {
    const Result<Device> device = device_by_name(name);
    ASSERT_FALSE(device) << name;
    EXPECT_EQ(device.error().code, Code::invalid_argument);
    EXPECT_EQ(std::strncmp(device.error().message, "device:", 7), 0) << device.error().message;
    for (const Device& known : known_devices()) {
      EXPECT_TRUE(std::strstr(device.error().message, known.name)) << device.error().message;
    }
  }
  const std::string longest(4000, 'x');  // a caller's string: cut, and the list still follows
  EXPECT_TRUE(std::strstr(device_by_name(longest.c_str()).error().message, "reference"));
}

struct Refusal {
  const char* field;
  std::function<void(Device&, double)> set;
};

const Refusal kRates[] = {
    {"device.read_gbps", [](Device& d, double v) { d.read_gbps = v; }},
    {"device.matrix_tflops", [](Device& d, double v) { d.matrix_tflops = v; }},
    {"device.step_us", [](Device& d, double v) { d.step_us = v; }},
};

void expect_refused(const Device& device, const char* field) {
  const Status status = check_device(device);
  EXPECT_EQ(status.code, Code::invalid_argument) << field;
  const std::string start = std::string(field) + ":";
  EXPECT_EQ(std::strncmp(status.message, start.c_str(), start.size()), 0) << status.message;
  const Caps caps = test::make_caps(8, 2, 64, 32, 16);
  EXPECT_STREQ(make_plan(caps, device, cpu::kFamilies).error().message, status.message);
}

TEST(Device, EveryRefusalNamesItsField) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const Refusal& rate : kRates) {
    for (const double bad : {0.0, -1.0, kNan, HUGE_VAL, -HUGE_VAL}) {
      Device device = test::device_named("cpu");
      rate.set(device, bad);
      expect_refused(device, rate.field);
    }
  }
  for (const int bad : {0, -1}) {
    Device device = test::device_named("cpu");
    device.num_units = bad;
    expect_refused(device, "device.num_units");
    device = test::device_named("cpu");
    device.l2_nbytes = bad;
    expect_refused(device, "device.l2_nbytes");
  }
  for (const int bad : {-1, kNumMachines}) {
    Device device = test::device_named("cpu");
    device.machine = static_cast<Machine>(bad);
    expect_refused(device, "device.machine");
  }
}

TEST(Device, MachinesHaveNames) {
  EXPECT_STREQ(machine_name(Machine::reference), "reference");
  EXPECT_STREQ(machine_name(Machine::cpu), "cpu");
  EXPECT_STREQ(machine_name(Machine::cuda), "cuda");
}

}  // namespace
}  // namespace snug
