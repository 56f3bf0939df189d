#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what the build and the tests need from Debian's own packages; does nothing when all are
# there. Needs root or sudo only when something is missing.
set -eu

packages="build-essential cmake ninja-build python3 libgtest-dev libgmock-dev librapidcheck-dev
libbenchmark-dev libcli11-dev nlohmann-json3-dev libfmt-dev valgrind"

missing=""
for package in $packages; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing="$missing $package"
done
if [ -n "$missing" ]; then
  echo "installing:$missing"
  if [ "$(id -u)" = 0 ]; then
    as_root=""
  elif command -v sudo >/dev/null; then
    as_root="sudo"
  else
    echo "install_deps: needs root or sudo to install:$missing" >&2
    exit 1
  fi
  $as_root apt-get update -qq
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing
fi
if command -v nvcc >/dev/null; then
  echo "CUDA: plans for GPUs are priced; this version has no CUDA kernels, the CPU runs everything"
else
  echo "CUDA: no nvcc here; plans for GPUs are priced, the CPU runs everything"
fi
