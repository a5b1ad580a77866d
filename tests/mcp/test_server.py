"""`weft mcp` as a coding agent uses it: a subprocess, called by the protocol's official client."""

import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from anyio import move_on_after
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult

from weft.core.finding_codes import FINDING_CODES
from weft.evolve.lever_proposer import LeverProposer
from weft.evolve.levers.space import family, start_of
from weft.evolve.search import Search, start_search
from weft.evolve.settings import Budget, Settings
from weft.judge.select import Choice
from weft.kernels.ladder import RUNGS
from weft.store.store import open_store
from weft.supervise.records import ScoreOn

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
RIGHT = RUNGS["scalar"].path.read_text()
FIXED, BROKEN = "u[i] = u[i] * rescale + p", "u[i] = u[i] + p"
WRONG = RIGHT.replace(FIXED, BROKEN)
LINE = next(number for number, line in enumerate(WRONG.splitlines(), 1) if BROKEN in line)
ONE: dict[str, Any] = {"shapes": ["small"], "masks": ["none"], "regimes": ["unit_normal"], "dtypes": ["f16"]}
SCALE = """// weft: sizes   N=1000
// weft: in      x : f32[N] = normal
// weft: out     y : f32[N]
// weft: launch  scale(x, y, N) grid(cdiv(N, 256)) block(256)

extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""
ENDLESS = """
// weft: sizes B=1, HQ=1, HKV=1, SQ=16, SKV=16, D=32
// weft: in q : f16[B,HQ,SQ,D] = normal
// weft: in k : f16[B,HKV,SKV,D] = normal
// weft: in v : f16[B,HKV,SKV,D] = normal
// weft: out o : f16[B,HQ,SQ,D]
// weft: launch idle(o, B, HQ, HKV, SQ, SKV, D) grid(1) block(1)
extern "C" __global__ void idle(volatile unsigned short* o, int, int, int, int, int, int) { while (true) o[0] = 1; }
"""


class Client:
    """An official session, called from synchronous tests."""

    def __init__(self, portal: BlockingPortal, session: ClientSession) -> None:
        self._portal, self.session = portal, session
        self.progress: list[str] = []

    def raw(self, tool: str, **arguments: Any) -> CallToolResult:
        self.progress.clear()

        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            self.progress.append(message or "")

        async def call() -> CallToolResult:
            return await self.session.call_tool(tool, arguments, progress_callback=on_progress)

        return self._portal.call(call)

    def answer(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a call that succeeds; its text is the same as its structured content."""
        result = self.raw(tool, **arguments)
        assert not result.is_error, result.content
        assert result.structured_content == json.loads(text(result))
        return result.structured_content

    def error(self, tool: str, **arguments: Any) -> str:
        result = self.raw(tool, **arguments)
        assert result.is_error
        return text(result)

    def left_after(self, seconds: float, tool: str, **arguments: Any) -> bool:
        """Return whether the call was still running when the client cancelled it."""

        async def call() -> bool:
            with move_on_after(seconds) as scope:
                await self.session.call_tool(tool, arguments)
            return scope.cancelled_caught

        return self._portal.call(call)

    def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in self._portal.call(self.session.list_tools).tools}


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert block.type == "text"
    return block.text


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[ClientSession]:
    passed_on = {name: os.environ[name] for name in ("PATH", "HOME", "WEFT_CACHE") if name in os.environ}
    server = StdioServerParameters(command=sys.executable, args=["-m", "weft", "mcp"], env=passed_on, cwd=folder)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("agent")
    (made / "wrong.cu").write_text(WRONG)
    (made / "right.cu").write_text(RIGHT)
    return made


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(connected(folder)) as session:
        yield Client(portal, session)


def test_every_tool_has_a_schema_of_what_it_takes_and_gives(client: Client) -> None:
    tools = client.tools()
    assert set(tools) == {"check", "diagnose", "profile", "show", "explain", "evolve_status"}
    for tool in tools.values():
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
        assert tool.description and tool.annotations.read_only_hint
        assert "context" not in tool.input_schema["properties"]
    assert "verdict" in tools["check"].output_schema["required"]
    assert next(iter(tools["diagnose"].output_schema["properties"])) == "cure", "the cure comes first"


