"""Small PTX texts cut from real kernels, and a few by hand for what these kernels do not have.

A text is a kernel's head, a few of its lines and the registers they name: small, so that a hundred thousand mutations
of them are read in a minute.
"""

import random
import re
from collections.abc import Iterator

import weft
from tests.kernels.case import CUDA_FOLDER
from weft.core.errors import ParseError, Unsupported
from weft.ptx.parse import parse

LINES = 5
"""Instructions of one text."""
_SOURCES = (
    ("atomics.cu", (), False),
    ("constant_filter.cu", (), False),
    ("divergence.cu", (), False),
    ("rotary_struct.cu", ("rotary<float>",), False),
    ("mma_attention.cu", ("mma_attention<__half,4,true>",), False),
    ("tiled_gemm.cu", (), True),
)
_HEAD = ".version 8.4\n.target sm_89\n.address_size 64\n"
_FUNCTION = re.compile(r"^(\.visible \.entry [^{]*?)\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_REGISTERS = re.compile(r"\.reg (\.\w+)\s+(%\w+)<\d+>;")
_REGISTER = re.compile(r"(%[a-z]+)\d+\b")
_LABEL = re.compile(r"\$L_+\w+")
BY_HAND = (
    _HEAD + '.file 1 "a.cu"\n.global .align 4 .b32 table[4] = {1, -2, 0x3, 4};\n.const .f32 one = 0f3F800000;\n'
    ".global .u64 where = generic(table)+8;\n.extern .shared .align 16 .b8 tile[];\n"
    ".visible .entry k(.param .u64 .ptr .global .align 16 a, .param .align 8 .b8 s[24])\n.maxntid 128, 1, 1\n"
    "{\n.reg .b32 %r<4>; .reg .pred %p;\n.loc 1 3 5\nmov.u32 %r0, %tid.x;\n@!%p bra DONE;\nDONE:\nret;\n}\n",
    _HEAD + ".func (.param .b32 out) twice(.param .b32 a)\n{\n.reg .b32 %r<2>;\nld.param.b32 %r0, [a];\n"
    "add.s32 %r1, %r0, %r0;\nst.param.b32 [out], %r1;\nret;\n}\n.visible .entry k()\n{\n.reg .b32 %r<2>;\n{\n"
    ".param .b32 one; .param .b32 back;\nst.param.b32 [one], %r0;\ncall.uni (back), twice, (one);\n"
    "ld.param.b32 %r1, [back];\n}\nret;\n}\n",
    _HEAD + ".visible .entry k()\n{\n.reg .b32 %r<9>; .reg .b64 %rd<2>; .reg .f64 %fd;\n.reg .pred %p;\n"
    "TABLE: .branchtargets A, B;\nbrx.idx %r0, TABLE;\nA:\nld.global.v4.b32 {%r1, %r2, %r3, _}, [%rd0+-16];\n"
    "mov.f64 %fd, 0d3FF0000000000000;\nB:\nshfl.sync.bfly.b32 %r1|%p, %r2, 1, 31, -1;\nret;\n}\n"
    '.section .debug_str { .b8 65, 0 }\n/* the\nend */\n',
    _HEAD + ".visible .entry k()\n{\n.reg .b32 %r<9>; .reg .b64 %rd;\n.shared .align 16 .b8 tile[2048];\n"
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [tile+64];\n"
    "cp.async.cg.shared.global [tile], [%rd], 16, %r0;\ncp.async.commit_group;\nret;\n}\n",
)  # fmt: skip


def corpus(count: int, seed: int = 0) -> list[str]:
    """Return `count` texts, all of them modules."""
    draw = random.Random(seed)
    kernels = [found for ptx in _compiled() for found in _FUNCTION.findall(ptx)]
    texts = list(BY_HAND)
    while len(texts) < count:
        head, body = draw.choice(kernels)
        texts += _cut(head, body, draw)
    return texts[:count]


def _compiled() -> Iterator[str]:
    for file, entries, debug in _SOURCES:
        yield weft.compile_cuda(CUDA_FOLDER / file, entries=entries, debug=debug).ptx


def _cut(head: str, body: str, draw: random.Random) -> list[str]:
    """Return some lines of a kernel as a separate kernel, if they make one."""
    kinds = {prefix: kind for kind, prefix in _REGISTERS.findall(body)}
    lines = [line for line in body.splitlines() if ";" in line and not line.lstrip().startswith(".reg")]
    start = draw.randrange(max(len(lines) - LINES, 1))
    kept = "\n".join(lines[start : start + LINES])
    named = sorted({found[0] for found in re.finditer(_REGISTER, kept) if found[1] in kinds})
    declared = [f"\t.reg {kinds[_prefix(name)]} {name};" for name in named]
    labels = sorted({f"{label}:" for label in _LABEL.findall(kept)})
    text = "\n".join([f"{_HEAD}{head}\n{{", *declared, kept, *labels, "\tret;\n}\n"])
    try:
        parse(text)
    except (ParseError, Unsupported):
        return []
    return [text]


def _prefix(register: str) -> str:
    found = _REGISTER.fullmatch(register)
    assert found is not None
    return found[1]
