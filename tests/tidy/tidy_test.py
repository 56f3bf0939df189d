#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one fault per rule of tidy.py in a small clean tree and sees each caught, alone."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import tidy  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
HASH = "# SPDX-License-Identifier: Apache-2.0\n"
FOLDERS = ("api", "backend", "backend/cpu", "backend/cpu/isa", "backend/cuda", "backend/reference",
           "base", "geometry", "moe", "parallel", "plan", "weights")


def clean_tree():
    """Path -> text of a tree without findings."""
    tree = {
        "include/snug/snug.h": SPDX + "#include <stdint.h>\n",
        "include/snug/snug.hpp": SPDX + '#include "snug/snug.h"\n',
        "src/base/status.h": SPDX,
        "src/base/macros.h": SPDX + ('inline void f() { std::fprintf(stderr, "x"); '
                                      'std::abort(); }\n'),
        "src/moe/format.h": SPDX + '#include "base/status.h"\n',
        "src/geometry/tile.h": SPDX + '#include "moe/format.h"\n',
        "src/weights/load.cpp": SPDX + '#include <nlohmann/json.hpp>\n#include "geometry/tile.h"\n',
        "src/plan/plan.h": SPDX + '#include "geometry/tile.h"\n',
        "src/plan/explain.cpp": SPDX + "#include <nlohmann/json.hpp>\n",
        "src/backend/backend.h": SPDX + "// tidy: no twin, a table\n" + '#include "plan/plan.h"\n',
        "src/backend/cuda/kernels.h": SPDX + '#include "backend/backend.h"\n',
        "src/backend/cpu/isa/avx2.h": SPDX + "#include <immintrin.h>\n",
        "src/backend/cpu/threads.cpp": SPDX + "#include <omp.h>\n",
        "src/parallel/combine.h": SPDX + '#include "backend/backend.h"\n',
        "src/api/api.cpp": SPDX + '#include "snug/snug.h"\n#include "backend/cpu/run.h"\n',
        "cli/main.cpp": SPDX + "#include <CLI/CLI.hpp>\n#include <fmt/core.h>\n#include "
                               "<snug/snug.hpp>\n",
        "examples/layer.c": SPDX + '#include "snug/snug.h"\n',
        "benchmarks/fc1_bench.cpp": SPDX + '#include <benchmark/benchmark.h>\n'
                                           '#include "backend/cpu/run.h"\n',
        "CMakeLists.txt": HASH + "project(snug)\n",
        "scripts/check.sh": "#!/bin/sh\n" + HASH + "mkdir -p /tmp/check\n",
        "tools.py": "#!/usr/bin/env python3\n" + HASH,
        "docs/formats.md": "# Formats\n[tour](tour.md#path), [site](https://example.org/x)\n",
        "docs/tour.md": "# Tour\n" + "".join(f"`src/{f}`\n" for f in FOLDERS)
                        + "`plan/plan`, `backend/<m>/fc1`, `docs/formats.md`, `moe/format`\n",
    }
    for machine in ("reference", "cpu"):
        for stem in tidy.STEMS:
            tree[f"src/backend/{machine}/{stem}.h"] = SPDX
    for path in [p for p in tree if p.startswith("src/")]:
        stem = path[len("src/"):].rsplit(".", 1)[0]
        if stem != "backend/backend":
            tree[f"tests/{stem}_test.cpp"] = SPDX + "#include <gtest/gtest.h>\n"
    return tree


def findings_of(tree):
    with tempfile.TemporaryDirectory() as root:
        for path, text in tree.items():
            target = Path(root) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return tidy.Tidy(root).run()


