"""PTX programs that access memory anywhere: random instructions, address arithmetic, loops and divergence.

One kernel holds several programs; CTA number n runs program n, so that one compilation serves them all.
"""

import random
import re

from weft.ptx import isa
from weft.vm.memory import GLOBAL_BASE, LOCAL_BASE, LOCAL_START, PARAM_BASE, SHARED_BASE, SHARED_START, WINDOW_BYTES

ADDRESSES = 4
"""Per program and lane, from a table."""
_EDGES = (
    0, GLOBAL_BASE, GLOBAL_BASE + 256, GLOBAL_BASE + 512, GLOBAL_BASE + (1 << 16), GLOBAL_BASE + (1 << 26), SHARED_BASE,
    SHARED_BASE + SHARED_START, LOCAL_BASE, LOCAL_BASE + LOCAL_START, PARAM_BASE, SHARED_BASE + WINDOW_BYTES,
    LOCAL_BASE + WINDOW_BYTES, PARAM_BASE + WINDOW_BYTES, SHARED_START, SHARED_START + 2048, LOCAL_START,
    LOCAL_START + 64, 1 << 31, 1 << 32, 1 << 47, (1 << 63) - 1, (1 << 64) - 16, (1 << 32) - 16,
)  # fmt: skip
_SYMBOLS = {".shared": "tile", ".local": "own", ".const": "fixed", ".global": "far", ".param": "table"}
_TILE = "{%t0, %t1, %t2, %t3, %t4, %t5, %t6, %t7}"
_DATA = {8: "%h", 16: "%h", 32: "%r", 64: "%l"}
_VECTORS = {
    (32, 2): "{%t0, %t1}",
    (32, 4): "{%t0, %t1, %t2, %t3}",
    (64, 2): "{%l, %k}",
    (16, 2): "{%h, %g}",
    (16, 4): "{%h, %g, %h, %g}",
    (8, 2): "{%h, %g}",
    (8, 4): "{%h, %g, %h, %g}",
}


def address(draw: random.Random) -> int:
    """Return any address, or one near the edge of an object; mostly aligned, or only M102 would be found."""
    if draw.random() < 0.25:
        value = draw.getrandbits(64)
    else:
        value = draw.choice(_EDGES) + draw.choice((0, 0, draw.randrange(-80, 80), draw.randrange(-(1 << 16), 1 << 16)))
    return (value & draw.choice((-1, -4, -16, -16))) & (1 << 64) - 1


def kernel(seed: int, programs: int) -> str:
    """Return the text; the seed of every program is the number of the kernel and of the program in it."""
    bodies = [
        # An infinite program stops the launch, so it is the last, and not in every kernel.
        _Program(random.Random(f"{seed}/{number}"), f"P{number}", endless=seed % 4 == number - programs + 1).text()
        for number in range(programs)
    ]
    targets = ", ".join(f"P{number}" for number in range(programs))
    loads = "\n  ".join(f"ld.global.b64 %w{at}, [%at + {at * 8 * 64}];" for at in range(ADDRESSES))
    tiles = " ".join(f"mov.b32 %t{at}, {at};" for at in range(8))
    return f""".version 8.4
.target sm_90
.address_size 64
.const .align 16 .b8 fixed[64];
.global .align 16 .b8 far[128];
.global .align 1 .b8 format[8] = {{37, 100, 32, 37, 115, 10}};
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.visible .entry wild(.param .u64 table, .param .u64 out)
{{
  .reg .b16 %h, %g; .reg .b32 %r, %a<{ADDRESSES}>, %s, %t<8>, %me, %cta, %n, %z; .reg .b64 %w<{ADDRESSES}>, %l, %k, %at;
  .reg .f32 %f; .reg .f64 %d; .reg .pred %p, %q, %all;
  .shared .align 16 .b8 tile[2048];
  .local .align 16 .b8 own[64];
  mov.u32 %me, %tid.x; mov.u32 %cta, %ctaid.x;
  mov.b16 %h, 7; mov.b16 %g, 9; mov.b32 %r, 7; mov.b64 %l, 7; mov.b64 %k, 9; mov.f32 %f, 0f3F800000; mov.b32 %s, 16;
  mov.f64 %d, 0d3FF0000000000000; {tiles}
  setp.lt.u32 %p, %me, 13; setp.ne.u32 %all, %me, 77; mov.b32 %n, 0;
  ld.param.b64 %at, [table];
  mad.wide.u32 %at, %cta, {ADDRESSES * 8 * 64}, %at;
  mad.wide.u32 %at, %me, 8, %at;
  {loads}
TARGETS: .branchtargets {targets};
  brx.idx %cta, TARGETS;
{chr(10).join(bodies)}
END:
  ret;
}}
"""


