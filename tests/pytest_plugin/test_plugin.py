"""`pytest --weft` on a small project, as a user runs it: in a separate process."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest_plugins = ["pytester"]

KERNELS = """\
import triton
import triton.language as tl


@triton.jit
def shift(x_ptr, out_ptr, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i + by, mask=i < n)  # M101
    tl.store(out_ptr + i, x, mask=i < n)


@triton.jit
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0), axis=0)
    tl.store(out_ptr, tl.load(out_ptr) + part)  # race


@triton.jit
def keep(p_ptr, out_ptr):
    old = tl.load(p_ptr)
    tl.store(p_ptr, old + 1)  # warned
    tl.store(out_ptr + tl.arange(0, 32), old)
"""
TESTS = """\
import pytest
import torch

from kernels import keep, shift, total

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def shifted(by):
    x = torch.arange(1000.0, device="cuda")
    out = torch.empty_like(x)
    shift[(4,)](x, out, 1000, by, BLOCK=256)  # launch
    return x, out


def summed():
    x, out = torch.ones(1000, device="cuda"), torch.zeros(1, device="cuda")
    total[(4,)](x, out, 1000, BLOCK=256)


@needs_cuda
def test_right():
    x, out = shifted(0)
    assert out.is_cuda
    torch.testing.assert_close(out, x)


@needs_cuda
def test_beyond_the_end():
    shifted(1)


@needs_cuda
def test_race():
    summed()


@needs_cuda
def test_warned():
    keep[(1,)](torch.zeros(1, device="cuda"), torch.empty(32, device="cuda"), num_warps=1)


@needs_cuda
@pytest.mark.weft(check=False)
def test_race_unseen():
    summed()


@needs_cuda
@pytest.mark.weft(gpu="a100", check="initcheck")
class TestOtherChip:
    def test_other_chip(self):
        assert torch.cuda.get_device_capability() == (8, 0)

    @pytest.mark.weft(gpu="rtx3090")
    def test_yet_another(self):
        assert torch.cuda.get_device_capability() == (8, 6)


@needs_cuda
def test_first_chip_again():
    assert torch.cuda.get_device_capability() == (8, 9)


@needs_cuda
def test_skipped_for_a_finding():
    try:
        shifted(1)
    except Exception:
        pytest.skip("does not work here")


@needs_cuda
def test_wrapped():
    try:
        shifted(1)
    except Exception as error:
        raise ValueError("no such luck") from error


@needs_cuda
@pytest.mark.xfail(strict=True)
def test_known_to_be_wrong():
    shifted(-1)


@needs_cuda
@pytest.mark.weft(gpus="a100")
def test_misspelt():
    pass


def test_plain_failure():
    assert 1 + 1 == 3
"""
CONFTEST = """\
import torch

SEEN = torch.cuda.is_available()


def pytest_report_header():
    return f"conftest.py sees CUDA: {SEEN}"
"""
CUDA = """\
// weft: sizes   N=8
// weft: out     y : i32[N]
// weft: scalar  n : i32 = N
// weft: launch  fill(y, n) grid(1) block(64)

__global__ void fill(int* y, int n) {
    const int i = threadIdx.x;
    if (i < n + BEYOND) y[i] = i;  // store
}
"""
CUDA_TESTS = """\
import pytest


@pytest.mark.parametrize("beyond", [0, 1])
def test_fill(weft_kernel, beyond):
    arrays = weft_kernel("fill.cu", defines={"BEYOND": str(beyond)}).run(sizes={"N": 40})
    assert arrays["y"].tolist() == list(range(40))
"""
FIXTURE_TESTS = """\
import torch
from kernels import shift


def test_fixture(weft_gpu):
    x = torch.ones(256, device="cuda")
    out = torch.empty_like(x)
    shift[(1,)](x, out, 256, 0, BLOCK=256)
    assert weft_gpu.launches == 1 and weft_gpu.arch == "sm_89"
    assert out.sum().item() == 256


def test_without():
    assert not torch.cuda.is_available()
"""


OWN_USE = """\
import warnings

import torch
import weft.triton
from kernels import shift


def test_own_use():
    x, out = torch.ones(256), torch.empty(256)
    with weft.triton.on("l4"):
        shift[(1,)](x, out, 256, 1, BLOCK=256)


def test_own_warning():
    warnings.warn("k: R103 warning: may race · kernels.py:7 · CTA (0, 0, 0)", RuntimeWarning)
"""


def line_of(text: str, mark: str) -> int:
    (number,) = [at for at, line in enumerate(text.splitlines(), 1) if line.endswith((f"# {mark}", f"// {mark}"))]
    return number


CHILD = """\
import sys

