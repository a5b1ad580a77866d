"""`weft evolve`: search for a faster kernel that stays correct. The score is modelled cycles, unless --measure."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer
from rich.live import Live
from rich.table import Table

from weft.core.chips import chips
from weft.core.errors import UsageError
from weft.core.names import did_you_mean
from weft.evolve.elites import elites
from weft.evolve.history import History
from weft.evolve.proposer import Proposer
from weft.evolve.run_summary import summary_of, summary_record
from weft.evolve.search import Ended, Search, settings_of, start_search, start_source
from weft.evolve.settings import Budget, Prices, Settings, settings_for
from weft.evolve.stopwatch import Stopwatch
from weft.fleet.fleets import Fleet, fleet_of
from weft.interop.open_kernel import load
from weft.kernels.ladder import RUNGS
from weft.store.store import Store, default_store, open_store
from weft.supervise.isolation_probe import probe_here

from .help_text import FullSummaries
from .launch_draft import draft_shown, say_host_code
from .runs import AsJson, StoreAt, last_line
from .terminal import console

PROPOSERS = ("levers", "llm", "files")
START_HELP = "A CUDA rung, or a CUDA file with launch lines (default: wmma, or a rung of --task)."
TASK_HELP = "The task that the kernel computes (default: the rung's; of a file: sdpa)."
SHAPE_HELP = "The shape that gives the score (default: mission, or the task's)."

evolve = typer.Typer(
    cls=FullSummaries,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@evolve.callback(invoke_without_command=True)
def search(
    context: typer.Context,
    task: Annotated[str, typer.Option(help=TASK_HELP)] = "",
    start: Annotated[str, typer.Option(help=START_HELP)] = "",
    gpu: Annotated[str, typer.Option(help=f"The modelled GPU: {', '.join(chips())}.")] = "l4",
    shape: Annotated[str, typer.Option(help=SHAPE_HELP)] = "",
    proposer: Annotated[str, typer.Option(help=f"What proposes children: {', '.join(PROPOSERS)}.")] = "levers",
    budget: Annotated[int | None, typer.Option(min=1, help="Limit of evaluations (default: 60).")] = None,
    seconds: Annotated[float | None, typer.Option(help="Limit of seconds for evaluating and proposing.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Limit of tokens of the language model.")] = None,
    money: Annotated[float | None, typer.Option(help="Limit of money, at --token-price and --machine-price.")] = None,
    token_price: Annotated[str, typer.Option(metavar="IN/OUT", help="Price per million tokens, such as 3/15.")] = "0/0",
    machine_price: Annotated[float, typer.Option(help="Price per hour of this machine.")] = 0.0,
    measure: Annotated[bool, typer.Option("--measure", help="Score by a real GPU's time, not by the model.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    batch: Annotated[
        int, typer.Option(min=1, help="Children per generation; they can be judged in parallel.")
    ] = Settings.batch,
    workers: Annotated[int, typer.Option(min=0, help="Parallel evaluations (default: one per core).")] = 0,
    fleet: Annotated[
        str, typer.Option(metavar="WHO", help="Evaluate elsewhere: local:N, workers, ray, ray:ADDRESS.")
    ] = "",
    require_isolation: Annotated[
        int, typer.Option(metavar="N", min=0, max=3, help="Refuse to judge below this isolation level.")
    ] = 0,
    folder: Annotated[
        Path | None, typer.Option(help="Folder of the brief that `weft evolve init` wrote, or of files.")
    ] = None,
    model: Annotated[str, typer.Option(help="Name of the language model.")] = "",
    base_url: Annotated[str, typer.Option(help="An OpenAI-compatible endpoint.")] = "",
    record: Annotated[Path | None, typer.Option(help="Record every exchange with the model here.")] = None,
    replay: Annotated[Path | None, typer.Option(help="Answer from a record of --record, without a network.")] = None,
    resume: Annotated[
        int | None, typer.Option(metavar="N", help="Continue run N; --budget may raise its budget.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the winner's source here.")] = None,
    store: StoreAt = None,
    as_json: AsJson = False,
) -> int | None:
    """Search for a faster kernel: propose children, judge them, keep the best three, learn, repeat.

    The search stops at its budget and can be resumed after an interruption.

    Exit codes: 0 a candidate that beats the start passes the whole check, 1 none does, 2 usage error.
    """
    if context.invoked_subcommand is not None:
        return None
    with open_store(store) as opened:
        if resume is not None:
            run = opened.run(resume)
            before = settings_of(run)
            settings = replace(
                before,
                budget=_raised(before.budget, budget, seconds, tokens, money),
                isolation=max(before.isolation, require_isolation),
            )
        else:
            settings = replace(
                settings_for(start, task=task, shape=shape),
                chip=gpu,
                proposer=proposer,
                seed=seed,
                budget=_raised(Budget(), budget, seconds, tokens, money),
                prices=_prices(token_price, machine_price),
                folder=str(folder or ""),
                model=model,
                isolation=require_isolation,
                batch=batch,
            )
            _say_start(settings.start, gpu)
        made = _proposer(opened, settings, base_url, record, replay)
        stopwatch = _stopwatch(settings) if measure else None
        _require(settings.isolation)
        who = fleet_of(fleet, opened, store or default_store(), _say) if fleet else None
        if resume is None:
            run = start_search(opened, settings)
        ended = _search(opened, run.id, settings, made, workers, stopwatch, who)
        return _print_result(opened, ended, output, as_json=as_json)


@evolve.command("init")
def init(
    directory: Annotated[Path, typer.Argument(help="The folder to write the files to.")],
    task: Annotated[str, typer.Option(help=TASK_HELP)] = "",
    start: Annotated[str, typer.Option(help=START_HELP)] = "",
    gpu: Annotated[str, typer.Option(help="The modelled GPU.")] = "l4",
    shape: Annotated[str, typer.Option(help=SHAPE_HELP)] = "",
) -> int:
    """Write the task's brief, the model's instructions and the metric list to files that you can edit."""
    from weft.evolve.llm import write_brief

    settings = replace(settings_for(start, task=task, shape=shape), chip=gpu, proposer="llm")
    for path in write_brief(directory, settings):
        print(path)
    print(f"edit them, then: weft evolve --proposer llm --folder {directory} --model NAME --base-url URL")
    return 0


def _say_start(start: str, gpu: str) -> None:
    """Refuse what a search cannot start from, and print what was read from a file with host code, before it begins."""
    start_source(start)
    if start not in RUNGS and start.endswith(".cu") and Path(start).is_file():
        with draft_shown(start):
            say_host_code(load(start, gpu=gpu))


def _require(isolation: int) -> None:
    """Raise NotIsolated, with what this machine lacks and what to do, before the search begins."""
    if isolation:
        probe_here().require(isolation)


def _stopwatch(settings: Settings) -> Stopwatch:
    """Return a stopwatch on this machine's GPU. Raises NoGPU with the reason if there is none."""
    from weft.bench.measure import BenchSettings
    from weft.engines.cuda_device import require_gpu
    from weft.engines.cuda_gpu import CudaGPU
    from weft.evolve.stopwatch import GpuStopwatch

    return GpuStopwatch(CudaGPU(require_gpu()), settings.task, settings.score_on, BenchSettings())


