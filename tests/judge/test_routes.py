"""The same kernel gets the same status, message and findings by every route to a verdict.

Every test run has a kernel of each status, one of each language, and some that are judged on more than one workload;
`scripts/test -m sweep` runs the others.
"""

import json
import re
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio.from_thread import start_blocking_portal

from tests.judge.candidates import Kernel, kernels
from tests.mcp.test_server import Client, connected
from weft.attention.shapes import SHAPES
from weft.cli.main import main
from weft.core.status import Status
from weft.evolve.crew import Crew, enqueue
from weft.evolve.history import FINAL
from weft.evolve.settings import Settings
from weft.fleet.fleets import ThreadFleet
from weft.fleet.requests import ASK, request_record
from weft.fleet.terms import Terms
from weft.fleet.worker import Worker
from weft.judge.select import Choice
from weft.store.records import EvaluationRow
from weft.store.store import Store, open_store
from weft.supervise.key import request_key
from weft.supervise.records import CandidateSource, Evaluation, Limits, Request, ScoreOn
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

SHAPE = "small"
CHOICE = Choice((SHAPE,), ("unit_normal",), ("none",), ("f16",), seeds=(0,))
OPTIONS = ["--shapes", SHAPE, "--regimes", "unit_normal", "--masks", "none", "--dtypes", "f16", "--seeds", "1"]
ASKED = {"shapes": [SHAPE], "regimes": ["unit_normal"], "masks": ["none"], "dtypes": ["f16"], "seeds": 1}
FILES = {"cuda": "kernel.cu", "ptx": "kernel.ptx", "triton": "kernel.py"}
KERNELS = kernels()
BEYOND_A_WORKLOAD = {
    "-G build unsupported",
    "-G build reads what nothing wrote",
    "answers with what it kept",
    "fails in another order",
}
IN_EVERY_RUN = BEYOND_A_WORKLOAD | {
    kernel.name
    for first in (
        {each.status: each for each in reversed(KERNELS)},
        {each.language: each for each in reversed(KERNELS)},
    )
    for kernel in first.values()
}


@dataclass(frozen=True)
class Said:
    """The verdict of one route on a kernel."""

    status: str
    message: str
    codes: tuple[str, ...] | None = None
    """Codes of the findings; None where the route does not list them."""


def said(status: str, message: str, findings: list[dict[str, Any]] | None = None) -> Said:
    codes = None if findings is None else tuple(dict.fromkeys(str(finding["code"]) for finding in findings))
    # A folder's kernel is compiled from a file of another name; the rest of a message must be the same.
    return Said(str(status), re.sub(r"[\w./-]*\b(?:kernel|forward)\w*\.(cu|ptx|py)\b", r"kernel.\1", message), codes)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("routes")
    with chdir(folder):
        yield folder


@pytest.fixture(scope="module")
def agent(desk: Path) -> Iterator[Client]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(connected(desk)) as session:
        yield Client(portal, session)


@pytest.fixture(scope="module")
def store(desk: Path) -> Iterator[Store]:
    with open_store(desk / "weft.db") as opened:
        yield opened


@pytest.fixture(scope="module")
def asked(request: pytest.FixtureRequest) -> list[Kernel]:
    """The kernels that this run judges."""
    here = [item for item in request.session.items if item.nodeid.startswith(request.node.nodeid)]
    return [kernel for kernel in KERNELS if any(f"[{kernel.name}]" in item.nodeid for item in here)]


@pytest.fixture(scope="module")
def worked(store: Store, asked: list[Kernel]) -> dict[str, Said]:
    """Judge by a worker of a fleet: all sources that it may judge are queued at once and judged by one worker."""
    run = store.start_run("evolve", task="sdpa", chip="l4", settings=Settings().record())
    rows = {}
    for kernel in asked:
        source = CandidateSource(kernel.text, kernel.language, kernel.launch)
        request = Request(source, choice=CHOICE, score=None)
        row = store.add_candidate(
            run.id, digest=source.digest, source=kernel.text, language=kernel.language, launch=kernel.launch
        )
        asked = {"for": "test", ASK: request_record(request, Limits())}
        rows[kernel.name] = store.enqueue(run.id, row.id, request_key(request), request=asked).id
    Worker(store, "one", Terms(once=True)).work()
    return {name: of_evaluation(store.evaluation(number)) for name, number in rows.items()}


@pytest.fixture(scope="module")
def searched(store: Store, asked: list[Kernel]) -> dict[str, Said]:
    """Judge by the crew of a search, as for candidates that may win."""
    settings = Settings(score_on=ScoreOn(shape=SHAPE), choice=CHOICE, final=CHOICE)
    run = store.start_run("evolve", task="sdpa", chip="l4", settings=settings.record())
    rows = {}
    for kernel in asked:
        source = CandidateSource(kernel.text, kernel.language, kernel.launch)
        row = store.add_candidate(
            run.id, digest=source.digest, source=kernel.text, language=kernel.language, launch=kernel.launch
        )
        rows[kernel.name] = enqueue(store, row, settings, FINAL).id
    with Crew(store, settings, run.id, ThreadFleet(store, 2)) as crew:
        crew.work(lambda row: None)
    return {name: of_evaluation(store.evaluation(number)) for name, number in rows.items()}


def of_evaluation(row: EvaluationRow) -> Said:
    assert row.result is not None
    found = Evaluation.from_record(row.result)
    findings = [{"code": finding.code} for finding in found.failure.findings] if found.failure is not None else []
    return said(found.status, re.sub(r"(^|; )no score: .*", "", found.message), findings)


def of_agent(answer: dict[str, Any]) -> Said:
    findings = answer["failure"]["findings"] if "failure" in answer else []
    return said(answer["status"], answer.get("message", ""), findings)


