"""Random programs with divergent control flow, as PTX text, from a seed.

Everything a program computes is independent of the order in which diverged lanes run: the member mask of every
collective is kept in a register (a ballot at each branch), shuffles read only lanes that take part, barriers and
shared memory are at the top level, atomics are additions whose results are read after a barrier.
"""

import random

VALUES = 4
DEPTH = 3
REGISTERS = f"""  .reg .b32 %v<{VALUES}>, %m<{2 * DEPTH + 4}>, %c<{DEPTH + 2}>, %t<8>, %in<4>;
  .reg .b64 %rd<8>; .reg .pred %p<{2 * DEPTH + 6}>, %yes;"""
_ARITHMETIC = ("add.u32", "sub.u32", "mul.lo.u32", "xor.b32", "and.b32", "or.b32", "min.u32", "max.s32")
_COMPARE = ("eq.u32", "ne.u32", "lt.u32", "ge.u32", "lt.s32", "gt.s32")


class _Program:
    def __init__(self, rng: random.Random, name: str) -> None:
        self.rng = rng
        self.name = name
        self.lines: list[str] = []
        self.labels = 0

    def emit(self, *lines: str) -> None:
        self.lines += lines

    def label(self, hint: str) -> str:
        self.labels += 1
        return f"{self.name}_{hint}{self.labels}"

    def value(self) -> str:
        return f"%v{self.rng.randrange(VALUES)}"

    def condition(self, predicate: str) -> None:
        """Write a predicate that is true in some lanes and false in others."""
        mask = self.rng.choice((1, 3, 5, 7, 15, 31))
        self.emit(
            f"and.b32 %t0, {self.value()}, {mask};",
            f"setp.{self.rng.choice(_COMPARE)} {predicate}, %t0, {self.rng.randint(0, mask)};",
        )

    # Level n: %m{n} is the mask of the lanes that are here, %p{n} and %c{n} are free for its statements.

    def block(self, level: int, *, depth: int) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.statement(level, depth=depth)

    def statement(self, level: int, *, depth: int) -> None:
        roll = self.rng.random()
        if depth and roll < 0.22:
            self.branch(level, depth)
        elif depth and roll < 0.38:
            self.loop(level, depth)
        elif roll < 0.48:
            self.shuffle(level)
        elif roll < 0.56:
            self.vote(level)
        elif roll < 0.60:
            self.emit(f"red.shared.add.u32 [count], {self.value()};")
        elif roll < 0.63:
            self.leave()
        elif roll < 0.68:
            self.guarded()
        else:
            self.arithmetic()

    def arithmetic(self) -> None:
        other = self.value() if self.rng.random() < 0.6 else str(self.rng.randint(-50, 1000))
        self.emit(f"{self.rng.choice(_ARITHMETIC)} {self.value()}, {self.value()}, {other};")

    def guarded(self) -> None:
        self.condition("%p0")
        self.emit(
            f"@{self.rng.choice(('', '!'))}%p0 {self.rng.choice(_ARITHMETIC)} {self.value()}, "
            f"{self.value()}, {self.value()};"
        )

    def leave(self) -> None:
        """A few lanes end here: at once, or at the end of the program."""
        self.emit(f"and.b32 %t0, {self.value()}, 63;", f"setp.eq.u32 %p0, %t0, {self.rng.randint(0, 63)};")
        self.emit("@%p0 exit;" if self.rng.random() < 0.5 else "@%p0 bra OUT;")

    def shuffle(self, level: int) -> None:
        """Set d to the value of another lane if it takes part, else keep the old one."""
        target = self.value()
        self.emit(
            f"vote.sync.ballot.b32 %t1, %yes, %m{level};",
            f"and.b32 %t2, {self.value()}, 31;"
            if self.rng.random() < 0.5
            else f"mov.b32 %t2, {self.rng.randint(0, 31)};",
            f"shfl.sync.idx.b32 %t3, {self.value()}, %t2, 31, %m{level};",
            "shr.u32 %t4, %t1, %t2;",
            "and.b32 %t4, %t4, 1;",
            "setp.ne.u32 %p0, %t4, 0;",
            f"selp.b32 {target}, %t3, {target}, %p0;",
        )

    def vote(self, level: int) -> None:
        self.condition("%p0")
        kind = self.rng.choice(("ballot", "any", "all", "redux"))
        if kind == "ballot":
            self.emit(f"vote.sync.ballot.b32 {self.value()}, %p0, %m{level};")
        elif kind == "redux":
            self.emit(f"redux.sync.add.u32 {self.value()}, {self.value()}, %m{level};")
        else:
            target = self.value()
            self.emit(f"vote.sync.{kind}.pred %p0, %p0, %m{level};", f"selp.b32 {target}, {target}, 17, %p0;")

    def branch(self, level: int, depth: int) -> None:
        other, join = self.label("ELSE"), self.label("JOIN")
        inner, predicate = level + 1, f"%p{level + 1}"
        self.condition(predicate)
        self.emit(f"vote.sync.ballot.b32 %m{inner}, {predicate}, %m{level};")
        if self.rng.random() < 0.4:
            self.emit(f"@!{predicate} bra {join};")
            self.block(inner, depth=depth - 1)
        else:
            # Lanes of the other side need the complement; every lane holds its own copy of the mask.
            self.emit(
                "not.b32 %t5, %m%d;".replace("%d", str(inner)),
                f"and.b32 %t5, %t5, %m{level};",
                f"selp.b32 %m{inner}, %m{inner}, %t5, {predicate};",
                f"@!{predicate} bra {other};",
            )
            self.block(inner, depth=depth - 1)
            self.emit(f"bra {join};", f"{other}:")
            self.block(inner, depth=depth - 1)
        self.emit(f"{join}:")
        if self.rng.random() < 0.3:
            self.emit(f"bar.warp.sync %m{level};")

    def loop(self, level: int, depth: int) -> None:
        head, after, end = self.label("HEAD"), self.label("NEXT"), self.label("END")
        inner, counter, predicate = level + 1, f"%c{depth}", f"%p{level + 1}"
        self.emit(
            f"and.b32 {counter}, {self.value()}, {self.rng.choice((1, 3, 7))};",
            f"mov.b32 %m{inner}, %m{level};",
            f"{head}:",
            f"setp.ne.u32 {predicate}, {counter}, 0;",
            f"vote.sync.ballot.b32 %m{inner}, {predicate}, %m{inner};",
            f"@!{predicate} bra {end};",
            f"sub.u32 {counter}, {counter}, 1;",
        )
        self.block(inner, depth=depth - 1)
        if self.rng.random() < 0.4:  # break
            self.condition(predicate)
            self.emit(
                f"vote.sync.ballot.b32 %t6, {predicate}, %m{inner};",
                "not.b32 %t6, %t6;",
                f"and.b32 %m{inner}, %m{inner}, %t6;",
                f"@{predicate} bra {end};",
            )
        if self.rng.random() < 0.4:  # continue
            self.condition(predicate)
            self.emit(f"@{predicate} bra {after};")
            self.arithmetic()
            self.arithmetic()
        self.emit(f"{after}:", f"bra {head};", f"{end}:")

    def exchange(self) -> None:
        """Exchange values through shared memory, between two barriers."""
        other = self.rng.choice((1, 2, 31, 33, 63))
        self.emit(
            f"st.shared.b32 [%in2], {self.value()};",
            "bar.sync 0;",
            f"xor.b32 %t0, %in1, {other};",
            "and.b32 %t0, %t0, 63;",
            "shl.b32 %t0, %t0, 2;",
            "mov.u32 %t1, box;",
            "add.u32 %t0, %t0, %t1;",
            f"ld.shared.b32 {self.value()}, [%t0];",
            "bar.sync 0;",
        )

    def write(self) -> list[str]:
        self.emit("mov.b32 %m0, 0xffffffff;", "setp.eq.u32 %yes, %in1, %in1;")
        for number in range(VALUES):
            factor, shift = self.rng.randrange(1, 1 << 16) | 1, self.rng.randint(0, 12)
            self.emit(f"mul.lo.u32 %v{number}, %in0, {factor};", f"shr.u32 %v{number}, %v{number}, {shift};")
        for _ in range(self.rng.randint(1, 2)):
            self.branch(0, self.rng.choice((1, 2, DEPTH)))
            self.block(0, depth=self.rng.choice((1, 2, DEPTH)))
            if self.rng.random() < 0.5:
                self.exchange()
        self.emit("bar.sync 0;", "ld.shared.b32 %t0, [count];", "add.u32 %v0, %v0, %t0;", "bra OUT;")
        return self.lines