class TidyTest(unittest.TestCase):
    maxDiff = None

    def test_clean_tree_has_no_findings(self):
        self.assertEqual(findings_of(clean_tree()), [])

    def expect(self, rule, path, added="", text=None, line=None, remove=False):
        """Exactly one finding after `added` is appended to (or `text` put at, or `remove`) path."""
        tree = clean_tree()
        if remove:
            del tree[path]
        else:
            tree[path] = text if text is not None else tree.get(path, SPDX) + added
        findings = findings_of(tree)
        self.assertEqual(len(findings), 1, findings)
        where, number, found = findings[0].split(":")[:3]
        self.assertEqual(found.strip(), rule, findings)
        if line is not None:
            self.assertEqual(int(number), line, findings)
        return where

    def expect_include(self, path, header):
        with self.subTest(path=path, header=header):
            tree = clean_tree()
            tree[path] = tree.get(path, SPDX) + f'#include "{header}"\n'
            rules = {f.split(":")[2].strip() for f in findings_of(tree)}
            self.assertEqual(rules, {"include"})

    def test_include_direction(self):
        for path, header in (
                ("src/base/status.h", "moe/format.h"),
                ("src/moe/format.h", "geometry/tile.h"),
                ("src/geometry/tile.h", "plan/plan.h"),
                ("src/weights/load.cpp", "plan/plan.h"),
                ("src/plan/plan.h", "weights/load.h"),
                ("src/plan/explain.cpp", "backend/backend.h"),
                ("src/backend/backend.h", "backend/cpu/run.h"),
                ("src/backend/cpu/run.h", "weights/load.h"),
                ("src/backend/cpu/run.h", "backend/cuda/kernels.h"),
                ("src/backend/cuda/kernels.h", "backend/cpu/run.h"),
                ("src/backend/cpu/run.h", "backend/reference/run.h"),
                ("src/backend/reference/run.h", "parallel/combine.h"),
                ("src/parallel/combine.h", "backend/cpu/run.h"),
                ("src/parallel/combine.h", "api/api.h"),
                ("src/plan/plan.h", "snug/snug.h"),
                ("src/plan/plan.h", "../weights/load.h"),
                ("include/snug/snug.h", "base/status.h"),
                ("cli/main.cpp", "plan/plan.h"),
                ("cli/main.cpp", "../src/plan/plan.h"),
                ("examples/layer.c", "base/status.h"),
                ("benchmarks/fc1_bench.cpp", "backend/reference/run.h")):
            self.expect_include(path, header)

    def test_commented_include_is_none(self):
        tree = clean_tree()
        tree["src/base/status.h"] += '// #include "moe/format.h"\n'
        tree["src/base/status.h"] += '/* x\n#include "plan/plan.h"\n*/\n'
        self.assertEqual(findings_of(tree), [])

    def test_third_party_headers(self):
        for path, header in (
                ("src/plan/plan.h", "nlohmann/json.hpp"), ("src/api/api.cpp", "fmt/core.h"),
                ("src/api/api.cpp", "CLI/CLI.hpp"), ("src/base/status.h", "gtest/gtest.h"),
                ("benchmarks/fc1_bench.cpp", "rapidcheck.h"),
                ("tests/moe/format_test.cpp", "benchmark/benchmark.h"),
                ("src/backend/cpu/run.h", "immintrin.h"), ("src/backend/cpu/run.h", "xmmintrin.h"),
                ("src/backend/cuda/kernels.h", "cuda_runtime.h"),
                ("src/backend/cuda/kernels.h", "mma.h"), ("src/plan/plan.h", "omp.h"),
                ("src/api/api.cpp", "nccl.h")):
            with self.subTest(path=path, header=header):
                self.expect("third-party", path, f"#include <{header}>\n")

    def test_cuda_header_in_cu_is_fine(self):
        tree = clean_tree()
        tree["tests/backend/cuda/probe.cu"] = SPDX + "#include <cuda_runtime.h>\n"
        self.assertEqual(findings_of(tree), [])

    def test_spdx(self):
        for path in ("src/base/status.h", "CMakeLists.txt", "scripts/check.sh", "tools.py",
                     "examples/layer.c", "cmake/x.cmake", "tests/backend/cuda/k.cuh"):
            with self.subTest(path=path):
                self.expect("spdx", path, text="\n", line=1)
        self.expect("spdx", "tools.py", text="#!/usr/bin/env python3\nimport os\n" + HASH, line=2)

    def test_todo(self):
        self.expect("todo", "src/base/status.h", "\n// TODO: later\n", line=3)
        self.expect("todo", "tools.py", "# FIXME(someone) later\n")
        tree = clean_tree()
        tree["src/base/status.h"] += "// TODO(#12): later\n"
        self.assertEqual(findings_of(tree), [])

    def test_banned_calls(self):
        for call in ('printf("x");', 'std::fprintf(stderr, "x");', 'puts("x");', "std::cout << 1;",
                     'getenv("X");', "std::abort();", "std::exit(1);", "throw 1;", "new int(3);",
                     "new (place) Thing;", "rand();", "srand(1);"):
            with self.subTest(call=call):
                self.expect("call", "src/plan/explain.cpp", f"\nvoid f() {{ {call} }}\n", line=4)

    def test_calls_that_are_not(self):
        tree = clean_tree()
        tree["src/plan/explain.cpp"] += (
            '// throw, new int\n/* abort() */ const char* s = "getenv(x) \\" exit(1)";\n'
            'void f() { std::snprintf(a, 1, "x"); operand(1); renew x; const char c = \'"\'; }\n')
        tree["src/weights/load.cpp"] += "auto* p = new int;\n"
        tree["cli/main.cpp"] += 'int main() { std::printf("x"); std::exit(1); }\n'
        self.assertEqual(findings_of(tree), [])

    def test_width(self):
        for path in ("src/base/status.h", "tools.py", "CMakeLists.txt"):
            mark = "//" if path.endswith(".h") else "#"
            with self.subTest(path=path):
                self.expect("width", path, f"{mark} {'x' * (101 - len(mark) - 1)}\n")
        tree = clean_tree()
        tree["src/base/status.h"] += f"// {'x' * 97}\n// https://example.org/{'y' * 100}\n"
        self.assertEqual(findings_of(tree), [])

    def test_twin(self):
        self.assertEqual(self.expect("twin", "tests/moe/format_test.cpp", remove=True),
                         "src/moe/format")
        tree = clean_tree()
        del tree["tests/moe/format_test.cpp"]
        tree["src/moe/format.cpp"] = SPDX  # a pair counts once
        self.assertEqual(len(findings_of(tree)), 1)
        tree["src/moe/format.h"] += "// tidy: no twin,\n"  # no reason given
        self.assertEqual(len(findings_of(tree)), 1)
        tree["src/moe/format.h"] += "// tidy: no twin, declarations only\n"
        self.assertEqual(findings_of(tree), [])

    def test_stems(self):
        for machine in ("reference", "cpu"):
            for stem in tidy.STEMS:
                tree = clean_tree()
                del tree[f"src/backend/{machine}/{stem}.h"]
                found = [f for f in findings_of(tree) if ": stem:" in f]
                self.assertEqual(len(found), 1, (machine, stem))
        tree = clean_tree()
        tree["src/backend/cuda/run.cu"] = SPDX
        self.assertEqual(len([f for f in findings_of(tree) if ": stem:" in f]), 4)

    def test_links(self):
        self.expect("link", "docs/formats.md", "see [that](missing.md)\n", line=3)
        self.expect("link", "docs/formats.md", "![](../img/no.png)\n")
        tree = clean_tree()
        tree["docs/formats.md"] += "`[a](b)`\n```\n[a](b.md)\n```\n[s](../src/moe) [x](#here)\n"
        self.assertEqual(findings_of(tree), [])

    def test_tour(self):
        self.expect("tour", "docs/tour.md", "`plan/nothing`\n")
        self.expect("tour", "docs/tour.md", "`backend/<m>/threads`\n")  # the reference has none
        text = clean_tree()["docs/tour.md"].replace("`src/geometry`\n", "")
        self.expect("tour", "docs/tour.md", text=text)
        tree = clean_tree()
        tree["docs/formats.md"] = "# Formats\n"  # its link to the tour goes too
        del tree["docs/tour.md"]
        self.assertEqual([f.split(": ", 1)[1] for f in findings_of(tree)], ["tour: missing"])

    def test_machine_paths(self):
        for path, text in (("docs/formats.md", "see /work/x\n"), ("tools.py", 'p = "/root/a"\n'),
                           ("scripts/check.sh", "ls /home/me\n"),
                           ("docs/formats.md", "log in /tmp/x\n"),
                           ("src/base/status.h", '// "/tmp/x"\n')):
            with self.subTest(path=path, text=text):
                self.expect("machine-path", path, text)
        tree = clean_tree()
        tree["docs/formats.md"] += "https://example.org/home/x and src/work/y\n"
        tree["tests/moe/format_test.cpp"] += '// "/tmp/x" is fine in a test\n'
        self.assertEqual(findings_of(tree), [])

    def test_command_line(self):
        script = Path(tidy.__file__)
        with tempfile.TemporaryDirectory() as root:
            (Path(root) / "a.h").write_text("\n")
            done = subprocess.run([sys.executable, script, root], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("a.h:1: spdx:", done.stdout)
        usage = subprocess.run([sys.executable, script], capture_output=True, text=True)
        self.assertEqual(usage.returncode, 2)


if __name__ == "__main__":
    unittest.main()
