"""The cache of compiled kernels: a second process compiles nothing, damage is repaired, hosts have different keys."""

import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

PTX = r"""
.version 8.4
.target sm_89
.address_size 64
.visible .entry scale(.param .u64 x, .param .u32 n)
{
  .reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .f32 %f<2>; .reg .pred %p;
  ld.param.b64 %rd0, [x];
  ld.param.b32 %r0, [n];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %rd0, %r1, 4, %rd0;
  setp.ge.u32 %p, %r1, %r0;
  @%p bra OUT;
  ld.global.f32 %f0, [%rd0];
LOOP:
  add.f32 %f0, %f0, 0f40000000;
  setp.lt.f32 %p, %f0, 0f41200000;
  @%p bra LOOP;
  st.global.f32 [%rd0], %f0;
OUT:
  ret;
}
"""
"""Lanes leave the loop one after the other, so the code for divergent warps is compiled as well."""

PROGRAM = f"""
import numpy as np
import weft
from weft.core.records import Binary

binary = Binary("scale.ptx", "sm_89", "by hand", (), {PTX!r}, ptx_digest="scale")
x = np.arange(64, dtype=np.float32) - 32
run = weft.VirtualGPU(threads=2).launch(binary, "scale", 1, 64, [x, np.uint32(60)])
assert run.clean, run.findings
expected = np.arange(60, dtype=np.float32) - 30
while (low := expected < 10).any():
    expected[low] += 2
assert (x[:60] == expected).all(), x
assert (x[60:] == np.arange(60, 64) - 32).all()
print("result", x.tobytes().hex())
"""


def _environment(cache: Path, **changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "WEFT_CPU"}
    return {**kept, "WEFT_CACHE": str(cache), "WEFT_DEBUG": "1", **changes}


def _run(cache: Path, **changes: str) -> tuple[str, list[str]]:
    """Return the result of the program and the lines about compilations."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=_environment(cache, **changes), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return _split(done.stdout + done.stderr)


def _split(text: str) -> tuple[str, list[str]]:
    lines = text.splitlines()
    return next(line for line in lines if line.startswith("result")), [x for x in lines if x.startswith("weft:")]


def _files(cache: Path) -> dict[Path, str]:
    return {
        path.relative_to(cache): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in cache.rglob("*")
        if path.is_file()
    }


def _assert_whole(cache: Path) -> None:
    """Assert that every file is complete by its own header, and that no temporary file is left."""
    from weft.toolchain.cache import Cache

    files = _files(cache)
    assert files
    for path in files:
        kind, folder, name = path.parts
        assert not name.startswith(".tmp-"), path
        assert Cache(kind, root=cache).get(folder + name) is not None, path


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, list[str]]:
    """Return a cache after one process, with its results and the names it compiled."""
    cache = tmp_path_factory.mktemp("cache")
    return cache, *_run(cache)


def test_the_first_process_compiles_both_copies(filled: tuple[Path, str, list[str]]) -> None:
    cache, _, compiled = filled
    assert any(line.startswith("weft: scale:") for line in compiled)
    assert any(line.startswith("weft: scale (divergent):") for line in compiled)
    _assert_whole(cache)


def test_the_second_process_compiles_nothing(filled: tuple[Path, str, list[str]]) -> None:
    cache, result, _ = filled
    before = _files(cache)
    assert _run(cache) == (result, [])
    assert _files(cache) == before


def test_four_processes_at_once_agree(filled: tuple[Path, str, list[str]], tmp_path: Path) -> None:
    _, result, _ = filled
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env=_environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(4)
    ]
    for process in started:
        text, _ = process.communicate(timeout=240)
        assert process.returncode == 0, text
        assert _split(text)[0] == result
    _assert_whole(tmp_path)
    assert _run(tmp_path) == (result, [])


@pytest.mark.parametrize("damage", ["cut in half", "empty", "one byte changed"])
def test_a_damaged_object_is_compiled_again(damage: str, tmp_path: Path) -> None:
    result, compiled = _run(tmp_path)
    whole = _files(tmp_path)
    for path in whole:
        data = (tmp_path / path).read_bytes()
        middle = len(data) // 2
        changed = {
            "cut in half": data[:middle],
            "empty": b"",
            "one byte changed": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        }
        (tmp_path / path).write_bytes(changed[damage])
    assert _names(_run(tmp_path)[1]) == _names(compiled)
    _assert_whole(tmp_path)
    assert _files(tmp_path).keys() == whole.keys()
    assert _run(tmp_path) == (result, [])


def _names(compiled: list[str]) -> set[str]:
    """Return what was compiled, without sizes and times."""
    return {line.split(":")[1] for line in compiled}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names a CPU of x86")
def test_another_cpu_has_separate_objects(filled: tuple[Path, str, list[str]], tmp_path: Path) -> None:
    _, result, _ = filled
    assert _run(tmp_path, WEFT_CPU="x86-64-v3")[0] == result
    first = _files(tmp_path)
    again, compiled = _run(tmp_path, WEFT_CPU="x86-64-v2")
    assert again == result
    assert any(line.startswith("weft: scale:") for line in compiled)
    second = _files(tmp_path)
    assert first.items() < second.items(), "the first CPU's objects stay"
    assert len(second) == 2 * len(first)


def test_keys_differ_between_modes_texts_and_architectures() -> None:
    from weft.vm.program import ProgramSource

    def key(text: str = PTX, mode: str = "hardware", arch: str = "sm_89", part: str = "in_step") -> str | None:
        return ProgramSource(text, "scale", mode=mode, arch=arch, cubin=()).key(part)

    keys = [key(), key(mode="ieee"), key(arch="sm_80"), key(part="divergent"), key(text=PTX + "\n")]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert key() == key()


def test_a_copy_of_a_file_has_the_same_object_and_its_own_digest() -> None:
    from weft.vm.program import ProgramSource, compile_program

    here, there = (f'{PTX}\n\t.file\t1 "/{folder}/scale.cu"\n' for folder in ("here", "there"))
    one, two = (ProgramSource(text, "scale", mode="hardware", arch="sm_89", cubin=()) for text in (here, there))
    assert one.key("in_step") == two.key("in_step")
    assert compile_program(here, "scale").plan.ptx_digest != compile_program(there, "scale").plan.ptx_digest
