# SPDX-License-Identifier: Apache-2.0
"""No instruction beyond the baseline outside the path that asked for it: a header's function that a
path's translation unit compiled for AVX-512, and that the linker kept for everybody, would end a
program on an older machine."""

import re
import subprocess
import sys

# Registers or prefixes that only these namespaces may touch.
OWNERS = {
    "tmm": r"snug::cpu::amx::",
    "zmm": r"snug::cpu::(amx|bf16dot|vnni|avx512)::",
    "ymm": r"snug::cpu::(amx|bf16dot|vnni|avx512|avx2)::",
}


def functions(library):
    """(name, its disassembly) of every function."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-C", library],
                          capture_output=True, text=True, check=True).stdout
    for block in text.split("\n\n"):
        head = re.match(r"\s*[0-9a-f]+ <(.*)>:\n", block)
        if head:
            yield head.group(1), block


def main(library):
    seen = dict.fromkeys(OWNERS, 0)
    leaks = []
    for name, code in functions(library):
        for register, owner in OWNERS.items():
            if f"%{register}" not in code:
                continue
            seen[register] += 1
            if not re.search(owner, name):
                leaks.append(f"%{register} in {name}")
    if leaks:
        sys.exit("instructions leaked:\n  " + "\n  ".join(leaks))
    missing = [r for r, count in seen.items() if count == 0]
    if missing:
        sys.exit(f"no function uses {missing}: the test looks at the wrong thing")
    print(", ".join(f"{count} functions use {r}" for r, count in seen.items()))


if __name__ == "__main__":
    main(sys.argv[1])
