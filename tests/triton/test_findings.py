"""Mistakes in Triton kernels raise errors with the line of the Python source; the right versions pass."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import weft.triton
from tests.triton import planted_kernels as kernels

Launch = Callable[[bool], None]


def shift(wrong: bool) -> None:
    x, out = torch.randn(50), torch.empty(50)
    kernels.shift[(1,)](x, out, 50, BLOCK=64, WRONG=wrong)
    assert torch.equal(out, x + 1)


def total(wrong: bool) -> None:
    x, out = torch.ones(256), torch.zeros(1)
    kernels.total[(4,)](x, out, 256, BLOCK=64, WRONG=wrong)
    assert out.item() == 256


def gather(wrong: bool) -> None:
    x, index, out = torch.randn(8), torch.tensor([3, -1, 7, 9], dtype=torch.int32), torch.empty(4)
    kernels.gather[(1,)](x, index, out, 4, 8, BLOCK=4, WRONG=wrong)
    assert torch.equal(out, torch.stack([x[3], torch.tensor(0.0), x[7], torch.tensor(0.0)]))


def neighbours(wrong: bool) -> None:
    x, out = torch.randn(64), torch.zeros(128)
    kernels.neighbours[(1,)](x, out, BLOCK=64, WRONG=wrong, num_warps=2)
    assert torch.equal(out[:64], torch.cat([x[32:], x[:32]]))


def accumulate(wrong: bool) -> None:
    x, out = torch.randn(50), torch.empty(50)
    kernels.accumulate[(1,)](x, out, 50, BLOCK=64, WRONG=wrong)
    assert torch.equal(out, x)


PLANTED: dict[Launch, str] = {shift: "M101", total: "R", gather: "M101", neighbours: "R", accumulate: "I"}


def wrong_line(name: str) -> int:
    lines = Path(kernels.__file__).read_text().splitlines()
    start = lines.index(next(line for line in lines if line.startswith(f"def {name}(")))
    return 1 + next(at for at in range(start, len(lines)) if lines[at].endswith("# wrong"))


@pytest.mark.parametrize("launch", PLANTED, ids=lambda launch: launch.__name__)
def test_a_planted_mistake_is_found_at_its_line(launch: Launch) -> None:
    with weft.triton.on("l4", check=True), pytest.raises(weft.triton.KernelFindings) as caught:
        launch(True)
    places = {
        (finding.place.file, finding.place.line)
        for finding in caught.value.findings
        if finding.place is not None and finding.code.startswith(PLANTED[launch])
    }
    assert (kernels.__file__, wrong_line(launch.__name__)) in places
    assert f"planted_kernels.py:{wrong_line(launch.__name__)}" in str(caught.value)


@pytest.mark.parametrize("launch", PLANTED, ids=lambda launch: launch.__name__)
def test_the_right_version_passes(launch: Launch) -> None:
    with weft.triton.on("l4", check=True):
        launch(False)


@pytest.mark.parametrize("write", ["torch", "numpy", "kernel"])
def test_memory_written_since_is_not_a_finding(write: str) -> None:
    with weft.triton.on("l4", tools=["initcheck"]):
        x, out = torch.randn(50), torch.empty(50)
        if write == "torch":
            out.zero_()
        elif write == "numpy":
            out.numpy()[:] = 0
        else:
            kernels.accumulate[(1,)](x, out, 50, BLOCK=64, WRONG=False)
            out.sub_(x)
        kernels.accumulate[(1,)](x, out, 50, BLOCK=64, WRONG=True)
    assert torch.equal(out, x)


def test_an_unwritten_part_is_found() -> None:
    with weft.triton.on("l4", tools=["initcheck"]):
        x, out = torch.randn(50), torch.empty(50)
        kernels.accumulate[(1,)](x, out, 40, BLOCK=64, WRONG=False)
        kernels.accumulate[(1,)](x, out, 40, BLOCK=64, WRONG=True)
        with pytest.raises(weft.triton.KernelFindings, match="I"):
            kernels.accumulate[(1,)](x, out, 41, BLOCK=64, WRONG=True)


def test_the_plain_mode_has_memory_checks_only() -> None:
    with weft.triton.on("l4"):
        for launch, code in PLANTED.items():
            if code == "M101":
                with pytest.raises(weft.triton.KernelFindings):
                    launch(True)
        x, out = torch.ones(64), torch.zeros(1)
        kernels.total[(1,)](x, out, 64, BLOCK=64, WRONG=True)  # a single program has no other to race with
        assert out.item() == 64
