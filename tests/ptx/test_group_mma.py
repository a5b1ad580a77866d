"""Tests which mma instructions are executed together, and that it changes no result."""

from collections.abc import Mapping

import numpy as np
import pytest

from tests.ptx.harness import HEADER, kernel, launch
from weft.ptx.parse import parse
from weft.ptx.passes.build_cfg import build_cfg
from weft.ptx.passes.group_mma import group_mma

MMA = "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"


def mma(d: int, a: int, b: int, c: int) -> str:
    """Registers by number; d, a and c are pairs."""
    return f"{MMA} {{%x{d}, %x{d + 1}}}, {{%x{a}, %x{a + 1}}}, {{%x{b}}}, {{%x{c}, %x{c + 1}}};"


def groups(*body: str, most: int = 8) -> list[tuple[int, ...]]:
    """Return groups by the number of the mma in the text."""
    text = HEADER + ".visible .entry k()\n{\n.reg .b32 %x<99>;\n.reg .pred %p;\n" + "\n".join(body) + "\nret;\n}\n"
    cfg = build_cfg(parse(text).functions["k"])
    starts = {0, *(target for block in cfg.blocks if block.end is not None for target in block.successors)}
    order = [block.id for block in cfg.blocks if block.body and block.body[0].form.name == "mma"]
    found = group_mma(cfg, starts, most=most)
    assert all(last == members[-1] for last, members in found.items())
    return sorted(tuple(order.index(member) for member in members) for members in found.values())


def test_instructions_that_share_a() -> None:
    assert groups(mma(20, 0, 4, 20), mma(22, 0, 5, 22), mma(24, 0, 6, 24)) == [(0, 1, 2)]
    assert groups(mma(20, 0, 4, 20), mma(22, 2, 5, 22), mma(24, 0, 6, 24), mma(26, 2, 5, 26)) == [(0, 2), (1, 3)]
    assert groups(*(mma(20 + 2 * n, 0, 4, 20 + 2 * n) for n in range(5)), most=4) == [(0, 1, 2, 3)]


def test_a_member_is_not_delayed_past_a_dependent_instruction() -> None:
    first, second = mma(20, 0, 4, 20), mma(22, 0, 5, 22)
    assert groups(first, "mov.b32 %x5, %x6;", second) == [(0, 1)]  # an operand of the later one is made in between
    assert groups(first, "mov.b32 %x6, %x20;", second) == []  # its result is read
    assert groups(first, "mov.b32 %x20, %x6;", second) == []  # its result is overwritten
    assert groups(first, "mov.b32 %x4, %x6;", second) == []  # its operand is overwritten
    assert groups(first, "mov.b32 %x1, %x6;", second) == []  # A is overwritten
    assert groups(first, mma(22, 0, 5, 20)) == []  # the second adds to the first
    assert groups(first, mma(20, 0, 5, 22)) == []  # both write the same registers
    assert groups(mma(20, 0, 4, 22), second) == []  # the second overwrites what the first adds to
    assert groups(first, mma(0, 2, 5, 22), second) == []  # another instruction overwrites A


def test_groups_end_with_straight_line_code() -> None:
    first, second = mma(20, 0, 4, 20), mma(22, 0, 5, 22)
    assert groups(first, "bar.sync 0;", second) == []
    assert groups(first, "@%p bra L;", second, "L:") == []
    assert groups("L:", first, "@%p bra L;", second) == []
    assert groups(first, "ret;", second) == []
    assert groups(first, f"@%p {second}", mma(24, 0, 4, 24)) == []  # a guard is a branch around it


def random_body(rng: np.random.Generator) -> str:
    """Return a body with few registers, so that instructions often depend on each other."""
    lines = []
    for _ in range(24):
        kind = rng.random()
        if kind < 0.15:
            x, y, z = rng.integers(0, 16, 3)
            lines.append(f"xor.b32 %x{x}, %x{y}, %x{z};")
            continue
        d, c = (int(x) for x in rng.choice([8, 10, 12, 14], 2))
        d, c = (c, c) if rng.random() < 0.7 else (int(rng.choice([0, 2])), c) if rng.random() < 0.1 else (d, c)
        line = mma(d, int(rng.choice([0, 0, 0, 2])), int(rng.integers(4, 8)), c)
        lines.append(f"@%p {line}" if kind > 0.95 else line)
    return "\n  ".join(lines)


@pytest.mark.parametrize("seed", range(6))
def test_grouping_changes_no_bit(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    names = [f"x{number}" for number in range(16)]
    outputs = {f"y{number}": "b32" for number in range(16)}
    copies = "\n  ".join(f"mov.b32 %y{number}, %x{number};" for number in range(16))
    body = f"setp.ne.b32 %p, %tid, -1;\n  {random_body(rng)}\n  {copies}"
    made = kernel(body, dict.fromkeys(names, "b32"), outputs, declarations=".reg .pred %p;")
    inputs = {name: rng.standard_normal(128).astype(np.float16).view(np.uint32) for name in names}
    together = launch(made, inputs, engine="jit").outputs
    sizes: list[int] = []

    def off(*args: object, **options: object) -> Mapping[int, tuple[int, ...]]:
        sizes.extend(len(members) for members in group_mma(*args, **options).values())  # type: ignore[arg-type]
        return {}

    monkeypatch.setattr("weft.vm.emit.in_step.group_mma", off)
    alone = launch(made, inputs, engine="jit").outputs
    reference = launch(made, inputs, engine="reference").outputs
    assert sizes
    for name in outputs:
        np.testing.assert_array_equal(together[name], alone[name], name)
        np.testing.assert_array_equal(together[name], reference[name], name)