def _search(
    store: Store,
    run_id: int,
    settings: Settings,
    proposer: Proposer,
    workers: int,
    stopwatch: Stopwatch | None,
    fleet: Fleet | None,
) -> Ended:
    with _View(run_id, settings) as view:
        try:
            search = Search(
                store, run_id, settings, proposer, workers=workers, watch=view, stopwatch=stopwatch, fleet=fleet
            )
            return search.go()
        except KeyboardInterrupt:
            print(f"weft: stopped; to continue: weft evolve --resume {run_id}", file=sys.stderr)
            raise


def _say(message: str) -> None:
    print(f"weft: {message}", file=sys.stderr, flush=True)


def _print_result(store: Store, ended: Ended, output: Path | None, *, as_json: bool) -> int:
    summary = summary_of(store, ended.run_id)
    if output is not None and ended.winner is not None:
        output.write_text(store.text(store.candidate(ended.winner.id).source_digest))
    if summary.settings.proposer == "files":
        from weft.evolve.llm import write_verdicts

        write_verdicts(Path(summary.settings.folder), ended.history)
    better = ended.winner is not None and ended.winner.id != ended.history.start.id
    if as_json:
        print(json.dumps(summary_record(summary), indent=2))
        return 0 if better else 1
    for candidate, why in ended.refused:
        print(f"candidate {candidate} did not pass the whole check: {why}")
    print(f"ended: {ended.why}")
    if output is not None and ended.winner is None:
        print(f"{output} was not written: no candidate passes")
    if better and output is None:
        print(f"source of the winner: weft runs show {ended.run_id} --source {summary.winner}")
    print(f"lineage and insights: weft runs show {ended.run_id}")
    print(last_line(summary))
    return 0 if better else 1


