#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The snug command as a script sees it: fixed spellings, JSON fields, exit codes, and checks that
fail when they should."""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

SNUG = sys.argv.pop(1)
MODEL = sys.argv.pop(1)

LAYER = ["--experts", "160", "--top-k", "8", "--hidden", "6144", "--intermediate", "512",
         "--format", "nvfp4", "--activation", "silu"]


def snug(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run([SNUG, *args], capture_output=True, text=True, check=False)


def read_safetensors(path: pathlib.Path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + size]), bytearray(data[8 + size:])


def write_safetensors(path: pathlib.Path, tensors: dict) -> None:
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text +
                     b"".join(bytes(t[2]) for t in tensors.values()))


def tensors_of(path: pathlib.Path) -> dict:
    header, data = read_safetensors(path)
    return {name: (t["dtype"], t["shape"], data[t["data_offsets"][0]:t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}


class Plan(unittest.TestCase):
    def test_fixed_spelling(self):
        want = {"rtx-pro-6000": (31491908, 99554116), "h200": (24151876, None),
                "cpu": (6981444, None)}
        for device, (bounded, unbounded) in want.items():
            result = snug("plan", *LAYER, "--max-tokens", "64", "--device", device, "--compare",
                          "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            plan = json.loads(result.stdout)
            self.assertEqual(plan["reference_nbytes"], bounded)
            if unbounded is not None:
                self.assertEqual(plan["reference_unbounded_nbytes"], unbounded)
            self.assertLessEqual(plan["required_nbytes"], 8 << 20)
            self.assertTrue(plan["regimes"])
            ends = [s["offset"] + s["nbytes"] for s in plan["slices"]]
            self.assertEqual(max(ends), plan["required_nbytes"])

    def test_at_most_a_quarter_of_the_reference(self):
        for device in ("rtx-pro-6000", "h200"):
            for tokens in (8, 64, 512, 4096):
                result = snug("plan", *LAYER, "--max-tokens", str(tokens), "--device", device,
                              "--compare", "--json")
                plan = json.loads(result.stdout)
                self.assertLessEqual(4 * plan["required_nbytes"], plan["reference_nbytes"])

    def test_a_model_on_an_absent_device(self):
        result = snug("plan", "--model", MODEL, "--device", "h200", "--tp", "2", "--max-tokens",
                      "4096", "--explain")
        self.assertEqual(result.returncode, 0, result.stderr)
        for text in ("nvfp4", "arena", "activated", "fc2_rows", "cuda.sm80.fc1.w4a16.nvfp4",
                     "priced only", "mxfp4 needs a multiple of 32", "chunks of"):
            self.assertIn(text, result.stdout)
        pinned = snug("plan", "--model", MODEL, "--device", "rtx-pro-6000", "--max-tokens", "4096",
                      "--route-tile", "48", "--explain", "--format", "nvfp4")
        self.assertIn("needs sm_90", pinned.stdout)
        self.assertIn("route_tile_pin 48 is not a tile of this family", pinned.stdout)

    def test_a_model_as_json(self):
        result = snug("plan", "--model", MODEL, "--device", "a100", "--ep", "5", "--max-tokens",
                      "64", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        plans = json.loads(result.stdout)["plans"]
        self.assertEqual([p["format"] for p in plans], ["nvfp4", "mxfp4"])
        for plan in plans:
            self.assertEqual(plan["layers"], [0, 1, 2, 3])
            self.assertEqual(plan["caps"]["num_local_experts"], 7)
            self.assertEqual(plan["rank_weights_nbytes"], 4 * plan["weights_nbytes"])

    def test_refusals(self):
        for args, text in (
                (["--device", "h300"], "rtx-pro-6000"),
                (["--device", "h200", "--route-tile", "7"], "sm80.decode"),
                (["--device", "h200", "--tp", "3"], "intermediate"),
                (["--device", "h200", "--arena-limit", "1000"], "arena_limit"),
                (["--device", "h200", "--format", "int3"], "--format")):
            result = snug("plan", *LAYER, "--max-tokens", "64", *args)
            self.assertEqual(result.returncode, 2, args)
            self.assertIn(text, result.stderr)
            self.assertEqual(result.stdout, "")
        self.assertEqual(snug("plan", "--model", MODEL, "--format", "mxfp4", "--tp", "2",
                              "--max-tokens", "1").returncode, 2)

    def test_the_table_of_memory_md(self):
        text = (pathlib.Path(__file__).parents[2] / "docs" / "memory.md").read_text()
        rows = re.findall(r"^\| ([\d,]+) \|(.*)\|$", text, re.M)
        self.assertEqual(len(rows), 12)
        last = None
        for tokens, rest in rows:
            cells = [c.strip().replace(",", "") for c in rest.split("|")]
            for device, ours, reference in (("h200", 0, 1), ("rtx-pro-6000", 3, 4),
                                            ("cpu-amx", 6, None)):
                plan = json.loads(snug("plan", *LAYER, "--threads", "2", "--max-tokens",
                                       tokens.replace(",", ""), "--device", device, "--compare",
                                       "--json").stdout)
                self.assertEqual(plan["required_nbytes"], int(cells[ours]))
                if reference is not None:
                    self.assertEqual(plan["reference_nbytes"], int(cells[reference]))
                    ratio = plan["reference_nbytes"] / plan["required_nbytes"]
                    self.assertEqual(f"{ratio:.1f}", cells[reference + 1])
            if tokens in ("65,536", "131,072"):
                self.assertTrue(last is None or last == [cells[0], cells[3], cells[6]], "not flat")
                last = [cells[0], cells[3], cells[6]]

    def test_arena_limit(self):
        base = ["plan", *LAYER, "--max-tokens", "8192", "--device", "h200", "--json"]
        free = json.loads(snug(*base).stdout)
        limit = free["required_nbytes"] // 2
        limited = json.loads(snug(*base, "--arena-limit", str(limit)).stdout)
        self.assertLessEqual(limited["required_nbytes"], limit)
        self.assertGreater(limited["slowdown"], 1.0)
        self.assertEqual(free["slowdown"], 1.0)


class Verify(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def verify(self, *args: str):
        return snug("verify", "--model", MODEL, *args)

    def test_every_backend_and_format(self):
        for form in ("nvfp4", "mxfp4"):
            for backend in ("reference", "cpu"):
                result = self.verify("--format", form, "--backend", backend, "--json")
                self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
                report = json.loads(result.stdout)
                self.assertEqual([r["layer"] for r in report["layers"]], [0, 1])
                for row in report["layers"]:
                    self.assertLessEqual(row["relative_l2_max_row"], 1e-3)
                    self.assertLessEqual(row["relative_l2_max_row_bf16"], 4e-3)
                    self.assertGreater(row["relative_l2_max_row_bf16"], 1e-4)

    def test_a_wrong_value_is_found(self):
        tensors = tensors_of(pathlib.Path(MODEL) / "golden-4bit.safetensors")
        for row in (0, 255):
            dtype, shape, data = tensors["layers.1.y_nvfp4"]
            wrong = bytearray(data)
            at = (row * shape[1] + 17) * 4
            value = struct.unpack_from("<f", wrong, at)[0]
            struct.pack_into("<f", wrong, at, value * 1.5 + 0.01)
            golden = self.path / "golden.safetensors"
            write_safetensors(golden, {"layers.1.y_nvfp4": (dtype, shape, wrong)})
            result = self.verify("--format", "nvfp4", "--golden", str(golden), "--json")
            self.assertEqual(result.returncode, 1)
            report = json.loads(result.stdout)
            self.assertEqual([r["layer"] for r in report["layers"]], [1])
            self.assertGreater(report["layers"][0]["relative_l2_max_row"], 1e-3)
            self.assertFalse(report["ok"])

    def test_nothing_checked_is_an_error(self):
        golden = self.path / "golden.safetensors"
        write_safetensors(golden, {"layers.0.other": ("F32", [1], b"\0\0\0\0")})
        result = self.verify("--format", "nvfp4", "--golden", str(golden))
        self.assertEqual(result.returncode, 2)
        self.assertIn("y_nvfp4", result.stderr)
        self.assertEqual(self.verify("--format", "nvfp4", "--golden", "/nowhere").returncode, 2)
        self.assertEqual(self.verify("--format", "nvfp4", "--backend", "cuda").returncode, 2)

    def copy_model(self) -> pathlib.Path:
        model = self.path / "model"
        shutil.copytree(MODEL, model)
        return model

    def test_misread_weights_are_found(self):
        # Gate and up swapped in one expert, as a checkpoint with the other convention would be.
        model = self.copy_model()
        shard = model / "experts-nvfp4.safetensors"
        tensors = tensors_of(shard)
        names = ["model.layers.0.mlp.experts.3.%s_proj." % p for p in ("gate", "up")]
        for part in ("weight", "weight_scale", "weight_scale_2"):
            gate, up = tensors[names[0] + part], tensors[names[1] + part]
            tensors[names[0] + part], tensors[names[1] + part] = up, gate
        write_safetensors(shard, tensors)
        result = snug("verify", "--model", str(model), "--format", "nvfp4", "--json")
        self.assertEqual(result.returncode, 1, result.stderr)

    def test_damaged_checkpoints_are_refused_by_name(self):
        model = self.copy_model()
        shard = model / "experts-nvfp4.safetensors"
        whole = shard.read_bytes()
        shard.write_bytes(whole[:-1])
        result = snug("inspect", "--model", str(model))
        self.assertEqual(result.returncode, 2)
        self.assertIn("experts-nvfp4.safetensors", result.stderr)
        tensors = tensors_of(pathlib.Path(MODEL) / "experts-nvfp4.safetensors")
        name = "model.layers.2.mlp.experts.7.up_proj.weight_scale"
        del tensors[name]
        write_safetensors(shard, tensors)
        self.assertIn(name, snug("inspect", "--model", str(model)).stderr)
        (model / "model.safetensors.index.json").unlink()
        result = snug("inspect", "--model", str(model))
        self.assertEqual(result.returncode, 2)
        self.assertIn("expert 7", result.stderr)
        # A scale that is NaN is found when the expert is prepared.
        dtype, shape, data = tensors_of(pathlib.Path(MODEL) / shard.name)[name]
        wrong = bytearray(data)
        wrong[5] = 0x7F
        tensors[name] = (dtype, shape, wrong)
        write_safetensors(shard, tensors)
        result = snug("run", "--model", str(model), "--layer", "2", "--format", "nvfp4")
        self.assertEqual(result.returncode, 2)
        self.assertIn("expert 7 up row 0", result.stderr)


class Others(unittest.TestCase):
    def test_inspect(self):
        result = snug("inspect", MODEL, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        model = json.loads(result.stdout)
        self.assertEqual((model["num_experts"], model["top_k"], model["hidden"]), (32, 4, 256))
        self.assertEqual({layer["scheme"] for layer in model["layers"]},
                         {"modelopt_nvfp4", "gpt_oss_mxfp4"})
        self.assertIn("modelopt_nvfp4", snug("inspect", MODEL).stdout)

    def test_run(self):
        result = snug("run", "--model", MODEL, "--json", "--repeats", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        layers = json.loads(result.stdout)["layers"]
        self.assertEqual(len(layers), 8)
        for layer in layers:
            self.assertLessEqual(layer["relative_l2_max_row_reference"], 4e-3)
            self.assertEqual(layer["relative_l2_max_row_golden"] is not None, layer["layer"] < 2)
        result = snug("run", "--model", MODEL, "--layer", "3", "--format", "mxfp4", "--tokens",
                      "17", "--output-dtype", "f32", "--json", "--repeats", "1", "--arena-limit",
                      "60000", "--threads", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        (layer,) = json.loads(result.stdout)["layers"]
        self.assertLessEqual(layer["relative_l2_max_row_reference"], 1e-3)
        self.assertLessEqual(layer["arena_nbytes"], 60000)

    def test_bench(self):
        with tempfile.TemporaryDirectory() as folder:
            files = [str(pathlib.Path(folder) / name) for name in ("a.json", "b.json")]
            for file in files:
                result = snug("bench", "--shapes", "kjv", "--formats", "mxfp4,nvfp4", "--tokens",
                              "1,20", "--threads", "1", "--samples", "1", "--copies", "1",
                              "--json", file)
                self.assertEqual(result.returncode, 0, result.stderr)
            rows = json.loads(pathlib.Path(files[0]).read_text())["rows"]
            self.assertEqual([(r["format"], r["num_tokens"]) for r in rows],
                             [("mxfp4", 1), ("mxfp4", 20), ("nvfp4", 1), ("nvfp4", 20)])
            for row in rows:
                self.assertEqual(row["shape"], "kjv")
                self.assertEqual(row["threads"], 1)
                self.assertGreater(row["us"], 0)
                self.assertAlmostEqual(row["fraction"], row["floor_us"] / row["us"], places=9)
            result = snug("bench", "--compare", *files)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(len(re.findall("^kjv .* M=", result.stdout, re.M)), 4)
            self.assertEqual(snug("bench", "--compare", files[0], "/none").returncode, 2)
        self.assertEqual(snug("bench", "--shapes", "nobody").returncode, 2)

    def test_a_path_is_forced_or_refused(self):
        plan = ["plan", *LAYER, "--max-tokens", "64", "--device", "cpu-vnni", "--cpu-path"]
        self.assertIn("tokens: avx2.panel", snug(*plan, "avx2", "--explain").stdout)
        refused = snug(*plan, "amx")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("amx.panel needs amx, the device has vnni", refused.stderr)
        portable = snug("verify", "--model", MODEL, "--format", "mxfp4", "--cpu-path", "portable")
        self.assertEqual(portable.returncode, 0, portable.stderr)

    def test_usage(self):
        self.assertEqual(snug().returncode, 2)
        self.assertEqual(snug("--help").returncode, 0)
        self.assertEqual(snug("plan", "--max-tokens", "x").returncode, 2)
        self.assertEqual(snug("--version").stdout, "snug 0.1.0\n")
        self.assertEqual(snug("run", "--model", MODEL, "--layer", "9").returncode, 2)

    def test_the_environment_changes_nothing(self):
        base = ["plan", *LAYER, "--max-tokens", "64", "--device", "h200", "--json"]
        plain = snug(*base).stdout
        noisy = {**os.environ, "SNUG_CUDA": "0", "OMP_NUM_THREADS": "1", "SNUG_ARENA": "1"}
        changed = subprocess.run([SNUG, *base], capture_output=True, text=True, check=False,
                                 env=noisy).stdout
        self.assertEqual(plain, changed)


if __name__ == "__main__":
    unittest.main(verbosity=2)
