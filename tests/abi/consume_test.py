#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds a user's project against Snug: installed and found by find_package from a project that is
C only, or added as a subdirectory of a C++ project; then runs it."""
import argparse
import pathlib
import shutil
import subprocess
import sys

INSTALLED = """cmake_minimum_required(VERSION 3.24)
project(user LANGUAGES C)
find_package(snug 0.1 REQUIRED CONFIG)
add_executable(user main.c)
target_link_libraries(user PRIVATE snug::snug)
"""

SUBDIRECTORY = """cmake_minimum_required(VERSION 3.24)
project(user LANGUAGES C CXX)
add_subdirectory({source} snug EXCLUDE_FROM_ALL)
add_executable(user main.c)
target_link_libraries(user PRIVATE snug::snug)
if(TARGET snug_cli OR TARGET base_test)
  message(FATAL_ERROR "a subdirectory build must not bring the command or the tests")
endif()
"""

MAIN = """#include <snug/snug.h>
#include <stdio.h>
int main(void) {
  snug_device device;
  if (snug_device_by_name("h200", &device, 0) != SNUG_OK) return 1;
  printf("snug %s, %d SMs\\n", snug_version(), device.num_units);
  return 0;
}
"""


def run(*command: str) -> None:
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        print(result.stdout)
        sys.exit(f"failed: {' '.join(command)}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=["install", "subdirectory"])
    for name in ("build", "source", "cmake", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--flags", default="")
    args = parser.parse_args()
    work = pathlib.Path(args.work)
    shutil.rmtree(work, ignore_errors=True)
    user = work / "user"
    user.mkdir(parents=True)
    (user / "main.c").write_text(MAIN)
    configure = [args.cmake, "-S", str(user), "-B", str(work / "build"), "-G", "Ninja",
                 "-DCMAKE_BUILD_TYPE=Release"]
    if args.how == "install":
        prefix = work / "prefix"
        run(args.cmake, "--install", args.build, "--prefix", str(prefix))
        (user / "CMakeLists.txt").write_text(INSTALLED)
        # A library under a sanitizer needs a program under it.
        configure += [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_C_FLAGS={args.flags}"]
        found = sorted(str(p.relative_to(prefix)) for p in (prefix / "include").rglob("*.h*"))
        if found != ["include/snug/snug.h", "include/snug/snug.hpp"]:
            sys.exit(f"installed headers: {found}")
    else:
        (user / "CMakeLists.txt").write_text(SUBDIRECTORY.format(source=args.source))
    run(*configure)
    run(args.cmake, "--build", str(work / "build"), "--parallel", "2")
    answer = subprocess.run([str(work / "build" / "user")], check=True, capture_output=True,
                            text=True).stdout
    print(answer, end="")
    return 0 if answer == "snug 0.1.0, 132 SMs\n" else 1


if __name__ == "__main__":
    sys.exit(main())
