#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The house rules that a program can check.

    tidy.py <repository root>

Prints one finding a line, `path:line: rule: what is wrong`, and exits 1 when there is any.
Standard library only. tidy_test.py plants one fault per rule and sees it caught.
"""
import os
import re
import sys
from pathlib import Path, PurePosixPath

SKIPPED_FOLDERS = {".git", ".venv", ".carry", "build", "install", "__pycache__", "node_modules"}
CPP = {".h", ".hpp", ".c", ".cpp", ".cu", ".cuh"}
CODE = CPP | {".py", ".cmake", ".sh"}  # CMakeLists.txt counts as .cmake

# Who may include whom inside src; a folder may always include itself.
WORDS = {"base"}
RULES = WORDS | {"moe"}
PLACES = RULES | {"geometry"}
PLANS = PLACES | {"plan"}
MACHINE = PLANS | {"backend"}
LAYERS = {
    "base": set(),
    "moe": WORDS,
    "geometry": RULES,
    "weights": PLACES,
    "plan": PLACES,
    "backend": PLANS,  # backend.h, the table that a machine fills in
    "backend/reference": MACHINE,
    "backend/cpu": MACHINE,
    "backend/cuda": MACHINE,
    "parallel": MACHINE | {"weights"},
    "api": MACHINE | {"weights", "parallel", "backend/reference", "backend/cpu", "backend/cuda"},
}
CLIENTS = {"cli", "examples", "python"}  # they see include/snug and nothing else
MAY_SEE_SNUG = CLIENTS | {"include", "tests", "benchmarks"}

# Third-party headers (a pattern on the path between the brackets) and the places that may have
# them.
THIRD_PARTY = [
    (r"nlohmann/", ("src/weights/", "src/plan/explain", "cli/", "tests/")),
    (r"CLI/|CLI11\.hpp|fmt/", ("cli/",)),
    (r"gtest/|gmock/|rapidcheck", ("tests/",)),
    (r"benchmark/", ("benchmarks/",)),
    (r"\w*mmintrin\.h|immintrin\.h|x86intrin\.h", ("src/backend/cpu/isa/", "cli/floors.cpp")),
    (r"omp\.h", ("src/backend/cpu/",)),
    (r"nccl\.h|mpi\.h", ("src/parallel/",)),
    (r"nanobind/", ("python/",)),
]
CUDA_HEADERS = re.compile(r"cuda|cooperative_groups|mma\.h|nvtx|cub/|thrust/|cute/|cutlass/")

STEMS = ("run", "route", "fc1", "fc2", "combine")

# Calls that the library may not make: pattern, name, exempt path prefixes.
BANNED = [
    (r"\b(?:f|v|vf)?printf\s*\(|\bf?puts\s*\(", "printing", ("src/base/macros.h",)),
    (r"\bstd::(?:cout|cerr|clog)\b", "printing", ()),
    (r"\b(?:secure_)?getenv\s*\(", "getenv", ()),
    (r"\babort\s*\(", "abort", ("src/base/macros.h",)),
    (r"\b(?:quick_|_)?exit\s*\(|\b_Exit\s*\(", "exit", ()),
    (r"\bthrow\b", "throw", ()),
    (r"(?<!operator )\bnew\b\s*(?:\(|[A-Za-z_:])", "new",
     ("src/weights/", "src/api/", "src/backend/cpu/workers.h")),
    (r"\bs?rand\s*\(", "rand", ()),
]

COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\[^\'\n]+|[^\'\\\n])\'', re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.M)
UNNUMBERED = re.compile(r"\b(TODO|FIXME)\b(?!\(#\d+\))")
MACHINE_PATH = re.compile(r"(?<![\w.)\]}-])/(?:work|root|home)/")
TEMPORARY_PATH = re.compile(r"(?<![\w.)\]}-])/tmp/")
MARKDOWN_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")


def without_comments(text):
    """The text with comments and literals blanked; every line keeps its number."""
    return COMMENT_OR_LITERAL.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


class Tidy:
    """One pass over a tree. `files` maps repository paths to their text."""

    def __init__(self, root):
        self.root = Path(root)
        self.files = {}
        self.folders = set()
        self.findings = []
        for folder, names, files in os.walk(self.root):
            names[:] = sorted(n for n in names if n not in SKIPPED_FOLDERS)
            relative = PurePosixPath(Path(folder).relative_to(self.root).as_posix())
            self.folders.add(str(relative))
            for name in sorted(files):
                self.read(str(relative / name))

    def read(self, path):
        try:
            data = (self.root / path).read_bytes()
            self.files[path] = data.decode() if b"\0" not in data else None
        except (OSError, UnicodeDecodeError):
            self.files[path] = None  # binary: it exists, and has no lines

    def find(self, path, line, rule, text):
        self.findings.append(f"{path}:{line}: {rule}: {text}")

    def texts(self, suffixes=None):
        for path, text in self.files.items():
            if text is not None and (suffixes is None or suffix_of(path) in suffixes):
                yield path, text

    def sources(self):
        return ((p, t) for p, t in self.texts(CPP) if p.startswith("src/"))

    # --- includes ---------------------------------------------------------------------------

    def check_includes(self):
        for path, text in self.texts(CPP):
            # Comments go, the quoted path stays: an include in a comment is none.
            live = re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), text,
                          flags=re.S)
            for match in INCLUDE.finditer(live):
                line = line_of(text, match.start(2))
                self.check_third_party(path, line, match.group(2))
                self.check_layer(path, line, match.group(2))

    def check_third_party(self, path, line, header):
        for pattern, places in THIRD_PARTY:
            if re.match(pattern, header) and not path.startswith(places):
                self.find(path, line, "third-party", f"<{header}> belongs in {', '.join(places)}")
        if (CUDA_HEADERS.match(header) and suffix_of(path) not in {".cu", ".cuh"}
                and src_folder(header) is None):
            self.find(path, line, "third-party", f"<{header}> belongs in .cu and .cuh files")

    def check_layer(self, path, line, header):
        top = path.split("/")[0]
        if header.startswith("snug/"):
            if top not in MAY_SEE_SNUG and not path.startswith("src/api/"):
                self.find(path, line, "include", f"{header}: only src/api implements include/snug")
            return
        target = src_folder(header) or self.escaped_folder(path, header)
        if target is None:
            return
        if top in CLIENTS | {"include"}:
            self.find(path, line, "include", f"{header}: {top} sees only include/snug")
        elif target == "backend/reference" and top != "tests" and folder_in_src(path) not in (
                target, "api"):  # api registers every backend
            self.find(path, line, "include", f"{header}: only tests and api include the reference")
        elif top == "src":
            own = folder_in_src(path)
            if target != own and target not in LAYERS.get(own, set()):
                self.find(path, line, "include", f"{header}: {own} may not include {target}")

    def escaped_folder(self, path, header):
        """The src folder that a relative include climbs into, or None."""
        target = os.path.normpath(os.path.join(os.path.dirname(path), header))
        return folder_in_src(target) if ".." in header.split("/") else None

    # --- text -------------------------------------------------------------------------------

    def check_first_line(self):
        for path, text in self.texts(CODE):
            lines = text.split("\n", 2)
            at = 1 if lines[0].startswith("#!") and len(lines) > 1 else 0
            if not re.match(r"(//|#|/\*) SPDX-License-Identifier: Apache-2\.0\b", lines[at]):
                self.find(path, at + 1, "spdx", "needs the SPDX-License-Identifier line here")

    def check_lines(self):
        for path, text in self.texts():
            quotes_rules = path.startswith("tests/tidy/")
            suffix = suffix_of(path)
            wide = CPP | {".py", ".cmake"}
            for number, line in enumerate(text.splitlines(), 1):
                if suffix in wide and len(line) > 100 and not re.search(r"https?://", line):
                    self.find(path, number, "width", f"{len(line)} columns, at most 100")
                if quotes_rules:
                    continue
                if suffix in CODE | {".md"} and UNNUMBERED.search(line):
                    self.find(path, number, "todo", "needs an issue number: TODO(#12)")
                if MACHINE_PATH.search(line):
                    self.find(path, number, "machine-path", line.strip()[:80])
                in_scripts = path.split("/")[0] in {"tests", "scripts", ".ci"}
                if TEMPORARY_PATH.search(line) and not in_scripts:
                    self.find(path, number, "machine-path", line.strip()[:80])

    def check_calls(self):
        for path, text in self.sources():
            live = without_comments(text)
            for pattern, name, exempt in BANNED:
                if path.startswith(exempt):  # never true of an empty tuple
                    continue
                for match in re.finditer(pattern, live):
                    line = line_of(live, match.start())
                    what = text.splitlines()[line - 1].strip()[:80]
                    self.find(path, line, "call", f"{name} in the library: {what}")

    # --- structure --------------------------------------------------------------------------

    def check_twins(self):
        stems = {}
        for path, text in self.sources():
            if suffix_of(path) in {".h", ".cpp"}:
                exempt = re.search(r"^// tidy: no twin, \S", text, re.M) is not None
                stem = path.rsplit(".", 1)[0]
                stems[stem] = stems.get(stem, False) or exempt
        for stem, exempt in sorted(stems.items()):
            twin = "tests/" + stem[len("src/"):] + "_test"
            if not exempt and f"{twin}.cpp" not in self.files and f"{twin}.cu" not in self.files:
                self.find(stem, 1, "twin", f"needs {twin}.cpp or `// tidy: no twin, <reason>`")

    def check_stems(self):
        for machine in ("reference", "cpu", "cuda"):
            folder = f"src/backend/{machine}"
            if folder not in self.folders:
                continue
            inside = [p for p in self.files if p.startswith(folder + "/")]
            have = {PurePosixPath(p).name.split(".")[0] for p in inside
                    if PurePosixPath(p).parent == PurePosixPath(folder)}
            planned = machine == "cuda" and not any(p.endswith(".cu") for p in inside)
            for stem in ("kernels",) if planned else STEMS:
                if stem not in have:
                    self.find(folder, 1, "stem", f"a backend has the stem {stem}")

    def check_links(self):
        for path, text in self.texts({".md"}):
            live = re.sub(r"^```.*?^```|`[^`\n]*`", lambda m: re.sub(r"[^\n]", " ", m.group()),
                          text, flags=re.S | re.M)
            for match in MARKDOWN_LINK.finditer(live):
                target = match.group(1).split("#")[0]
                if not target or re.match(r"[a-z][a-z0-9+.-]*:", target):
                    continue
                if not self.exists(os.path.normpath(os.path.join(os.path.dirname(path), target))):
                    self.find(path, line_of(text, match.start()), "link", f"no {target}")

    def exists(self, path):
        return path in self.files or path.rstrip("/") in self.folders

    def check_tour(self):
        tour = "docs/tour.md"
        text = self.files.get(tour)
        if text is None:
            self.find(tour, 1, "tour", "missing")
            return
        for folder in sorted(f[len("src/"):] for f in self.folders if f.startswith("src/")):
            if not re.search(rf"(?<![\w/]){re.escape(folder)}\b", text.replace("src/", "")):
                self.find(tour, 1, "tour", f"does not name src/{folder}")
        for match in re.finditer(r"`([\w.<>-]+(?:/[\w.<>-]*)+)`", text):
            if not self.tour_target_exists(match.group(1)):
                self.find(tour, line_of(text, match.start()), "tour", f"no {match.group(1)}")

    def tour_target_exists(self, name):
        """A file, folder or stem, from the root or from src; <m> stands for every machine."""
        machines = [m for m in ("reference", "cpu") if f"src/backend/{m}" in self.folders]
        for one in [name.replace("<m>", m) for m in machines] if "<m>" in name else [name]:
            places = (one.rstrip("/"), "src/" + one.rstrip("/"))
            stems = tuple(p + "." for p in places)
            if not any(map(self.exists, places)) and not any(
                    f.startswith(stems) for f in self.files):
                return False
        return True

    def run(self):
        self.check_includes()
        self.check_first_line()
        self.check_lines()
        self.check_calls()
        self.check_twins()
        self.check_stems()
        self.check_links()
        self.check_tour()
        return sorted(set(self.findings))


def suffix_of(path):
    name = PurePosixPath(path)
    return ".cmake" if name.name == "CMakeLists.txt" else name.suffix


def src_folder(header):
    """The layer that an include path names, as LAYERS spells it, or None for other headers."""
    parts = header.split("/")
    if len(parts) < 2 or parts[0] not in LAYERS:
        return None
    nested = "/".join(parts[:2])
    return nested if nested in LAYERS else parts[0]


def folder_in_src(path):
    return src_folder(path[len("src/"):]) if path.startswith("src/") else None


def main(arguments):
    if len(arguments) != 2 or not Path(arguments[1]).is_dir():
        print("usage: tidy.py <repository root>", file=sys.stderr)
        return 2
    findings = Tidy(arguments[1]).run()
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