def kernel(seed: int, programs: int, entry: str = "k") -> str:
    """Return one kernel of `programs` programs; CTA number i runs program i. Outputs are VALUES words per thread."""
    rng = random.Random(seed)
    lines = [
        "mov.u32 %in1, %tid.x;",
        "mov.u32 %in3, %ctaid.x;",
        "mov.u32 %t0, %ntid.x;",
        "mad.lo.u32 %in0, %t0, %in3, %in1;",
        "mov.u32 %t1, box;",
        "shl.b32 %t2, %in1, 2;",
        "add.u32 %in2, %t1, %t2;",
        f"mul.wide.u32 %rd0, %in0, {4 * VALUES};",
        "ld.param.u64 %rd1, [out];",
        "add.u64 %rd1, %rd1, %rd0;",
        "setp.eq.u32 %yes, %in1, 0;",
        "@%yes st.shared.b32 [count], 0;",
        "bar.sync 0;",
        "add.u32 %in0, %in0, 77;",
    ]
    for number in range(programs):
        lines += [f"setp.eq.u32 %yes, %in3, {number};", f"@%yes bra P{number};"]
    lines.append("ret;")
    for number in range(programs):
        lines += [f"P{number}:", *_Program(rng, f"P{number}").write()]
    lines += ["OUT:", *(f"st.global.b32 [%rd1+{4 * i}], %v{i};" for i in range(VALUES)), "ret;"]
    body = "\n  ".join(lines)
    return (
        ".version 8.4\n.target sm_89\n.address_size 64\n.shared .align 16 .b8 box[256];\n.shared .align 4 .u32 count;\n"
        f".visible .entry {entry}(.param .u64 out)\n{{\n{REGISTERS}\n  {body}\n}}\n"
    )
