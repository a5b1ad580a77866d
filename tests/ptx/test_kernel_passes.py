"""The passes of a kernel are in one list, and each runs when its result is needed."""

import re
from pathlib import Path

import pytest

from tests.ptx.harness import HEADER
from weft.ptx import passes
from weft.ptx.parse import parse
from weft.ptx.passes import kernel_passes
from weft.ptx.passes.kernel_passes import KernelPasses

TEXT = (
    f"{HEADER}.visible .entry k() {{ .reg .b32 %a, %b; .reg .pred %p; mov.u32 %a, 3;"
    " add.cc.u32 %b, %a, 1; addc.u32 %b, %b, %a; setp.lt.u32 %p, %b, 9; @%p bra L; mov.u32 %b, 0; L: ret; }"
)


def made() -> KernelPasses:
    module = parse(TEXT)
    return KernelPasses(module, module.functions["k"], warps_are_rows=True)


def test_every_pass_is_in_the_list() -> None:
    files = {file.stem for file in Path(passes.__path__[0]).glob("*.py")} - {"__init__", "kernel_passes"}
    listed = Path(kernel_passes.__file__).read_text()
    assert {name for name in files if re.search(rf"\b{name}\b", listed)} == files


def test_a_pass_runs_when_its_result_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def unasked(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(kernel_passes, "find_uniform", unasked)
    kernel = made()
    assert len(kernel.cfg.blocks) == 3
    assert not kernel.waits
    with pytest.raises(AssertionError):
        _ = kernel.regions


def test_the_carry_is_a_register_of_the_folded_kernel_alone() -> None:
    kernel = made()
    assert kernel.folded.registers["%cc"] == "pred"
    assert "%cc" not in kernel.inlined.registers