def test_from_red_to_green_by_path(client: Client, folder: Path) -> None:
    assert WRONG != RIGHT
    red = client.answer("check", path="wrong.cu", **ONE, seeds=1)
    assert (red["verdict"], red["status"]) == ("failed", "INCORRECT_NUMERICAL")
    assert "diagnose" in red["next"] and red["failure"]["workload"]["text"] == "small f16 none unit_normal seed 0"
    assert client.progress == [red["failure"]["workload"]["text"]]
    found = client.answer("diagnose", path="wrong.cu", **ONE)
    assert next(iter(found)) == "cure" and "exp(m_old - m_new)" in found["cure"]
    assert found["where"] == f"wrong.cu:{LINE}" and BROKEN in found["source_line"] and found["stage"] == "u"
    assert not found["healthy"] and "expected_row" not in found
    assert len(client.progress) > 1, "it sent progress messages"
    fixed = folder / "fixed.cu"
    fixed.write_text((folder / "wrong.cu").read_text().replace(BROKEN, FIXED))
    green = client.answer("check", path=str(fixed), **found["verify"])
    assert (green["verdict"], green["judged"], green["planned"]) == ("passed", 1, 1)
    assert "isolated" not in green and "failure" not in green


def test_text_is_judged_under_a_supervisor(client: Client) -> None:
    red = client.answer("check", text=WRONG, **ONE, seeds=1)
    assert (red["verdict"], red["isolated"]) == ("failed", True)
    green = client.answer("check", text=RIGHT, **ONE, seeds=1)
    assert (green["verdict"], green["isolated"]) == ("passed", True)


def test_text_is_diagnosed_with_detail(client: Client) -> None:
    found = client.answer("diagnose", text=WRONG, **ONE, detail=True)
    assert found["where"] == f"kernel.cu:{LINE}" and BROKEN in found["source_line"]
    assert len(found["expected_row"]) == len(found["actual_row"]) and found["expected_row"] != found["actual_row"]


def test_an_infinite_loop_fails_only_one_call(client: Client) -> None:
    stuck = client.answer("check", text=ENDLESS, **ONE, seeds=1, max_steps=10_000)
    assert (stuck["verdict"], stuck["status"]) == ("failed", "TIMEOUT")
    (finding,) = stuck["failure"]["findings"]
    assert (finding["code"], finding["file"], finding["line"]) == ("S302", "kernel.cu", 8)
    assert stuck["cure"].startswith("make the loop end")
    assert client.answer("explain", code="S302")["code"] == "S302", "the server continues"


def test_text_that_reads_files_of_the_host_is_refused(client: Client) -> None:
    reading = '#include "/etc/hostname"\n' + SCALE
    assert client.answer("check", text=reading)["verdict"] != "passed"
    assert "no files of the host" in client.error("show", text=reading)


def test_profile_names_limiter_and_lines_and_says_that_nothing_is_measured(client: Client) -> None:
    small = client.answer("profile", text=SCALE, detail=True)
    (launch,) = small["launches"]
    assert (launch["entry"], small["gpu"], small["sizes"]) == ("scale", "l4", {"N": 1000})
    assert launch["advice"] == ["4 blocks leave 54 of 58 SMs idle: split the work further"]  # 58: NVIDIA's data sheet
    assert "kernel.cu:8" in [line["where"] for line in launch["lines"]]
    assert 0 < small["lb_warm_cycles"] <= small["est_warm_cycles"][0] <= small["est_warm_cycles"][1]
    # 1000 floats are 32 warps, the last of them in part: a load and a store each.
    counters = launch["counters"]
    assert [counters[f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum"] for op in ("ld", "st")] == [32, 32]
    assert "not measured" in client.tools()["profile"].output_schema["properties"]["note"]["default"]


def test_a_kernel_with_findings_is_not_profiled_and_the_findings_are_reported(client: Client) -> None:
    said = client.error("profile", text=SCALE.replace("i < n", "i <= n"))
    assert "M101" in said and "kernel.cu:8" in said and "cure" in said


def test_show_is_a_page_at_a_time(client: Client) -> None:
    assert "0 spill_store_bytes" in client.answer("show", path="right.cu")["text"], "with the macros of its lines"
    first = client.answer("show", path="right.cu", form="ptx")
    assert first["lines_in_all"] > 60 == len(first["text"].split("\n")) and first["next"].startswith("first_line=61")
    second = client.answer("show", path="right.cu", form="ptx", first_line=61)
    assert second["text"].split("\n")[0] != first["text"].split("\n")[0] and second["first_line"] == 61
    assert "FADD" in client.answer("show", text=SCALE, form="sass")["text"], "2x is x + x"


def test_explain(client: Client) -> None:
    short = client.answer("explain", code="r101")
    assert short["cure"] == FINDING_CODES["R101"].cure and "page" not in short
    assert client.answer("explain", code="R101", detail=True)["page"].startswith("# R101")
    assert [row["code"] for row in client.answer("explain")["codes"]] == list(FINDING_CODES)


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("check", {"path": "/nowhere/k.cu"}, ["no file /nowhere/k.cu", "absolute path", "`text`", "wmma"]),
        ("check", {}, ["`path`", "`text`"]),
        ("check", {"path": "right.cu", "gpu": "abacus"}, ["unknown GPU 'abacus'", "l4"]),
        ("diagnose", {"path": "right.cu", "shapes": ["tiniest"]}, ["tiniest"]),
        ("profile", {"text": SCALE, "shape": "mission"}, ["`sizes`"]),
        ("show", {"text": SCALE.replace("2.0f", "two")}, ["kernel.cu:8", '"two" is undefined']),
        ("show", {"text": "import triton", "language": "triton"}, ["by its path"]),
        ("explain", {"code": "Z9"}, ["no finding has the code Z9", "M101"]),
        ("evolve_status", {"store": "/nowhere/weft.db"}, ["no store /nowhere/weft.db", "weft evolve"]),
    ],
)
def test_an_error_says_what_to_do_next(client: Client, tool: str, arguments: dict[str, Any], says: list[str]) -> None:
    said = client.error(tool, **arguments)
    assert [part for part in says if part not in said] == [], said