def _proposer(store: Store, settings: Settings, base_url: str, record: Path | None, replay: Path | None) -> Proposer:
    if settings.proposer == "levers":
        return _levers(settings)
    if settings.proposer not in PROPOSERS:
        hint = did_you_mean(settings.proposer, PROPOSERS)
        raise UsageError(f"--proposer {settings.proposer}{hint}: use one of {', '.join(PROPOSERS)}")
    from weft.evolve.llm import make_files_proposer, make_llm_proposer

    if settings.proposer == "files":
        return make_files_proposer(store, settings, record=record, replay=replay)
    return make_llm_proposer(store, settings, base_url=base_url, record=record, replay=replay)


def _levers(settings: Settings) -> Proposer:
    from weft.evolve.lever_proposer import LeverProposer
    from weft.evolve.levers import start_space

    return LeverProposer(*start_space(settings.start))


def _raised(
    budget: Budget, evaluations: int | None, seconds: float | None, tokens: int | None, money: float | None
) -> Budget:
    return Budget(
        budget.evaluations if evaluations is None else evaluations,
        budget.seconds if seconds is None else seconds,
        budget.tokens if tokens is None else tokens,
        budget.money if money is None else money,
    )


def _prices(tokens: str, machine: float) -> Prices:
    try:
        prompt, completion = (float(part) for part in tokens.split("/"))
    except ValueError as error:
        raise UsageError(f"--token-price {tokens}: give it as IN/OUT per million tokens, such as 3/15") from error
    return Prices(prompt, completion, machine)


class _View:
    """Shows a running search on standard error: a table on a terminal, a line per generation in a pipe."""

    def __init__(self, run_id: int, settings: Settings) -> None:
        self.run_id, self.settings = run_id, settings
        self._start = time.monotonic()
        self._first: int | None = None
        self._live = (
            Live(console=console(stderr=True), transient=True, refresh_per_second=4) if sys.stderr.isatty() else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, what: str, history: History) -> None:
        if self._live is not None:
            self._live.update(self._board(what, history))
        elif what != "evaluated":
            print(self._line(what, history), file=sys.stderr, flush=True)

    def _line(self, what: str, history: History) -> str:
        best = _best(history, self.settings)
        return (
            f"generation {history.generation}: {what}; {history.evaluations} of {self.settings.budget.evaluations} "
            f"evaluations, best {best}"
        )

    def _board(self, what: str, history: History) -> Table:
        done = sum(member.evaluation is not None for member in history)
        if self._first is None:
            self._first = done
        minutes = (time.monotonic() - self._start) / 60
        budget, prices = self.settings.budget, self.settings.prices
        board = Table(title=f"run {self.run_id}: {what}", show_header=False, title_justify="left")
        board.add_row("best so far", _best(history, self.settings))
        board.add_row("elites", ", ".join(f"{each.id} ({each.score:,.0f})" for each in elites(history, self.settings)))
        board.add_row("generation", f"{history.generation}, {_waiting(history)} in the queue")
        board.add_row("evaluations", _of(history.evaluations, budget.evaluations))
        board.add_row("rate", f"{(done - self._first) / minutes:.1f} a minute" if minutes > 0.05 else "")
        board.add_row("seconds", _of(round(history.seconds), budget.seconds))
        if history.tokens or budget.tokens:
            board.add_row("tokens", _of(history.tokens, budget.tokens))
        money = history.money(prices)
        if money or budget.money:
            board.add_row("money", _of(round(money, 2), budget.money))
        return board


def _waiting(history: History) -> int:
    return sum(member.evaluation is None and member.duplicate_of is None for member in history)


def _of(value: float, limit: float | None) -> str:
    return f"{value:,} of {limit:,}" if limit is not None else f"{value:,}"


def _best(history: History, settings: Settings) -> str:
    chosen = elites(history, settings)
    start = history.start.score
    if not chosen or chosen[0].score is None or start is None:
        return "none yet"
    best = chosen[0]
    assert best.score is not None
    return f"candidate {best.id}: {best.score:,.0f} cycles, ×{best.score / start:.2f} of the start"
