"""`weft bundle` and `weft replay`: a wrong kernel, another verdict, a task that is not trusted."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from weft.bundle.file import pack, read
from weft.cli.main import main
from weft.core.status import Status
from weft.kernels.ladder import RUNGS

ON = ["--shapes", "small", "--regimes", "unit_normal", "--masks", "none", "--seeds", "1"]
SOFTMAX = Path(__file__).parents[2] / "examples" / "tasks"


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of attention whose U is never rescaled."""
    folder = tmp_path_factory.mktemp("bundle")
    source = RUNGS["scalar"].path.read_text()
    mistake = source.replace("u[i] = u[i] * rescale + p", "u[i] = u[i] + p")
    assert mistake != source
    (folder / "mine.cu").write_text(mistake)
    assert main(["bundle", str(folder / "mine.cu"), "-o", str(folder / "mine.weft"), *ON]) == 0
    return folder / "mine.weft"


def test_a_wrong_kernel_is_bundled_with_its_verdict(wrong: Path) -> None:
    found = read(wrong)
    assert found.answer is not None
    assert found.answer.status == "INCORRECT_NUMERICAL" and (found.answer.judged, found.answer.planned) == (1, 1)
    assert found.answer.failed_on == "small f16 none unit_normal seed 0"
    assert set(found.answer.outputs[found.answer.failed_on]) == {"o", "lse"}
    assert len(found.answer.ptx) == 64 and found.name == "mine.cu"
    with zipfile.ZipFile(io.BytesIO(wrong.read_bytes())) as archive:
        everything = b"".join(archive.read(row) for row in archive.infolist())
    assert str(wrong.parent).encode() not in everything  # no path of this machine


def test_another_verdict_is_reported_and_sets_the_exit_code(
    wrong: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bundle claims that the wrong kernel passed, with other code and other bits."""
    found = read(wrong)
    assert found.answer is not None
    other = {name: {each: "0" * 64 for each in digests} for name, digests in found.answer.outputs.items()}
    claim = replace(found.answer, status=Status.PASSED, failure=None, message="", ptx="0" * 64, outputs=other)
    forged = tmp_path / "forged.weft"
    forged.write_bytes(pack(replace(found, answer=claim, environment={**found.environment, "compiler": "nvrtc 1.0"})))
    assert main(["replay", str(forged), "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["same_verdict"] is False and shown["same_ptx"] is False and shown["same_bits"] == 0
    what = [each["what"] for each in shown["differences"]]
    assert what[0] == "compiler" and what[-1] == "verdict" and "PTX" in what
    assert sum(name.startswith("bits of ") for name in what) == 2
    assert shown["here"].startswith("INCORRECT_NUMERICAL on small f16 none unit_normal seed 0")


def test_a_task_inside_runs_only_if_it_is_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "softmax.weft"
    kernel, task = SOFTMAX / "softmax.cu", SOFTMAX / "softmax_task.py"
    chosen = ["--task", str(task), "--shapes", "few_queries", "--seeds", "1"]
    assert main(["bundle", str(kernel), "-o", str(made), *chosen]) == 0
    found = read(made)
    assert found.task_text == task.read_text() and found.answer is not None and found.answer.status == "PASSED"
    marker = tmp_path / "ran"
    armed = tmp_path / "armed.weft"
    # The child may not write there, but needs the task.
    telltale = f"import contextlib\nwith contextlib.suppress(OSError): open({str(marker)!r}, 'w').close()\n"
    armed.write_bytes(pack(replace(found, task_text=telltale + found.task_text)))
    capsys.readouterr()
    assert main(["replay", str(armed)]) == 2
    assert "--trust-task" in capsys.readouterr().err
    assert not marker.exists()
    assert main(["replay", str(armed), "--trust-task"]) == 0
    assert marker.exists() and "the same verdict" in capsys.readouterr().out


def test_a_broken_file_and_what_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no.weft").write_text("no")
    assert main(["replay", str(tmp_path / "no.weft")]) == 2
    assert "not a bundle" in capsys.readouterr().err
    assert main(["bundle", "qk_dot", "-o", str(tmp_path / "x.weft"), "--masks", "top_left"]) == 2
    assert "cannot be bundled" in capsys.readouterr().err and not (tmp_path / "x.weft").exists()
