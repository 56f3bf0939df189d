#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shared library exports exactly the functions that snug.h declares, and nothing else."""
import argparse
import re
import subprocess
import sys


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nm", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--header", required=True)
    args = parser.parse_args()
    if args.library.endswith(".a"):
        print("a static library exports everything; only the shared one is checked")
        return 0
    listing = subprocess.run([args.nm, "-D", "--defined-only", args.library], check=True,
                             capture_output=True, text=True).stdout
    # Weak template instances of the standard library are the linker's to merge, not ours to hide.
    exported = {line.split()[-1] for line in listing.splitlines()
                if line.split()[-2] in "TBDR"}
    with open(args.header, encoding="utf-8") as header:
        text = re.sub(r"/\*.*?\*/", "", header.read(), flags=re.S)
    declared = set(re.findall(r"SNUG_API[^;]*?\b(snug_\w+)\s*\(", text))
    problems = [f"exported, not declared: {s}" for s in sorted(exported - declared)]
    problems += [f"declared, not exported: {s}" for s in sorted(declared - exported)]
    if len(declared) < 30:
        problems.append(f"only {len(declared)} declarations found: the header was not understood")
    print("\n".join(problems) or f"{len(declared)} functions, all exported, nothing else")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