from kernels import shift

if "torch" in sys.argv:
    import torch

    assert torch.cuda.is_available()
    x = torch.arange(1000.0, device="cuda")
    shift[(4,)](x, torch.empty_like(x), 1000, int(sys.argv[1]), BLOCK=256)
elif "target" in sys.argv:
    import triton

    assert "torch" not in sys.modules
    print(triton.runtime.driver.active.get_current_target().arch)
"""
CHILD_TESTS = """\
import os
import subprocess
import sys

import pytest


def child(*words, **variables):
    command = [sys.executable, "child.py", *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})


def test_right():
    assert child("0", "torch").returncode == 0


def test_wrong():
    done = child("1", "torch")
    assert done.returncode == 0, done.stderr


@pytest.mark.weft(gpu="a100")
def test_target():
    done = child("target")
    assert done.stdout.strip() == "80", done.stderr


def test_the_project_s_own_start(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('own start')")
    done = child(PYTHONPATH=os.environ["PYTHONPATH"] + os.pathsep + str(tmp_path))
    assert done.stdout.strip() == "own start" and not done.stderr, done.stderr
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in ("GITHUB_ACTIONS", "GITHUB_WORKSPACE", "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    (pytester.path / "kernels.py").write_text(KERNELS)
    (pytester.path / "test_kernels.py").write_text(TESTS)
    (pytester.path / "conftest.py").write_text(CONFTEST)
    return pytester


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    return project.run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", *args)


def section(lines: list[str], test: str) -> str:
    """Return the failure of a test, without its heading."""
    start = next(at for at, line in enumerate(lines) if line.strip("_ ") == test and line.startswith("__"))
    end = next(at for at in range(start + 1, len(lines)) if lines[at].startswith(("__", "==")))
    return "\n".join(lines[start + 1 : end])


def test_a_project_with_wrong_kernels(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = run(project, "--weft", "--junitxml=report.xml")
    result.assert_outcomes(passed=6, failed=5, errors=1, xfailed=1)
    lines = result.outlines
    assert "weft: virtual l4, all checkers" in lines and "conftest.py sees CUDA: True" in lines
    wrong, race = line_of(KERNELS, "M101"), line_of(KERNELS, "race")

    beyond = section(lines, "test_beyond_the_end")
    assert beyond.startswith("M101 out-of-bounds") and f"· kernels.py:{wrong} ·" in beyond and "· cure: " in beyond
    assert KERNELS.splitlines()[wrong - 1] in beyond
    assert f"launched at test_kernels.py:{line_of(TESTS, 'launch')}" in beyond
    assert "Traceback" not in beyond and "launcher.py" not in beyond and len(beyond.splitlines()) < 7
    racing = section(lines, "test_race")
    assert racing.startswith("R") and f"kernels.py:{race}" in racing
    assert f"kernels.py:{wrong}" in section(lines, "test_skipped_for_a_finding")
    wrapped = section(lines, "test_wrapped")
    assert "ValueError: no such luck" in wrapped and f"kernels.py:{wrong} ·" in wrapped.partition("Weft's findings")[2]
    assert "takes gpu=… and check=…, not gpus" in section(lines, "ERROR at setup of test_misspelt")
    assert "assert (1 + 1) == 3" in section(lines, "test_plain_failure")
    assert any(line.startswith("FAILED test_kernels.py::test_beyond_the_end - ") and "M101" in line for line in lines)

    errors = [line for line in lines if line.startswith("::error ")]
    (outside,) = [line for line in errors if "::M101 " in line]
    assert outside.startswith(f"::error file=kernels.py,line={wrong},"), "two tests, said once; not the expected one"
    assert any(line.startswith(f"::error file=kernels.py,line={race},") and "title=R" in line for line in errors)
    assert len(errors) == len(set(errors))
    (warned,) = [line for line in lines if line.startswith("::warning ")]
    within = line_of(KERNELS, "warned")
    assert warned.startswith(f"::warning file=kernels.py,line={within},title=R103::R103 warning: "), "within a warp"

    cases = {case.get("name"): case for case in ElementTree.parse(project.path / "report.xml").iter("testcase")}
    findings_of = {name: [p.get("value", "") for p in case.iter("property")] for name, case in cases.items()}
    assert findings_of["test_right"] == findings_of["test_race_unseen"] == findings_of["test_plain_failure"] == []
    (finding,) = findings_of["test_beyond_the_end"]
    assert finding.startswith("M101") and f"kernels.py:{wrong}" in finding
    assert {p.get("name") for p in cases["test_beyond_the_end"].iter("property")} == {"weft.finding"}
    failure = cases["test_beyond_the_end"].find("failure")
    assert failure is not None and f"kernels.py:{wrong}" in (failure.text or "")


def test_workers_of_xdist(project: pytest.Pytester) -> None:
    (project.path / "conftest.py").unlink()  # the controller must not need PyTorch
    chosen = "right or beyond or other_chip or test_race or plain or warned"
    result = run(project, "--weft", "-n", "2", "--junitxml=report.xml", "-k", chosen)
    result.assert_outcomes(passed=4, failed=3)
    assert section(result.outlines, "test_beyond_the_end").count("M101 out-of-bounds") == 1
    end = "\n".join(result.outlines).partition("Weft's findings")[2]
    assert f"R103 warning: write-after-read race, 4 bytes at p_ptr+0x0 · kernels.py:{line_of(KERNELS, 'warned')}" in end
    assert "::error" not in end, "not on GitHub"
    properties = [p.get("value", "")[:4] for p in ElementTree.parse(project.path / "report.xml").iter("property")]
    assert properties.count("M101") == 1 and {"R101", "R102"} <= set(properties)


def test_a_line_says_what_ran(project: pytest.Pytester) -> None:
    (project.path / "test_none.py").write_text("def test_nothing(): pass\n")
    some = run(project, "--weft", "--weft-gpu", "h100", "-k", "right or nothing")
    assert some.ret == 0
    assert "weft: 1 kernel, 1 launch on the virtual h100, all checkers; 0 refused" in some.outlines
    none = run(project, "--weft", "test_none.py")
    none.assert_outcomes(passed=1)
    assert none.ret == pytest.ExitCode.TESTS_FAILED
    assert any(line.startswith("weft: 0 kernels, 0 launches") and "no kernel ran" in line for line in none.outlines)
    assert run(project, "--weft", "--weft-allow-none", "test_none.py").ret == 0


def test_child_processes_have_the_virtual_gpu(project: pytest.Pytester) -> None:
    (project.path / "child.py").write_text(CHILD)
    (project.path / "test_child.py").write_text(CHILD_TESTS)
    result = run(project, "--weft", "test_child.py")
    result.assert_outcomes(passed=3, failed=1)
    assert "M101 out-of-bounds read" in section(result.outlines, "test_wrong")
    assert any(line.startswith("weft: 1 kernel, 2 launches on the virtual l4") for line in result.outlines)
    bare = run(project, "test_child.py")
    bare.assert_outcomes(passed=1, failed=3)


def test_without_the_option_only_the_fixtures_do_something(project: pytest.Pytester) -> None:
    (project.path / "fill.cu").write_text(CUDA)
    (project.path / "test_cuda.py").write_text(CUDA_TESTS)
    (project.path / "test_fixture.py").write_text(FIXTURE_TESTS)
    result = run(project, "-k", "not plain_failure")
    result.assert_outcomes(passed=3, failed=1, skipped=12, deselected=1)
    assert "weft: virtual" not in result.stdout.str() and "conftest.py sees CUDA: False" in result.outlines
    wrong = section(result.outlines, "test_fill[1]")
    assert wrong.startswith("M101") and f"fill.cu:{line_of(CUDA, 'store')}" in wrong


def test_a_projects_own_use_of_weft_is_not_changed(project: pytest.Pytester) -> None:
    (project.path / "test_own_use.py").write_text(OWN_USE)
    result = run(project, "test_own_use.py")
    result.assert_outcomes(passed=1, failed=1)
    failed = section(result.outlines, "test_own_use")
    assert 'with weft.triton.on("l4"):' in failed and "KernelFindings" in failed, "with its traceback"
    assert "R103 warning" in result.stdout.str() and "Weft's findings" not in result.stdout.str()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--weft-gpu", "voodoo2"], "unknown GPU 'voodoo2'"),
        (["--weft-tool", "racecheck", "--weft-plain"], "give only one of them"),
    ],
)
def test_misuse_ends_the_run(project: pytest.Pytester, options: list[str], said: str) -> None:
    result = run(project, "--weft", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str() and "Traceback" not in result.stderr.str()


def test_the_plugin_costs_nothing_unused(tmp_path: Path) -> None:
    (tmp_path / "test_light.py").write_text(
        "import sys\n\ndef test_light(pytestconfig):\n"
        "    assert 'weft.pytest_plugin.plugin' in sys.modules\n"
        "    heavy = {'torch', 'triton', 'llvmlite', 'numpy', 'cuda', 'weft.core', 'weft.cli', 'weft.triton'}\n"
        "    assert not heavy & set(sys.modules)\n\n"
        "def test_failing():\n    assert False\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:hypothesispytest", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
