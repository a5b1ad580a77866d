"""Random programs that wait for each other in every legal way, as PTX text, from a seed; and the same with one fault.

A program is a sequence of steps that all threads execute; each step is deadlock-free if diverged lanes, warps and CTAs
all make progress. A step adds its number to the thread's sum if its wait succeeded, so that the result of a correct run
is known without running it: each thread ends with the sum of all step numbers.
"""

import random

FULL = "0xffffffff"
WORDS = 64
"""Flags in global memory of one launch, and in shared memory of one CTA."""
REGISTERS = """  .reg .b32 %tid, %lane, %warp, %cta, %ctas, %threads, %sum, %v, %w, %m, %which; .reg .b64 %rd<4>;
  .reg .pred %p, %q;"""
STEPS = (
    "barrier",
    "syncwarp",
    "split",
    "halves",
    "nested",
    "grid",
    "signal",
    "chain",
    "warps",
    "counted",
    "vote",
    "lock",
    "thread_grid",
)
FAULTS = {"skips": "S301", "alone": "S301", "never": "S302"}
"""The faults of a program, and the code that must be found."""


class Program:
    """The text of one program; CTAs of 64 threads, at least two of them."""

    def __init__(self, rng: random.Random, name: str) -> None:
        self.rng, self.name = rng, name
        self.lines: list[str] = []
        self.labels = self.flags = self.expected = 0

    def emit(self, *lines: str) -> None:
        self.lines += lines

    def label(self) -> str:
        self.labels += 1
        return f"{self.name}_{self.labels}"

    def flag(self) -> int:
        """Return the byte offset of a word that no other step uses."""
        self.flags += 1
        assert self.flags < WORDS
        return 4 * self.flags

    def spin(self, place: str, until: str) -> None:
        """Wait until the word at `place` is at least `until`."""
        again = self.label()
        space = "shared" if "flags" in place else "global"
        read = self.rng.choice((f"ld.volatile.{space}.u32 %v, [{place}];", f"atom.{space}.add.u32 %v, [{place}], 0;"))
        self.emit(f"{again}:", read, f"setp.lt.u32 %q, %v, {until};", f"@%q bra {again};")

    def only(self, register: str, value: int) -> str:
        """Let threads whose register has another value branch to the label that is returned."""
        after = self.label()
        self.emit(f"setp.ne.u32 %p, {register}, {value};", f"@%p bra {after};")
        return after

    # -- steps, each between two points that all threads pass ------------------------------------------------------

    def step(self, kind: str) -> None:
        getattr(self, f"_{kind}")()
        self.expected += 1
        self.emit("add.u32 %sum, %sum, 1;")

    def _barrier(self) -> None:
        self.emit("bar.sync 0;")

    def _syncwarp(self) -> None:
        self.emit(f"bar.warp.sync {FULL};")

    def _vote(self) -> None:
        self.emit(
            "setp.lt.u32 %p, %lane, 99;",
            f"vote.sync.ballot.b32 %v, %p, {FULL};",
            "shr.u32 %v, %v, 31;",
            "sub.u32 %v, %v, 1;",
            "add.u32 %sum, %sum, %v;",
        )

    def _split(self) -> None:
        """The lanes of a warp meet at two instructions."""
        other, join = self.label(), self.label()
        bit = self.rng.choice((1, 2, 8, 16))
        self.emit(f"and.b32 %v, %lane, {bit};", "setp.ne.u32 %p, %v, 0;", f"@%p bra {other};")
        self.emit(f"bar.warp.sync {FULL};", f"bra {join};", f"{other}:", f"bar.warp.sync {FULL};", f"{join}:")

    def _halves(self) -> None:
        """Half warps meet at one instruction, separately; the lower one waits for the upper one's signal."""
        flag, after, upper = self.flag(), self.label(), self.label()
        self.emit("setp.ge.u32 %p, %lane, 16;", "selp.b32 %m, 0xffff0000, 0x0000ffff, %p;", f"@%p bra {upper};")
        self.spin(f"flags+{flag}", "1")
        self.emit(f"{upper}:", "bar.warp.sync %m;", f"@!%p bra {after};")
        self.emit(f"st.volatile.shared.u32 [flags+{flag}], 1;", f"{after}:")

    def _nested(self) -> None:
        """Lanes wait in a branch for an action of lanes outside the branch."""
        flag = self.flag()
        waiter, teller = self.rng.sample(range(32), 2)
        after = self.only("%lane", waiter)
        self.spin(f"flags+{flag}", "1")
        self.emit(f"{after}:", f"setp.ne.u32 %p, %tid, {teller + self.rng.choice((0, 32))};")
        # No lane passes the barrier of the warp before a lane in front of the barrier has set the flag for the waiter.
        self.emit(f"@!%p st.volatile.shared.u32 [flags+{flag}], 1;", f"bar.warp.sync {FULL};")

    def _grid(self) -> None:
        """One thread of each CTA increments a counter and waits for all."""
        counter = self.flag()
        if self.rng.random() < 0.7:
            self.emit("bar.sync 0;")
        after = self.only("%tid", self.rng.choice((0, 0, 5, 63)))
        self.emit("membar.gl;", f"red.global.add.u32 [%rd0+{counter}], 1;")
        self.spin(f"%rd0+{counter}", "%ctas")
        self.emit(f"{after}:")
        if self.rng.random() < 0.7:
            self.emit("bar.sync 0;")

    def _thread_grid(self) -> None:
        """Every thread increments a counter and waits for all."""
        counter = self.flag()
        self.emit(f"red.global.add.u32 [%rd0+{counter}], 1;")
        self.spin(f"%rd0+{counter}", "%threads")

    def _signal(self) -> None:
        """A thread of one CTA waits for one of another."""
        flag = self.flag()
        sender, receiver = self.rng.sample((0, 1), 2)
        after = self.only("%cta", sender)
        inner = self.only("%tid", self.rng.randrange(64))
        self.emit(f"atom.global.exch.b32 %v, [%rd0+{flag}], 1;", f"{inner}:", f"{after}:")
        after = self.only("%cta", receiver)
        inner = self.only("%tid", self.rng.randrange(64))
        self.spin(f"%rd0+{flag}", "1")
        self.emit(f"{inner}:", f"{after}:")

    def _chain(self) -> None:
        """Lanes of one warp pass on a token, in any order: each lane without the token spins at a different place."""
        token = self.flag()
        ways = self.rng.choice((2, 3, 4))
        order = self.rng.sample(range(ways), ways)
        self.emit(f"rem.u32 %which, %lane, {ways};", "setp.ne.u32 %p, %warp, 0;")
        end = self.label()
        self.emit(f"@%p bra {end};")
        places = [self.label() for _ in range(ways)]
        for way in range(ways):
            self.emit(f"setp.eq.u32 %p, %which, {way};", f"@%p bra {places[way]};")
        share = [len(range(way, 32, ways)) for way in range(ways)]
        for way in range(ways):
            before = sum(share[other] for other in order[: order.index(way)])
            self.emit(f"{places[way]}:")
            self.spin(f"flags+{token}", str(before))
            self.emit(f"red.shared.add.u32 [flags+{token}], 1;", f"bra {end};")
        self.emit(f"{end}:")

    def _warps(self) -> None:
        """A lane of one warp waits for a lane of the other."""
        flag = self.flag()
        sender = self.rng.randrange(64)
        after = self.only("%tid", sender)
        self.emit(f"st.volatile.shared.u32 [flags+{flag}], 1;", f"{after}:")
        after = self.only("%tid", (sender + 32) % 64)
        self.spin(f"flags+{flag}", "1")
        self.emit(f"{after}:")

    def _counted(self) -> None:
        """One warp arrives, the other waits."""
        number, other, join = self.rng.randrange(1, 16), self.label(), self.label()
        self.emit("setp.ne.u32 %p, %warp, 0;", f"@%p bra {other};", f"bar.arrive {number}, 64;", f"bra {join};")
        self.emit(f"{other}:", f"bar.sync {number}, 64;", f"{join}:", "bar.sync 0;")

    def _lock(self) -> None:
        """Every thread takes a lock, increments the protected value, and releases the lock."""
        lock, count = self.flag(), self.flag()
        again = self.label()
        self.emit(
            f"{again}:",
            f"atom.shared.cas.b32 %v, [flags+{lock}], 0, 1;",
            "setp.ne.u32 %p, %v, 0;",
            f"@%p bra {again};",
            f"ld.volatile.shared.u32 %v, [flags+{count}];",
            "add.u32 %v, %v, 1;",
            f"st.volatile.shared.u32 [flags+{count}], %v;",
            f"atom.shared.exch.b32 %v, [flags+{lock}], 0;",
        )
        self.spin(f"flags+{count}", "64")

    # -- faults ----------------------------------------------------------------------------------------------------

    def fault(self, kind: str) -> None:
        """Add a step that no thread can leave."""
        if kind == "skips":  # one lane waits for its CTA, the others of its warp for it
            after, end = self.only("%tid", self.rng.randrange(64)), self.label()
            self.emit("bar.sync 0;", f"bra {end};", f"{after}:", f"bar.warp.sync {FULL};", "bar.sync 0;", f"{end}:")
        elif kind == "alone":
            after = self.only("%warp", self.rng.randrange(2))
            self.emit(f"bar.sync {self.rng.randrange(1, 16)}, 64;", f"{after}:", "bar.sync 0;")
        else:
            after = self.only("%tid", self.rng.randrange(64))
            self.spin(self.rng.choice(("flags", "%rd0")), "1")
            self.emit(f"{after}:", "bar.sync 0;")


