#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must not compile does not: each snippet fails with its marked line and compiles without it,
so that a failure has the reason we mean."""
import argparse
import subprocess
import sys

SNIPPETS = {
    "a Plan cannot be copied": """
#include <snug/snug.hpp>
void f(const snug::Plan& a) {
  BAD(snug::Plan b = a;)
  (void)a;
}
""",
    "an Error cannot be dropped": """
#include <snug/snug.hpp>
void f(snug::Weights& w, const snug_expert_source& s) {
  BAD(w.put(0, s);)
  (void)w.put(0, s);
}
""",
    "a Status cannot be dropped": """
#include "moe/shape.h"
void f(const snug::MoeShape& s) {
  BAD(snug::check_shape(s);)
  (void)snug::check_shape(s);
}
""",
    "padded rows are not rows": """
#include "geometry/packed_weights.h"
int64_t f(snug::Rows rows);
int64_t g(const snug::MatrixLayout& m) {
  BAD(f(m.padded_rows);)
  return f(m.rows);
}
""",
}


def compiles(args, source: str, bad: bool) -> bool:
    define = "-DBAD(...)=__VA_ARGS__" if bad else "-DBAD(...)="
    command = [args.compiler, "-std=c++20", "-fsyntax-only", "-Werror=unused-result",
               f"-I{args.source}/include", f"-I{args.source}/src", define, "-x", "c++", "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--source", required=True)
    args = parser.parse_args()
    failures = []
    for name, source in SNIPPETS.items():
        if not compiles(args, source, bad=False):
            failures.append(f"{name}: does not compile even without the marked line")
        if compiles(args, source, bad=True):
            failures.append(f"{name}: compiles")
    print("\n".join(failures) or f"{len(SNIPPETS)} misuses are refused by the compiler")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