class _Program:
    def __init__(self, draw: random.Random, name: str, *, endless: bool) -> None:
        self.draw, self.name, self.labels, self.endless = draw, name, 0, endless
        self.lines: list[str] = []

    def text(self) -> str:
        for _ in range(self.draw.randint(3, 6)):
            often = (self.access, self.access, self.access, self.arithmetic, self.branch, self.loop)
            self.draw.choice((*often, *often, self.region, self.call))()
        return "\n".join([f"{self.name}:", *(f"  {line}" for line in self.lines), "  bra END;"])

    def label(self) -> str:
        self.labels += 1
        return f"{self.name}_{self.labels}"

    # -- statements --------------------------------------------------------------------------------------------

    def access(self) -> None:
        draw = self.draw
        line = draw.choice((self.move, self.move, self.atomic, self.matrix, self.copy, self.other))()
        if isa.lookup(re.split(r"\s", line, maxsplit=1)[0]) is None:
            return
        self.lines += [f"cvt.u32.u64 %a{at}, %w{at};" for at in sorted(set(re.findall(r"%a(\d)", line)))]
        collective = ".sync" in line
        self.lines.append(line if collective else draw.choice(("", "", "@%p ", "@!%p ")) + line)

    def arithmetic(self) -> None:
        draw, register = self.draw, f"%w{self.draw.randrange(ADDRESSES)}"
        self.lines.append(
            draw.choice(
                (
                    f"add.s64 {register}, {register}, {draw.choice((4, 16, -64, 4096, 1 << 30))};",
                    f"mul.lo.u64 {register}, {register}, {draw.choice((2, 3, -1))};",
                    f"mov.b64 {register}, {_signed(address(draw))};",
                    f"mad.wide.u32 {register}, %me, {draw.choice((4, 16, 1 << 20))}, {register};",
                    f"shr.u64 {register}, {register}, {draw.choice((1, 20, 32))};",
                    f"cvta.{draw.choice(('shared', 'local', 'global', 'const'))}.u64 {register}, {register};",
                    f"cvt.u32.u64 %s, {register};",
                )
            )
        )

    def branch(self) -> None:
        """Some lanes, or all, execute more."""
        over = self.label()
        self.lines.append(f"@{self.draw.choice(('%p', '!%p', '%all'))} bra {over};")
        self.access()
        self.lines.append(f"{over}:")

    def loop(self) -> None:
        """Move an address in a loop, sometimes an infinite one."""
        again, register = self.label(), f"%w{self.draw.randrange(ADDRESSES)}"
        self.lines += ["mov.b32 %n, 0;", f"{again}:"]
        self.access()
        self.lines += [
            f"add.s64 {register}, {register}, {self.draw.choice((4, 16, -16, 256, 65536))};",
            "add.s32 %n, %n, 1;",
            f"setp.lt.u32 %q, %n, {self.rounds()};",
            f"@%q bra {again};",
        ]

    def region(self) -> None:
        """Declare a WEFT_REGION of any size anywhere, and access it."""
        at = self.draw.randrange(ADDRESSES)
        self.lines += [
            f"cvt.u32.u64 %a{at}, %w{at};",
            f'.pragma "weft.{self.draw.choice(("region", "reuse"))} part";',
            f"mad.lo.u32 %z, {self.draw.choice(('%s', '%s', '%r'))}, 0, %a{at};",
            f"st.shared.b32 [%z+{self.draw.choice((0, 12, 64, 4096))}], %r;",
        ]

    def call(self) -> None:
        """Call printf with a format and arguments at any address."""
        text = self.draw.choice(("%w0", "%l"))
        self.lines += [
            "mov.b64 %l, format; cvta.global.u64 %l, %l;",
            "{ .param .b64 p0; .param .b64 p1; .param .b32 r0;",
            f"st.param.b64 [p0], {text}; st.param.b64 [p1], %w{self.draw.randrange(ADDRESSES)};",
            "call.uni (r0), vprintf, (p0, p1); ld.param.b32 %r, [r0]; }",
        ]

    def rounds(self) -> int:
        return self.draw.choice((3, 12, 0xFFFFFFFF)) if self.endless else self.draw.choice((3, 12))

    # -- accesses ----------------------------------------------------------------------------------------------

    def place(self, space: str) -> str:
        """Return an address operand: a register, a symbol or a number, with an offset."""
        draw = self.draw
        kind = draw.random()
        offset = draw.choice((0, 0, 4, 16, -16, 64, 1 << 12, 1 << 20, -(1 << 31), (1 << 31) - 16))
        if kind < 0.15 and space in _SYMBOLS:
            # A parameter beyond the last is refused before the launch.
            return f"[{_SYMBOLS[space]}+{0 if space == '.param' else offset}]"
        if kind < 0.2 and space not in ("", ".param"):
            return f"[{address(draw) & 0xFFFFFFFF if space in ('.shared', '.local') else address(draw)}]"
        narrow = space in (".shared", ".local")
        return f"[%{'a' if narrow else 'w'}{draw.randrange(ADDRESSES)}+{offset}]"

    def move(self) -> str:
        draw = self.draw
        space = draw.choice(("", ".global", ".shared", ".local", ".const", ".param"))
        width = draw.choice((8, 16, 32, 64))
        count = draw.choice((1, 1, 2, 4))
        if width * count > 128:
            count = 1
        if space == ".param":
            width, count = 64, 1
        data = _VECTORS[width, count] if count > 1 else _DATA[width]
        kind = f"{space}{f'.v{count}' if count > 1 else ''}.b{width}"
        if space in (".const", ".param") or draw.random() < 0.5:
            order = draw.choice(("", "", ".volatile", ".relaxed.gpu", ".acquire.sys"))
            if space in (".const", ".param", ".local"):
                order = ""
            return f"ld{order}{kind} {data}, {self.place(space)};"
        return f"st{draw.choice(('', '', '.volatile')) if space != '.local' else ''}{kind} {self.place(space)}, {data};"

    def atomic(self) -> str:
        draw = self.draw
        space = draw.choice(("", ".global", ".shared"))
        wide = draw.random() < 0.4
        width, data = (64, "%l") if wide else (32, "%r")
        plain = [f"{op}.u{width}" for op in ("add", "min", "max")] + [f"{op}.b{width}" for op in ("and", "or", "xor")]
        plain += ["inc.u32", "dec.u32"] if not wide else []
        op = draw.choice(plain)
        return draw.choice(
            (
                f"atom{space}.{op} {data}, {self.place(space)}, {data};",
                f"red{space}.{op} {self.place(space)}, {data};",
                f"atom{space}.exch.b{width} {data}, {self.place(space)}, {data};",
                f"atom{space}.cas.b{width} {data}, {self.place(space)}, {data}, {data};",
                f"atom{space}.cas.b16 %h, {self.place(space)}, %h, %g;",
                f"red{space}.add.f32 {self.place(space)}, %f;",
                f"atom{space}.add.f64 %d, {self.place(space)}, %d;",
                f"red{space}.add.noftz.f16x2 {self.place(space)}, %r;",
                f"atom{space}.add.noftz.bf16 %h, {self.place(space)}, %h;",
            )
        )

    def matrix(self) -> str:
        draw = self.draw
        space = draw.choice(("", ".global", ".shared"))
        layout = draw.choice(("row", "col"))
        shape = draw.choice(("m16n16k16", "m32n8k16", "m8n32k16"))
        stride = draw.choice(("", ", %s", ", 16", ", 4294967280", ", 65536"))
        trans = draw.choice(("", ".trans"))
        return draw.choice(
            (
                f"ldmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 {{%t0}}, {self.place('.shared')};",
                f"ldmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 {{%t0, %t1}}, {self.place('.shared')};",
                f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%t0, %t1, %t2, %t3}}, {self.place('.shared')};",
                f"wmma.load.{draw.choice('ab')}.sync.aligned.{layout}.{shape}{space}.f16 {_TILE}, "
                f"{self.place(space)}{stride};",
                f"wmma.load.c.sync.aligned.{layout}.{shape}{space}.f32 {_TILE}, {self.place(space)}{stride};",
                f"wmma.store.d.sync.aligned.{layout}.{shape}{space}.f32 {self.place(space)}, {_TILE}{stride};",
                f"stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {self.place('.shared')}, {{%t0, %t1, %t2, %t3}};",
            )
        )

    def copy(self) -> str:
        draw = self.draw
        size = draw.choice((4, 8, 16))
        there, here = self.place(".shared"), self.place(".global")
        return draw.choice(
            (
                f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global {there}, {here}, {size};",
                f"cp.async.ca.shared.global {there}, {here}, {size}, %s;",
                "cp.async.commit_group;",
                f"cp.async.wait_group {draw.randrange(3)};",
                "cp.async.wait_all;",
            )
        )

    def other(self) -> str:
        shared = self.place(".shared")
        return self.draw.choice(
            (
                f"prefetch.global.L2 {self.place('.global')};",
                f"ld.global.nc.v4.b32 {{%t0, %t1, %t2, %t3}}, {self.place('.global')};",
                f"mbarrier.init.shared.b64 {shared}, 32;",
                f"mbarrier.arrive.shared.b64 %l, {shared};",
                f"mbarrier.test_wait.shared.b64 %q, {shared}, %l;",
                f"mbarrier.inval.shared.b64 {shared};",
                f"cp.async.mbarrier.arrive.shared.b64 {shared};",
                f"isspacep.shared %q, %w{self.draw.randrange(ADDRESSES)};",
            )
        )


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