def test_a_kernel_without_launch_lines_gets_a_draft_of_them(client: Client) -> None:
    bare = SCALE[SCALE.index("extern") :]
    answer = client.answer("check", text=bare)
    assert answer["verdict"] != "passed" and "// weft: launch    scale(x, y, n)" in answer["message"]
    assert "// weft: launch    scale(x, y, n)" in client.error("profile", text=bare)


def test_evolve_status_of_a_store(client: Client, tmp_path: Path) -> None:
    only = Choice(shapes=("split_64",), regimes=("unit_normal",), masks=("none",), seeds=(0,))
    settings = Settings(
        seed=1, batch=1, score_on=ScoreOn(shape="split_64"), choice=only, final=only, budget=Budget(evaluations=1)
    )
    path = tmp_path / "weft.db"
    with open_store(path) as store:
        empty = client.answer("evolve_status", store=str(path))
        assert empty["searches"] == [] and "weft evolve" in empty["next"]
        run = start_search(store, settings)
        ended = Search(store, run.id, settings, LeverProposer(family("sdpa"), start_of("wmma")), workers=1).go()
    listed = client.answer("evolve_status", store=str(path))
    assert [(each["run"], each["evaluations"]) for each in listed["searches"]] == [(run.id, 1)]
    assert "elites" not in listed["searches"][0]
    (whole,) = client.answer("evolve_status", store=str(path), run=run.id)["searches"]
    start = ended.history.start
    assert (whole["state"], whole["start_cycles"]) == ("done", start.score)
    assert start.id in [each["id"] for each in whole["elites"]] and whole["best_cycles"] <= start.score


def test_a_call_that_is_cancelled_ends_and_the_next_is_served(client: Client) -> None:
    assert client.left_after(3.0, "check", path="right.cu")
    start = time.monotonic()
    assert client.answer("explain", code="R101")["code"] == "R101"
    assert time.monotonic() - start < 20, "calls are served one at a time, and 118 workloads take longer than that"


def test_the_loop_of_the_page(client: Client, folder: Path) -> None:
    """docs/agents.md: everything it shows of an answer is in the answer."""
    (folder / "mine.cu").write_text(WRONG)
    calls = re.findall(r"^(\w+) (\{[^\n]*\})\n→ (\{.*?^\})$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert [tool for tool, _, _ in calls] == ["check", "diagnose", "check", "profile"]
    for number, (tool, arguments, shown) in enumerate(calls):
        if number == 2:  # the page says: fix the line
            (folder / "mine.cu").write_text(RIGHT)
        differs = differences(json.loads(shown), client.answer(tool, **json.loads(arguments)))
        assert differs == [], f"{tool} {arguments}"


def differences(shown: Any, said: Any, at: str = "answer") -> list[str]:
    """Return what is on the page but not in the answer; `…` at the end of a list means more items."""
    if isinstance(shown, dict) and isinstance(said, dict):
        lacking = [f"{at}.{name}: not in the answer" for name in shown if name not in said]
        both = [name for name in shown if name in said]
        return lacking + [row for name in both for row in differences(shown[name], said[name], f"{at}.{name}")]
    if isinstance(shown, list) and isinstance(said, list):
        rest = shown[-1:] == ["…"]
        shown, said = (shown[:-1], said[: len(shown) - 1]) if rest else (shown, said)
        if len(shown) == len(said):
            return [
                row for i, (a, b) in enumerate(zip(shown, said, strict=True)) for row in differences(a, b, f"{at}[{i}]")
            ]
    return [] if shown == said else [f"{at}: shown {shown!r}, said {said!r}"]