def kernel(seed: int, programs: int, *, fault: str | None = None) -> tuple[str, list[int]]:
    """Return one kernel of several programs, chosen by a parameter, and the final sum of each."""
    rng = random.Random(seed)
    made = []
    for number in range(programs):
        program = Program(rng, f"P{number}")
        steps = [rng.choice(STEPS) for _ in range(rng.randint(3, 6))]
        wrong = rng.randrange(len(steps)) if fault else None
        for at, step in enumerate(steps):
            program.step(step)
            if at == wrong and fault:
                program.fault(fault)
        made.append(program)
    lines = [
        "mov.u32 %tid, %tid.x;",
        "mov.u32 %cta, %ctaid.x;",
        "mov.u32 %ctas, %nctaid.x;",
        "and.b32 %lane, %tid, 31;",
        "shr.u32 %warp, %tid, 5;",
        "mul.lo.u32 %threads, %ctas, 64;",
        "mov.u32 %sum, 0;",
        "ld.param.u64 %rd0, [words];",
        "ld.param.u64 %rd1, [out];",
        "ld.param.u32 %which, [program];",
        "mad.lo.u32 %v, %cta, 64, %tid;",
        "mul.wide.u32 %rd2, %v, 4;",
        "add.u64 %rd1, %rd1, %rd2;",
        "mul.lo.u32 %v, %tid, 4;",
        "mov.u32 %w, flags;",
        "add.u32 %w, %w, %v;",
        "st.shared.u32 [%w], 0;",
        "bar.sync 0;",
    ]
    for number in range(programs):
        lines += [f"setp.eq.u32 %p, %which, {number};", f"@%p bra P{number};"]
    lines.append("ret;")
    for number, program in enumerate(made):
        lines += [f"P{number}:", *program.lines, "st.global.u32 [%rd1], %sum;", "ret;"]
    body = "\n  ".join(lines)
    head = ".version 8.4\n.target sm_89\n.address_size 64\n"
    params = ".param .u64 words, .param .u64 out, .param .u32 program"
    flags = f"  .shared .align 4 .b8 flags[{4 * WORDS}];"
    text = f"{head}.visible .entry k({params})\n{{\n{REGISTERS}\n{flags}\n  {body}\n}}\n"
    return text, [program.expected for program in made]
