# ruff: noqa: E501
"""The mistakes of `async_races.py`: a right kernel, edits of its text, and the code and the line of the finding."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Edits = tuple[tuple[str, str], ...]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Right:
    """A right kernel: one of the files, or one of them with edits."""

    kernel: str
    expected: Callable[[Mapping[str, Array]], Array]
    """The arrays of the kernel → what y should be."""
    name: str = ""
    edits: Edits = ()

    @property
    def title(self) -> str:
        return f"{self.kernel}: {self.name or 'as it is'}"

    def text(self, folder: Path) -> str:
        return edited((folder / f"{self.kernel}.cu").read_text(), self.edits)


@dataclass(frozen=True)
class Mistake:
    """Edits that make a kernel wrong."""

    kernel: str
    name: str
    edits: Edits
    codes: tuple[str, ...]
    """Any of them is right: which of two accesses is too early may depend on the order of the run."""
    at: str
    """Text that only the line of the finding has."""

    @property
    def title(self) -> str:
        return f"{self.kernel}: {self.name}"

    def text(self, folder: Path) -> str:
        return edited((folder / f"{self.kernel}.cu").read_text(), self.edits)


def edited(text: str, edits: Edits) -> str:
    for old, new in edits:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    return text


def _sums(arrays: Mapping[str, Array]) -> Array:
    return arrays["x"].reshape(5, 4, 64).sum(axis=(0, 1))


def _products(arrays: Mapping[str, Array]) -> Array:
    """Sum of A B^T over the stages; lane 4 g + u of warp w has rows 16 w + g, + 8 and columns 2 u, 2 u + 1."""
    stages = arrays["x"].astype(np.float64).reshape(4, 1152)
    a = stages[:, :1024].reshape(4, 2, 64, 8).transpose(0, 2, 1, 3).reshape(4, 64, 16)
    b = stages[:, 1024:].reshape(4, 2, 8, 8).transpose(0, 2, 1, 3).reshape(4, 8, 16)
    d = (a @ b.transpose(0, 2, 1)).sum(axis=0)
    return d.reshape(4, 2, 8, 4, 2).transpose(0, 2, 3, 1, 4).reshape(-1)


_COUNT = lambda arrays: np.arange(1280)  # noqa: E731
_NEXT = lambda arrays: arrays["x"] + 1  # noqa: E731
_FLAT = lambda arrays: arrays["x"].reshape(-1)  # noqa: E731
_BOTH = lambda arrays: np.tile(_sums(arrays), 2)  # noqa: E731
_ROUND = lambda arrays: np.roll(arrays["x"].reshape(4, 2, 32), 3, axis=0)[:, ::-1].reshape(-1) + 3  # noqa: E731
_LENT = lambda arrays: arrays["x"].reshape(5, 2, 32).sum(axis=0)[::-1].reshape(-1)  # noqa: E731
_SENT = lambda arrays: arrays["x"].reshape(3, 2, 32)[:, ::-1].reshape(-1)  # noqa: E731
_NUMBERS = lambda arrays: np.arange(256)  # noqa: E731

_RELAXED = "cluster_arrive_relaxed();\n    cluster_wait();"
_OF_BOTH = "load_for_both(stage[s] + half, x + 256 * k + half, 512, &full[s]);"
_FULL, _EMPTY = "wait(&full[s], round & 1);", "if (round > 0) wait(&empty[s], round - 1 & 1);"
_READ = "for (int i = 0; i < 4; i++) sum += stage[s][t + 64 * i];"
_FENCED = "        fence_async();\n        __syncthreads();\n"
_LAST = "    if (t == 0) wait_read<0>();\n}"
_MULTIPLY = "multiply(d, descriptor(stage[s], 1024), descriptor(stage[s] + 1024, 128));"
_WAITED = "        multiply_wait<0>(d);\n"
_FILL = "for (int i = t; i < 1152; i += 128) tile[i] = x[1152 * k + i];"
_SECOND = "load(stage[s] + 128, x + 256 * k + 128, 512, &full[s]);"

RIGHT = (
    Right("ring", _sums),
    Right("ring", _sums, "one thread of each warp releases", (
        ("        arrive(&empty[s]);", "        __syncwarp();\n        if (t % 32 == 0) arrive(&empty[s]);"),
        ("init(&empty[s], 64)", "init(&empty[s], 2)"))),
    Right("ring", _sums, "bytes are expected after the loads", (
        ("                expect(&full[s], 1024);\n", ""), (_SECOND, f"{_SECOND}\n                expect(&full[s], 1024);"))),
    Right("ring", _sums, "an mbarrier for each load", (
        ("full[2], empty[2]", "full[2], more[2], empty[2]"),
        ("init(&full[s], 1);", "init(&full[s], 1);\n            init(&more[s], 1);"),
        ("expect(&full[s], 1024);", "expect(&full[s], 512);\n                expect(&more[s], 512);"),
        (_SECOND, _SECOND.replace("full", "more")),
        (_FULL, f"{_FULL}\n        wait(&more[s], round & 1);"))),
    Right("drain", _COUNT),
    Right("drain", _COUNT, "the thread that stores fences", (
        ("        fence_async();\n", ""), ("            store(", "            fence_async();\n            store("))),
    Right("drain", _COUNT, "one stage, waits for all", (("const int s = k % 2", "const int s = 0"), ("<1>", "<0>"))),
    Right("there_and_back", _NEXT),
    Right("product", _products),
    Right("product", _products, "one thread releases for the warpgroup", (
        ("        arrive(&empty[s]);", "        if (t == 32) arrive(&empty[s]);"),
        ("init(&empty[s], 128)", "init(&empty[s], 1)"))),
    Right("written", _products),
    Right("written", _products, "fence of every thread after the barrier", (
        (_FENCED, "        __syncthreads();\n        fence_async();\n"),)),
    Right("copied", _products),
    Right("maps", _FLAT),
    Right("maps", _FLAT, "the warp of the thread that changes the map hands it over", (
        ("+ 256 * k);\n        __syncthreads();", "+ 256 * k);"),)),
    Right("maps", _FLAT, "the thread that loads acquires", (("        acquire(", "        if (t == 0) acquire("),)),
    Right("maps", _FLAT, "threads store and release the map", (
        ("if (t < 32) hand_over(scratch, made);", "if (t < 32) reinterpret_cast<unsigned*>(scratch)[t] = made[t];\n        release_maps();"),)),
    Right("registers", _NUMBERS),
    Right("multicast", _BOTH),
    Right("multicast", _BOTH, "relaxed barrier after the initialisation", (("cluster_sync();  // first", f"__syncthreads();\n    {_RELAXED}"),)),
    Right("multicast", _BOTH, "the thread that loads waits for the last releases", (
        ("    cluster_sync();  // last\n", ""), (_OF_BOTH, f"{_OF_BOTH}\n        }}\n        if (t == 64)\n        for (int k = 3; k < 5; k++) {{\n            wait_cluster(&empty[k % 2], k / 2 & 1);"))),
    Right("multicast", _BOTH, "relaxed barrier at the end", (("cluster_sync();  // last", _RELAXED),)),
    Right("passed", _ROUND),
    Right("passed", _ROUND, "arrives early, waits late", (("cluster_sync();  // after the read", "cluster_arrive();\n        y[64 * rank() + t] = v;\n        cluster_wait();"),)),
    Right("lent", _LENT),
    Right("lent", _LENT, "one thread of each warp releases", (
        ("            arrive_at(&empty[s], 0);", "            __syncwarp();\n            if (t % 32 == 0) arrive_at(&empty[s], 0);"), ("init(&empty[s], 64)", "init(&empty[s], 2)"))),
    Right("sent", _SENT),
)  # fmt: skip

MISTAKES = (
    Mistake("ring", "no wait", ((_FULL, ""),), ("R104",), "sum +="),
    Mistake("ring", "phase not flipped", ((_FULL, "wait(&full[s], 0);"),), ("R104", "R109"), "sum +="),
    Mistake("ring", "phase inverted", ((_FULL, "wait(&full[s], round & 1 ^ 1);"),), ("R104",), "sum +="),
    Mistake("ring", "mbarrier of the other stage", ((_FULL, "wait(&full[s ^ 1], round & 1);"),), ("R104",), "sum +="),
    Mistake("ring", "too few bytes", (("], 1024)", "], 512)"),), ("S309", "S301"), "wait(&full[s], round & 1)"),
    Mistake("ring", "too many bytes", (("], 1024)", "], 2048)"),), ("S301",), "wait(&full[s], round & 1)"),
    Mistake("ring", "no bytes", (("expect(&full[s], 1024)", "arrive(&full[s])"),), ("S309", "R104"), "sum +="),
    Mistake("ring", "two loads, one counted", ((_SECOND, _SECOND.replace("512", "1024")),), ("S309", "M101"), "load(stage[s] + 128"),
    Mistake("ring", "second load signals the other mbarrier", ((_SECOND, _SECOND.replace("full[s]", "full[s ^ 1]")),),
        ("R104", "S309", "S301"), "sum +="),
    Mistake("ring", "too few arrivals at full", (("init(&full[s], 1)", "init(&full[s], 2)"),), ("S301",), "wait(&full[s], round & 1)"),
    Mistake("ring", "too few arrivals at empty", (("init(&empty[s], 64)", "init(&empty[s], 65)"),), ("S301",), "wait(&empty[s], round - 1 & 1)"),
    Mistake("ring", "too many arrivals at empty", (("init(&empty[s], 64)", "init(&empty[s], 32)"),), ("R109", "S301"), "wait(&empty[s], round - 1 & 1)"),
    Mistake("ring", "arrives twice", (("expect(&full[s], 1024);", "expect(&full[s], 1024);\n                arrive(&full[s]);"),),
        ("S308",), "arrive(&full[s]);"),
    Mistake("ring", "stage not released", (("        arrive(&empty[s]);\n", ""),), ("S301",), "wait(&empty[s], round - 1 & 1)"),
    Mistake("ring", "stage not awaited", ((_EMPTY, ""),), ("R104", "R109"), "load(stage[s], x"),
    Mistake("ring", "phase of empty wrong", ((_EMPTY, "if (round > 0) wait(&empty[s], round & 1);"),), ("R104", "R109"), "load(stage[s], x"),
    Mistake("ring", "released before the read", ((f"        {_READ}\n", ""), ("        arrive(&empty[s]);\n", f"        arrive(&empty[s]);\n        {_READ}\n")),
        ("R109",), "load(stage[s], x"),
    Mistake("ring", "read again after the release", (("        arrive(&empty[s]);\n", "        arrive(&empty[s]);\n        sum += *(volatile int*)&stage[s][t] & 0;\n"),),
        ("R109",), "load(stage[s], x"),
    Mistake("ring", "one warp releases for two", (("        arrive(&empty[s]);", "        if (t < 32) arrive(&empty[s]);"), ("init(&empty[s], 64)", "init(&empty[s], 32)")),
        ("R109",), "load(stage[s], x"),
    Mistake("ring", "one thread releases for its warp", (("        arrive(&empty[s]);", "        if (t % 32 == 0) arrive(&empty[s]);"), ("init(&empty[s], 64)", "init(&empty[s], 2)")),
        ("R109",), "load(stage[s], x"),
    Mistake("ring", "loads overlap", ((_SECOND, _SECOND.replace("+ 128, x", "+ 64, x")),), ("R104",), "load(stage[s] + 64"),
    Mistake("ring", "last load not awaited", (("#pragma unroll 1\n    for (int k = 0; k < 5; k++) {\n        const", "#pragma unroll 1\n    for (int k = 0; k < 4; k++) {\n        const"),),
        ("S309",), "load(stage[s], x"),
    Mistake("ring", "no barrier after the initialisation", (("    __syncthreads();\n", ""),), ("R101",), "init(&full[s], 1)"),
    Mistake("ring", "no fence after the reads", (("        fence_async();\n", ""),), ("R107",), "load(stage[s], x"),
    Mistake("drain", "no fence", (("        fence_async();\n", ""),), ("R107",), "store(y"),
    Mistake("drain", "fence of one thread", (("        fence_async();", "        if (t == 0) fence_async();"),), ("R107",), "store(y"),
    Mistake("drain", "fence of one warp", (("        fence_async();", "        if (t < 32) fence_async();"),), ("R107",), "store(y"),
    Mistake("drain", "fence before the writes", (("        fence_async();\n", ""), ("        for (int i", "        fence_async();\n        for (int i")), ("R107",), "store(y"),
    Mistake("drain", "another thread fences after the barrier", ((_FENCED, "        __syncthreads();\n        if (t == 32) fence_async();\n"),), ("R107",), "store(y"),
    Mistake("drain", "no barrier before the store", ((_FENCED, "        fence_async();\n"),), ("R102", "R105"), "store(y"),
    Mistake("drain", "no wait", (("        if (t == 0) wait_read<1>();\n", ""),), ("R105",), "stage[s][t + 64 * i] ="),
    Mistake("drain", "waits for too few", (("<1>", "<2>"),), ("R105",), "stage[s][t + 64 * i] ="),
    Mistake("drain", "another thread waits", (("        if (t == 0) wait_read<1>", "        if (t == 1) wait_read<1>"),), ("R105",), "stage[s][t + 64 * i] ="),
    Mistake("drain", "no barrier after the wait", (("wait_read<1>();\n        __syncthreads();", "wait_read<1>();"),), ("R105",), "stage[s][t + 64 * i] ="),
    Mistake("drain", "no commit", (("            commit();\n", ""),), ("R105",), "stage[s][t + 64 * i] ="),
    Mistake("drain", "exit without a wait", ((_LAST, "}"),), ("S313",), "store(y"),
    Mistake("drain", "another thread waits at the end", ((_LAST, _LAST.replace("t == 0", "t == 1")),), ("S313",), "store(y"),
    Mistake("drain", "waits for all but one at the end", ((_LAST, _LAST.replace("<0>", "<1>")),), ("S313",), "store(y"),
    Mistake("there_and_back", "no fence", (("        fence_async();\n", ""),), ("R107",), "store(y"),
    Mistake("there_and_back", "no wait for the load", (("        wait(&bar, k & 1);\n", ""),), ("R104",), "tile[t + 64 * i] += 1"),
    Mistake("there_and_back", "only the thread that loads waits", (("        wait(&bar, k & 1);", "        if (t == 0) wait(&bar, k & 1);"),), ("R104",), "tile[t + 64 * i] += 1"),
    Mistake("there_and_back", "no wait for the store", (("            wait_read<0>();\n", ""),), ("R109",), "load(tile"),
    Mistake("product", "no wait for the operands", ((_FULL, ""),), ("R104",), "multiply(d"),
    Mistake("product", "phase not flipped", ((_FULL, "wait(&full[s], 0);"),), ("S301",), "wait(&empty[s], round - 1 & 1)"),
    Mistake("product", "one warp waits", ((_FULL, "if (t < 32) wait(&full[s], round & 1);"),), ("R104",), "multiply(d"),
    Mistake("product", "no wait for the product", ((_WAITED, ""),), ("R109",), "load(stage[s]"),
    Mistake("product", "waits for too few", ((_WAITED, _WAITED.replace("<0>", "<1>")),), ("R109",), "load(stage[s]"),
    Mistake("product", "released before the wait", ((f"{_WAITED}        arrive(&empty[s]);\n", f"        arrive(&empty[s]);\n{_WAITED}"),), ("R109",), "load(stage[s]"),
    Mistake("product", "no commit", (("        multiply_commit();\n", ""),), ("R109",), "load(stage[s]"),
    Mistake("product", "operands of the other stage", ((_MULTIPLY, _MULTIPLY.replace("stage[s] + 1024", "stage[s ^ 1] + 1024")),), ("R104",), "multiply(d"),
    Mistake("product", "too few bytes", (("2304);", "2048);"),), ("S309", "S301"), "wait(&full[s], round & 1)"),
    Mistake("product", "accumulator read early", ((_WAITED, f"        y[4 * t] = d[0];\n{_WAITED}"),), ("S310",), "y[4 * t] = d[0]"),
    Mistake("product", "no fence before the product", (("        multiply_fence();\n", ""),), ("S310",), "multiply(d"),
    Mistake("product", "one warp does not multiply", (("        multiply_fence();\n", "        if (t < 96) {\n        multiply_fence();\n"), ("        multiply_commit();\n", "        multiply_commit();\n        }\n")),
        ("S311",), "multiply(d"),
    Mistake("written", "no fence", (("        fence_async();\n", ""),), ("R107",), "multiply(d"),
    Mistake("written", "fence before the writes", (("        fence_async();\n", ""), (f"        {_FILL}", f"        fence_async();\n        {_FILL}")), ("R107",), "multiply(d"),
    Mistake("written", "fence of one warp after the barrier", ((_FENCED, "        __syncthreads();\n        if (t < 32) fence_async();\n"),), ("R107",), "multiply(d"),
    Mistake("written", "no barrier before the product", ((_FENCED, "        fence_async();\n"),), ("R102", "R105"), "multiply(d"),
    Mistake("written", "no wait", ((_WAITED, ""),), ("R105",), "tile[i] = x"),
    Mistake("written", "waits for too few", ((_WAITED, _WAITED.replace("<0>", "<1>")),), ("R105",), "tile[i] = x"),
    Mistake("copied", "no fence", (("        fence_async();\n", ""),), ("R107",), "multiply(d"),
    Mistake("copied", "fence before the wait", (("        fence_async();\n", ""), ("        asm volatile(\"cp.async.wait", "        fence_async();\n        asm volatile(\"cp.async.wait")), ("R107",), "multiply(d"),
    Mistake("copied", "no wait for the copies", (("        asm volatile(\"cp.async.wait_all;\" ::: \"memory\");\n", ""),), ("R104",), "multiply(d"),
    Mistake("copied", "no wait for the product", ((_WAITED, ""),), ("R105",), "cp.async.cg"),
    Mistake("maps", "no acquire", (("        acquire(scratch);\n", ""),), ("R108",), "load_box(tile"),
    Mistake("maps", "no release", (("if (t < 32) hand_over(scratch, made);", "if (t < 32) reinterpret_cast<unsigned*>(scratch)[t] = made[t];"),), ("R108",), "load_box(tile"),
    Mistake("maps", "acquired before the release", (("        acquire(scratch);\n", ""), ("        if (t < 32) hand_over", "        acquire(scratch);\n        if (t < 32) hand_over")), ("R108",), "load_box(tile"),
    Mistake("maps", "another thread acquires", (("        acquire(", "        if (t == 32) acquire("),), ("R108",), "load_box(tile"),
    Mistake("maps", "map of the other buffer acquired", (("acquire(scratch)", "acquire(&given)"),), ("R108",), "load_box(tile"),
    Mistake("registers", "pool exhausted", (("u32 216", "u32 224"),), ("S301",), "u32 224"),
    Mistake("registers", "too few are given back", (("u32 40", "u32 48"),), ("S301",), "u32 216"),
    Mistake("registers", "wrong direction", (("u32 40", "u32 136"),), ("S314",), "u32 136"),
    Mistake("multicast", "released for the own CTA only", (("            arrive_at(&empty[s], rank() ^ 1);\n", ""), ("init(&empty[s], 128)", "init(&empty[s], 64)")), ("R109",), "load_for_both(stage"),
    Mistake("multicast", "released to the other CTA before the reads", (("            arrive_at(&empty[s], rank() ^ 1);\n", ""), ("wait(&full[s], round & 1);", "wait(&full[s], round & 1);\n            arrive_at(&empty[s], rank() ^ 1);")), ("R109",), "load_for_both(stage"),
    Mistake("multicast", "stage not awaited", (("            if (round > 0) wait_cluster(&empty[s], round - 1 & 1);\n", ""),), ("R104", "R109"), "load_for_both(stage"),
    Mistake("multicast", "no fence after the reads", (("            fence_async();\n", ""),), ("R107",), "load_for_both(stage"),
    Mistake("multicast", "no wait", (("            wait(&full[s], round & 1);\n", ""),), ("R104",), "sum +="),
    Mistake("multicast", "bytes of one half", (("], 1024)", "], 512)"),), ("R104",), "sum +="),
    Mistake("multicast", "barrier of the CTA after the initialisation", (("cluster_sync();  // first", "__syncthreads();"),), ("S316",), "load_for_both(stage"),
    Mistake("multicast", "exit without a barrier", (("    cluster_sync();  // last\n", ""),), ("S312",), "arrive_at(&empty[s], rank() ^ 1);"),
    Mistake("multicast", "exit after an arrival", (("cluster_sync();  // last", "cluster_arrive();"),), ("S312",), "arrive_at(&empty[s], rank() ^ 1);"),
    Mistake("passed", "no barrier before the first access", (("    cluster_sync();  // first\n", ""),), ("S316",), "put(&mine"),
    Mistake("passed", "no barrier before the read", (("        cluster_sync();  // before the read\n", ""),), ("R102",), "v = mine[t] + 1"),
    Mistake("passed", "barrier of the CTA before the read", (("cluster_sync();  // before the read", "__syncthreads();"),), ("R102",), "v = mine[t] + 1"),
    Mistake("passed", "relaxed barrier before the read", (("cluster_sync();  // before the read", _RELAXED),), ("R102",), "v = mine[t] + 1"),
    Mistake("passed", "no barrier after the read", (("        cluster_sync();  // after the read\n", ""),), ("R103",), "put(&mine"),
    Mistake("passed", "exit before the other CTA has read", (("v = mine[t] + 1;", "v = get(&mine[t ^ 32], rank() + 1 & 3);"), ("cluster_sync();  // after the read", "if (k < 2) cluster_sync();")), ("S312",), "v = get(&mine"),
    Mistake("lent", "released before the read", (("            arrive_at(&empty[s], 0);\n", ""), ("            sum += get", "            arrive_at(&empty[s], 0);\n            sum += get")), ("R103", "R102"), "stage[s][t] = x"),
    Mistake("lent", "stage not awaited", (("            if (round > 0) wait_cluster(&empty[s], round - 1 & 1);\n", ""),), ("R103", "R102"), "stage[s][t] = x"),
    Mistake("lent", "one thread releases for its warp", (("            arrive_at(&empty[s], 0);", "            if (t % 32 == 0) arrive_at(&empty[s], 0);"), ("init(&empty[s], 64)", "init(&empty[s], 2)")), ("R103", "R102"), "stage[s][t] = x"),
    Mistake("lent", "no wait", (("            wait_cluster(&full[s], round & 1);\n", ""),), ("R102",), "sum += get"),
    Mistake("lent", "acquires for its CTA only", (("            wait_cluster(&full[s], round & 1);", "            wait_cta(&full[s], round & 1);"),), ("R102",), "sum += get"),
    Mistake("lent", "exit without a barrier", (("    cluster_sync();  // last\n", ""),), ("S312",), "arrive_at(&empty[s], 0);"),
    Mistake("sent", "no wait", (("            wait_cluster(&full, k & 1);\n", ""),), ("R102", "R101", "R103"), "y[64 * k + t] = box[t]"),
    Mistake("sent", "box not awaited", (("            if (k > 0) wait_cluster(&empty, k - 1 & 1);\n", ""),), ("S301", "R103"), "wait_cluster(&full, k & 1)"),
    Mistake("sent", "too many bytes", (("expect(&full, 256)", "expect(&full, 512)"),), ("S301",), "wait_cluster(&full, k & 1)"),
    Mistake("sent", "no barrier after the initialisation", (("    cluster_sync();  // first\n", ""),), ("S316",), "send(&box"),
)  # fmt: skip
