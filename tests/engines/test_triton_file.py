"""Triton files with launch lines: they run as declared, or are refused with the line."""

import re
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.cli.main import main
from weft.core.errors import CompileError, LaunchError, UsageError

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "launch_lines.md"

TWO = """
# weft: sizes     S=100 PARTS=4
# weft: in        x : f32[S] = normal
# weft: workspace part : f32[PARTS]
# weft: out       total : f32[1]
# weft: launch    sum_parts<BLOCK=32, num_warps=1>(x, part, S) grid(PARTS) block(32)
# weft: launch    sum_all<num_warps=1>(part, total) grid(1) block(32) when(PARTS > 1)
import triton
import triton.language as tl


@triton.jit
def sum_parts(x, part, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(part + tl.program_id(0), tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))


@triton.jit
def sum_all(part, total, PARTS: tl.constexpr):
    tl.store(total, tl.sum(tl.load(part + tl.arange(0, PARTS)), axis=0))
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "kernel.py"
    path.write_text(text)
    return path


def test_the_example_of_the_page(tmp_path: Path) -> None:
    text = re.search(r"`scaled_sum\.py`:\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert text is not None
    run, arrays = weft.load(written(tmp_path, text[1])).run(weft.VirtualGPU())
    assert run.clean
    assert np.array_equal(arrays["z"], (arrays["x"] + arrays["y"]) * np.float32(0.5))


def test_launches_of_several_functions_share_their_arrays(tmp_path: Path) -> None:
    run, arrays = weft.load(written(tmp_path, TWO)).run(weft.VirtualGPU())
    assert run.clean and len(run.entries) == 2
    assert main(["run", str(tmp_path / "kernel.py")]) == 0
    assert arrays["total"][0] == pytest.approx(arrays["x"].astype(np.float64).sum(), abs=1e-4)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    before = weft.load(written(tmp_path, TWO)).run(weft.VirtualGPU()).arrays["total"][0]
    after = weft.load(written(tmp_path, TWO.replace("other=0.0), axis=0))", "other=0.0), axis=0) * 2)"))).run(
        weft.VirtualGPU()
    )
    assert after.arrays["total"][0] == 2 * before


@pytest.mark.parametrize(
    ("old", "new", "error", "says"),
    [
        ("sum_all<num_warps=1>", "sum_all<num_warps=2>", LaunchError, "kernel.py:7: block(32): Triton compiled"),
        ("(x, part, S)", "(x, part)", LaunchError, "kernel.py:6: sum_parts takes x, part, n; the line passes 2"),
        ("BLOCK=32, ", "", LaunchError, "kernel.py:6: no value for BLOCK: write sum_parts<BLOCK=…>"),
        ("launch    sum_all", "launch    missing", UsageError, "has no function missing"),
        ("<BLOCK=32,", "<32,", UsageError, "pass a constant by name"),
        (
            "<BLOCK=32,",
            "<BLOCK=Flase,",
            UsageError,
            "kernel.py:6: Flase is not a constant: write a number, True, False",
        ),
        ("import triton.language", "import no_such_module, triton.language", UsageError, "ModuleNotFoundError"),
        ("tl.arange(0, BLOCK)", "tl.arange(0, 33)", CompileError, "power of 2"),
    ],
)
def test_invalid_lines_are_refused(old: str, new: str, error: type[Exception], says: str, tmp_path: Path) -> None:
    assert TWO.count(old) == 1
    path = written(tmp_path, TWO.replace(old, new))
    with pytest.raises(error, match=re.escape(says)):
        weft.load(path).run(weft.VirtualGPU())


@pytest.mark.parametrize(
    ("spelled", "value"),
    [("False", 0), ("false", 0), ("True", 1), ("true", 1), ("3", 3), ("'yes'", 1), ('"yes"', 1)],
)
def test_constants_have_their_python_values(spelled: str, value: int, tmp_path: Path) -> None:
    """A non-empty string is true: `False` must not become a string."""
    text = TWO.replace("BLOCK=32,", f"BLOCK=32, FLAG={spelled},").replace(
        "BLOCK: tl.constexpr)", "FLAG: tl.constexpr, BLOCK: tl.constexpr)"
    )
    text = text.replace(
        "other=0.0), axis=0))", "other=0.0), axis=0) * (0.0 if not FLAG else FLAG if FLAG == 3 else 1.0))"
    )
    run, arrays = weft.load(written(tmp_path, text)).run(weft.VirtualGPU())
    assert run.clean
    assert arrays["total"][0] == pytest.approx(value * arrays["x"].astype(np.float64).sum(), abs=1e-3)


def test_a_file_without_launch_lines_names_the_documentation(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no `# weft: launch` line; .*launch_lines\.md"):
        weft.load(written(tmp_path, "import triton\n"))


def test_a_launch_with_when_runs_only_if_true(tmp_path: Path) -> None:
    kernel = weft.load(written(tmp_path, TWO))
    assert [launch.name for launch in kernel.sequence()] == ["sum_parts", "sum_all"]
    assert [launch.name for launch in kernel.sequence(sizes={"PARTS": 1})] == ["sum_parts"]


def test_a_finding_names_the_line_of_the_python_file(tmp_path: Path) -> None:
    path = written(tmp_path, TWO.replace("mask=i < n, other=0.0", "mask=i < n + 9, other=0.0"))
    run, _ = weft.load(path).run(weft.VirtualGPU())
    (finding,) = run.findings
    assert finding.code == "M101"
    assert finding.place is not None and path.read_text().splitlines()[finding.place.line - 1].strip().startswith(
        "tl.store(part"
    )