def check_text(path: str, capsys: pytest.CaptureFixture[str]) -> Said:
    code = main(["check", path, *OPTIONS])
    shown = capsys.readouterr().out
    failed = re.search(rf"^{re.escape(path)} · [^·]*?(?: \(-G build\))? · (\w+): (.*)$", shown, re.MULTILINE)
    if failed is not None:
        status, message = failed[1], failed[2]
    else:
        note = re.search(rf"(its debug build .*)$|(?<=^{re.escape(path)}: )(\w\d+ warning: .*)$", shown, re.MULTILINE)
        status, message = "PASSED", note[0] if note else ""
    assert code == {"PASSED": 0, "UNSUPPORTED": 3, "REJECTED": 3}.get(status, 1)
    return said(status, message)


def check_json(path: str, capsys: pytest.CaptureFixture[str]) -> Said:
    main(["check", path, *OPTIONS, "--json"])
    found = json.loads(capsys.readouterr().out)["targets"][path]
    return said(found["status"], found["message"], findings_of(found))


def findings_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the message of the verdict that decided."""
    decided = [each for each in found["verdicts"] if each["status"] == found["status"] != "PASSED"]
    return list(decided[0]["findings"]) if decided else []


def report(path: str, capsys: pytest.CaptureFixture[str]) -> Said:
    main(["report", path, *OPTIONS, "--profile-shape", SHAPE, "-o", "page.html", "--json"])
    found = json.loads(capsys.readouterr().out)
    return said(found["status"], found["message"])


FUNC = '''\
import numpy as np
import torch


def forward_fn(q, k, v):
    """Attention in float64, rounded once."""
    wide = [x.to(torch.float64) for x in (q, k, v)]
    return torch.nn.functional.scaled_dot_product_attention(*wide, enable_gqa=True).to(torch.float16)


def get_inputs():
    held = np.load("inputs.npz")
    return [torch.from_numpy(held[name]) for name in ("q", "k", "v")]
'''
CONFIG = {f"{many}_{kind}_configs": [{}] for many in ("single", "multi") for kind in ("input", "init", "shared")}


def check_folder(kernel: Kernel, capsys: pytest.CaptureFixture[str]) -> Said:
    """Judge the kernel as forward.cu of a robust-kbench task with the same inputs."""
    folder = Path("task")
    folder.mkdir(exist_ok=True)
    problem = TASKS["sdpa"].draw(Workload(SHAPES[SHAPE], "f16", "none", "unit_normal", 0))
    np.savez("inputs.npz", **{name: problem.arrays[name] for name in ("q", "k", "v")})
    (folder / "func_forward.py").write_text(FUNC)
    (folder / "config_forward.json").write_text(json.dumps(CONFIG))
    (folder / "forward.cu").write_text(kernel.text)
    main(["check", str(folder), "--json"])
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    findings = case["verdict"]["findings"] if case["verdict"] is not None else []
    return said(case["status"], case["message"], findings)


def test_there_are_enough_kernels() -> None:
    assert len(KERNELS) >= 30 and len({kernel.name for kernel in KERNELS}) == len(KERNELS)
    assert len({kernel.status for kernel in KERNELS}) >= 11
    assert {kernel.status for kernel in KERNELS if kernel.name in IN_EVERY_RUN} == {kernel.status for kernel in KERNELS}
    assert {kernel.language for kernel in KERNELS if kernel.name in IN_EVERY_RUN} == set(FILES)
    assert len(IN_EVERY_RUN) >= 15


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(each, marks=[pytest.mark.sweep] * (each.name not in IN_EVERY_RUN), id=each.name) for each in KERNELS],
)
def test_every_route_gives_the_same_verdict(
    kernel: Kernel,
    desk: Path,
    agent: Client,
    worked: dict[str, Said],
    searched: dict[str, Said],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = FILES[kernel.language]
    (desk / path).write_text(kernel.text)
    (desk / "kernel.launch").write_text(kernel.launch)
    here = check_json(path, capsys)
    assert here.status == kernel.status, here.message
    assert kernel.says in here.message
    if kernel.codes:
        assert here.codes == kernel.codes
    by_file: dict[str, Said] = {
        "check": check_text(path, capsys),
        "agent's path": of_agent(agent.answer("check", path=path, **ASKED)),
        "report": report(path, capsys),
    }
    by_text = {"worker": worked[kernel.name], "search": searched[kernel.name]}
    if kernel.language == "triton":
        assert {found.status for found in by_text.values()} == {Status.REJECTED}
        assert {found.message for found in by_text.values()} == {TRITON_REFUSED}
        by_text = {}
    else:
        given = {"text": kernel.text, "language": kernel.language, "launch": kernel.launch}
        by_text["agent's text"] = of_agent(agent.answer("check", **given, **ASKED))
    for route, found in {**by_file, **by_text}.items():
        assert alike(found, here), (route, found, here)
    if kernel.language == "cuda" and kernel.folder:
        found = check_folder(kernel, capsys)
        # Another system's task has its own tolerance, so its own gate reports wrong numbers.
        numbers = kernel.status is Status.INCORRECT_NUMERICAL
        assert (found.status, found.codes) == (here.status, here.codes)
        assert numbers or unnumbered(found.message) == unnumbered(here.message)


TRITON_REFUSED = "a Triton candidate is Python code, which would run on the host: give CUDA C++ or PTX"


def unnumbered(message: str) -> str:
    """Return the findings without line numbers: a folder's device code is compiled from a generated file."""
    return re.sub(r"(\bline |\.cu:)\d+", r"\1N", message)


def alike(found: Said, here: Said) -> bool:
    return (found.status, found.message) == (here.status, here.message) and found.codes in (None, here.codes)
