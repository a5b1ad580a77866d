"""The registers of a CTA are a pool: setmaxnreg.inc waits until there are enough; without end it is a deadlock."""

import numpy as np
import pytest

from tests.ptx.harness import ENGINES, HEADER, Engine
from weft.core.records import Finding
from weft.ptx.parse import parse
from weft.vm.launch_spec import LaunchSpec
from weft.vm.memory import GlobalMemory

INC, DEC = "setmaxnreg.inc.sync.aligned.u32", "setmaxnreg.dec.sync.aligned.u32"
BARRIER = "bar.sync 0;"


def ran(
    engine: str, first: str, second: str, *, registers: int = 168, bound: str = ".maxnreg 168", fixed: bool = False
) -> tuple[list[int], tuple[Finding, ...]]:
    """Run code for each of two warpgroups; return how many threads came to its end, and the findings."""
    text = f"""{HEADER.replace("sm_89", "sm_90a")}
.visible .entry k(.param .u64 out) {bound}
{{ .reg .b32 %t, %v; .reg .b64 %a; .reg .pred %p;
ld.param.u64 %a, [out]; mov.u32 %t, %tid.x; setp.ge.u32 %p, %t, 128; @%p bra SECOND;
{first} add.u64 %a, %a, 0; bra END;
SECOND: {second} add.u64 %a, %a, 4;
END: red.global.add.u32 [%a], 1; ret; }}"""
    memory = GlobalMemory(1 << 16)
    out = memory.allocate(8)
    memory.write(out, bytes(8))
    launch = LaunchSpec(
        "k", (1, 1, 1), (256, 1, 1), out.to_bytes(8, "little"), registers=registers, fixed_registers=fixed
    )
    findings = Engine(engine, parse(text)).run(launch, memory, {}).findings
    return memory.read(out, 8).view(np.uint32).tolist(), findings


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (f"{DEC} 40;", f"{INC} 232;"),
        (f"{INC} 232;", f"{DEC} 40;"),  # the first waits for the second
        (
            f"{DEC} 40; {BARRIER} {BARRIER} {INC} 168;",
            f"{BARRIER} {INC} 256; {DEC} 24; {BARRIER}",
        ),
        (f"{INC} 240;", ""),  # registers of warps that have exited are free
        (f"{DEC} 168;", f"{INC} 168;"),
    ],
    ids=["release first", "take first", "there and back", "exited", "no change"],
)
def test_enough_registers_come(engine: str, first: str, second: str) -> None:
    assert ran(engine, first, second) == ([128, 128], ())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("first", "second", "ended"),
    [
        (f"{INC} 232;", f"{INC} 232;", [0, 0]),
        (f"{INC} 232; {BARRIER}", BARRIER, [0, 0]),
        (f"{DEC} 112; {BARRIER}", f"{INC} 232; {BARRIER}", [0, 0]),
    ],
    ids=["both", "the other waits at a barrier", "eight too few"],
)
def test_a_wait_without_end_is_a_deadlock(engine: str, first: str, second: str, ended: list[int]) -> None:
    counts, findings = ran(engine, first, second)
    assert counts == ended and {finding.code for finding in findings} == {"S301"}
    needed, free = (8192, 0) if "112" not in first else (8192, 128 * 56)
    (words,) = {finding.message for finding in findings if "setmaxnreg" in finding.message}
    assert words == f"deadlock: setmaxnreg.inc waits for {needed} registers of the CTA's pool, which has {free}"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "unknown",
    [{"registers": 0}, {"bound": ""}, {"fixed": True}],
    ids=["no number of registers", "no bound", "ignored by ptxas"],
)
def test_without_a_known_number_there_are_always_enough(engine: str, unknown: dict[str, int | str | bool]) -> None:
    assert ran(engine, f"{INC} 232;", f"{INC} 232;", **unknown) == ([128, 128], ())  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("first", [f"{DEC} 176;", f"{INC} 160;"], ids=["dec that grows", "inc that shrinks"])
def test_the_wrong_direction_is_found(engine: str, first: str) -> None:
    counts, (finding,) = ran(engine, first, f"{DEC} 40;")
    assert counts == [128, 128] and finding.code == "S314"
    assert finding.message.startswith("the warp has 168 registers per thread, and setmaxnreg asks for 1")
