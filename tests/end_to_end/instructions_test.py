# SPDX-License-Identifier: Apache-2.0
"""Instructions of the hot steps, counted by callgrind, within 5% of tests/data/instructions.txt.
Counts are repeatable on a busy machine where times are not; they belong to one compiler and build.
callgrind runs AVX2 and below: the 512-bit paths and AMX are not counted.

    --update  writes the table anew; say in the commit why it moved
"""

import argparse
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile

SKIPPED = 77
TOLERANCE = 0.05
CASES = list(itertools.product(("fc1", "fc2"), ("portable", "avx2"), ("nvfp4", "mxfp4"), (1, 16)))
HEADER = """# Instructions of a step on layer 0 of examples/kjv-moe, by callgrind.
# step path format tokens instructions; g++ 12 Release; instructions_test.py --update writes it
"""


def count(snug, model, step, path, fmt, tokens):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}",
             f"--toggle-collect=*snug::cpu::{path}::*{step}*", snug, "run", "--model", model,
             "--layer", "0", "--format", fmt, "--tokens", str(tokens), "--cpu-path", path,
             "--threads", "1", "--repeats", "1", "--no-check"],
            check=True, capture_output=True, text=True)
        return int(re.search(r"^totals: (\d+)$", out.read_text(), re.M).group(1))


def main():
    parser = argparse.ArgumentParser()
    for name in ("snug", "model", "table", "build"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if args.build != "GNU 12 Release":
        print(f"SKIPPED: the table is for GNU 12 Release, this is {args.build}")
        return SKIPPED
    have = {}
    for case in CASES:
        have[case] = count(args.snug, args.model, *case)
        if have[case] < 10000:
            sys.exit(f"{case}: {have[case]} instructions; the step was not found")
    if args.update:
        rows = [" ".join(map(str, (*case, n))) for case, n in have.items()]
        pathlib.Path(args.table).write_text(HEADER + "\n".join(rows) + "\n")
        return 0
    want = {}
    for line in pathlib.Path(args.table).read_text().splitlines():
        if not line.startswith("#"):
            step, path, fmt, tokens, number = line.split()
            want[step, path, fmt, int(tokens)] = int(number)
    moved = [f"{case}: {have[case]}, the table has {want.get(case)}" for case in CASES
             if abs(have[case] - want.get(case, 0)) > TOLERANCE * want.get(case, 0)]
    print(f"{len(CASES)} counts, {len(moved)} moved by more than {TOLERANCE:.0%}")
    if moved:
        sys.exit("\n".join(moved))
    return 0


if __name__ == "__main__":
    sys.exit(main())
