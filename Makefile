# SPDX-License-Identifier: Apache-2.0
# Two commands for a fresh Debian 12: `make demo` and `make test`. The rest is for developers; the
# build itself is CMake's (CMakePresets.json).
.PHONY: help deps build demo test asan tsan lint format clean

SNUG := build/release/snug

help:
	@echo "make demo    build, then inspect, price, run and verify a small real model"
	@echo "make test    build and run all tests"
	@echo "make asan    all tests under AddressSanitizer and UBSan"
	@echo "make tsan    all tests under ThreadSanitizer"
	@echo "make lint    clang-tidy over the library and the command (preset tidy)"
	@echo "make format  clang-format over all C++ files"

deps:
	@scripts/install_deps.sh

build: deps
	@cmake --preset release >/dev/null
	@cmake --build --preset release

demo: build
	@scripts/demo.sh $(SNUG)

test: build
	@ctest --preset release

asan tsan: deps
	@cmake --preset $@ >/dev/null
	@cmake --build --preset $@
	@ctest --preset $@

lint:
	@cmake --preset tidy >/dev/null
	@cmake --build --preset tidy --target snug snug_cli

format:
	@git ls-files '*.h' '*.hpp' '*.c' '*.cpp' | xargs clang-format -i

clean:
	@rm -rf build
