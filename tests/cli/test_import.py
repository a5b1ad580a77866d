"""`weft import`: where it writes, its JSON and its exit codes."""

import json
import re
from pathlib import Path

import pytest

from weft.cli.main import main

ROOT = Path(__file__).parents[2]
FILES = ROOT / "tests" / "interop" / "torch_files"
TASK = ROOT / "tasks" / "fp8_sdpa_stage_c_wmma" / "forward.cu"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative names, as users give them."""
    for file in (*FILES.glob("*.cu"), TASK):
        (tmp_path / file.name).write_text(file.read_text())
    monkeypatch.chdir(tmp_path)


def test_to_standard_output_and_to_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "past_the_end.cu"]) == 0
    shown = capsys.readouterr()
    assert main(["import", "past_the_end.cu", "-o", "x.cu"]) == 0
    assert Path("x.cu").read_text() == shown.out
    assert shown.err == "past_the_end.cu: launch lines from forward, complete\n"
    assert main(["run", "x.cu"]) == 1
    findings = re.findall(r"^M101 .* · (\S+) · CTA", capsys.readouterr().out, re.MULTILINE)
    line = FILES.joinpath("past_the_end.cu").read_text().splitlines().index("        y[i] = -x[i];") + 1
    assert [finding.rpartition("/")[2] for finding in findings] == [f"past_the_end.cu:{line}"] * 2


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "layer_norm.cu", "--json", "-o", "x.cu"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert (record["function"], record["complete"], record["output"]) == ("forward", False, "x.cu")
    assert len(record["to_complete"]) == 2 and record["text"] == Path("x.cu").read_text()  # gamma and beta
    assert any("eps" in note["text"] for note in record["notes"])


def test_holes_are_given_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--shape", "gamma=D", "--shape", "beta=D", "--value", "eps=1e-5"]
    assert main(["import", "layer_norm.cu", "-o", "x.cu", *given]) == 0
    assert "// weft: in        gamma : f32[D] = normal" in capsys.readouterr().out
    assert main(["import", "layer_norm.cu", "-o", "x.cu"]) == 1
    assert main(["run", "x.cu"]) == 2
    assert "x.cu:4" in capsys.readouterr().err


def test_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "packed_accessor.cu", "-o", "x.cu"]) == 3
    assert "packed_accessor.cu:6: PackedTensorAccessor32" in capsys.readouterr().err
    assert not Path("x.cu").exists()
    assert main(["import", "gone.cu"]) == 2
    assert main(["import", "layer_norm.cu", "--shape", "gamma"]) == 2


def test_our_own_robust_kbench_file_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "forward.cu", "-o", "x.cu"]) == 0
    # The macros are those of the launch lines, not those of the file.
    other = ["--masks", "top_left", "--encodings", "e4m3", "--tool", "racecheck"]
    options = ["--task", "fp8_sdpa", "--shapes", "small", "--regimes", "unit_normal", "--seeds", "1", *other]
    assert main(["check", "x.cu", *options]) == 0
    assert "small\t1 of 1" in capsys.readouterr().out


def test_its_host_code_gives_the_same_launch_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Without its `// weft:` lines, the same launch is read from the generated C++ code."""
    text = TASK.read_text()
    own = {line.split("weft:")[1].strip() for line in text.splitlines() if "// weft:" in line}
    Path("bare.cu").write_text("\n".join(line for line in text.splitlines() if "// weft:" not in line))
    assert main(["import", "bare.cu", "-o", "x.cu"]) == 0
    lines = [" ".join(line.split()[2:]) for line in capsys.readouterr().out.splitlines()]
    (grid,) = [line for line in own if line.startswith("grid")]
    assert grid in lines
    (launch,) = [line for line in lines if line.startswith("launch")]
    (before,) = [" ".join(line.split()) for line in own if line.startswith("launch")]
    assert launch == before.replace("scale)", "1.0 / sqrt(D))")
    assert {"in q_code : u8[B, HQ, SQ, D] = uniform(0, 256)", "out o : f16[B, HQ, SQ, D]"} <= set(lines)
