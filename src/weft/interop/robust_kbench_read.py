"""A robust-kbench task folder, of today's form or of the earlier one → its cases, its tolerance and its CUDA file.

`func_forward.py` is the user's program: it is run, with PyTorch, as the trusted reference.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.core.errors import Unsupported, UsageError, WeftError

from .foreign_task import Case, Tolerance
from .host_kernel import Argument, HostKernel
from .reference_code import require_torch, result_arrays, run_source, to_numpy

KEYS = tuple(f"{many}_{what}_configs" for many in ("single", "multi") for what in ("input", "init", "shared"))
EARLIER_KEYS = ("arch", "seeds", "shapes", "tolerance", "timing")

DEFAULT_TOLERANCE = Tolerance(1e-3, 1e-3)
"""The tolerance of run_kernel.py, for folders without one."""

_FIRST_SEED = 42
"""The seed from which robust-kbench draws the seeds of its trials."""


@dataclass(frozen=True)
class Setting:
    """One case: the arguments of the model and of its inputs, and the seeds of its trials."""

    name: str
    init: Mapping[str, Any]
    inputs: Mapping[str, Any]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class TaskFolder:
    """The contents of a task folder."""

    path: Path
    form: str
    """`current` or `earlier`."""
    settings: tuple[Setting, ...]
    tolerance: Tolerance
    arch: str = "sm_89"

    @property
    def kernel(self) -> Path:
        return self.path / "forward.cu"


def is_folder(path: Path) -> bool:
    """Whether it looks like a robust-kbench folder."""
    return (path / "func_forward.py").is_file() and (path / "config_forward.json").is_file()


def read_folder(path: Path, *, multi: bool = False, trials: int = 1, tolerance: Tolerance | None = None) -> TaskFolder:
    """Return the cases of a folder: those that are timed, or all (`multi`). A given tolerance takes precedence."""
    if not is_folder(path):
        raise UsageError(f"{path} is not a robust-kbench task: it has no func_forward.py and config_forward.json")
    if not (path / "forward.cu").is_file():
        raise UsageError(f"{path} has no forward.cu, so there is no kernel to judge")
    where = path / "config_forward.json"
    try:
        config = json.loads(where.read_text())
    except ValueError as error:
        raise UsageError(f"{where} is not valid JSON: {error}") from error
    keys = set(config) if isinstance(config, dict) else set()
    if keys == set(KEYS):
        settings = _current(config, str(where), multi, trials)
        return TaskFolder(path, "current", settings, tolerance or DEFAULT_TOLERANCE)
    if keys == set(EARLIER_KEYS):
        settings = _earlier(config, str(where), multi)
        given = tolerance or _tolerance(config["tolerance"], str(where))
        return TaskFolder(path, "earlier", settings, given, str(config["arch"]))
    raise UsageError(
        f"{where} has the keys {', '.join(sorted(keys)) or 'none'}; known are {', '.join(KEYS)}, and the earlier "
        f"{', '.join(EARLIER_KEYS)}"
    )


def make_case(folder: TaskFolder, setting: Setting, seed: int, kernel: HostKernel) -> tuple[Case, Path]:
    """Return the call that the model makes with the results of `forward_fn`, and the kernel file of the call."""
    torch = require_torch()
    module = run_source((folder.path / "func_forward.py").read_text(), str(folder.path / "func_forward.py"))
    forward, get_inputs = _function(module, "forward_fn", folder), _function(module, "get_inputs", folder)
    calls: list[tuple[tuple[Any, ...], Any]] = []

    def watched(*arguments: Any) -> Any:
        # Copies: a model may change its tensors later.
        kept = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in arguments)
        calls.append((kept, forward(*arguments)))
        return calls[-1][1]

    try:
        with torch.no_grad():
            torch.manual_seed(seed)
            inputs = _call(get_inputs, setting.inputs, folder, "get_inputs")
            if "Model" in module:
                torch.manual_seed(seed)
                _call(module["Model"], setting.init, folder, "Model")(*inputs, fn=watched)
            else:
                watched(*inputs)
    except WeftError:
        raise
    except Exception as error:  # the user's program may raise anything
        raise UsageError(f"{folder.path / 'func_forward.py'}: {type(error).__name__}: {error}") from error
    if len(calls) != 1:
        raise Unsupported(f"{folder.path}: the model calls its function {len(calls)} times; Weft judges one call")
    arguments, result = calls[0]
    bound = kernel.bind([_argument(value, torch, folder) for value in arguments], 1)
    expected = result_arrays(result, ["output"], f"{folder.path}: forward_fn")["output"]
    name = setting.name if seed == setting.seeds[0] else f"{setting.name} seed {seed}"
    return Case(name, bound.arrays, {bound.outputs[0]: expected}), bound.path


def results(folder: TaskFolder, correct: Mapping[str, Sequence[tuple[bool, float]]]) -> dict[str, Any]:
    """Return setting → (correct, largest difference) of its trials, as robust-kbench writes its results."""
    settings = {
        name: {
            "correct": all(right for right, _ in trials),
            "num_correct": sum(right for right, _ in trials),
            "total_correct_trials": len(trials),
            "max_diff": max((apart for right, apart in trials if not right), default=0.0),
            "atol": folder.tolerance.atol,
            "rtol": folder.tolerance.rtol,
        }
        for name, trials in correct.items()
    }
    summary = {
        "correct": bool(settings) and all(row["correct"] for row in settings.values()),
        "max_diff": max((float(row["max_diff"]) for row in settings.values()), default=0.0),
        "total_trials": sum(int(row["num_correct"]) for row in settings.values()),
        "all_configs_str": list(settings),
    }
    return {"summary": summary, "eval_settings": settings, "device_info": {"name": f"Weft virtual GPU ({folder.arch})"}}


# Cases.
def _current(config: Mapping[str, Any], where: str, multi: bool, trials: int) -> tuple[Setting, ...]:
    """Return init × input × shared, where shared takes precedence, named as in robust-kbench."""
    for key in KEYS:
        rows = config[key]
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            raise UsageError(f"{where}: {key} is not a list of objects")
    many = "multi" if multi else "single"
    found = []
    for init in config[f"{many}_init_configs"]:
        for inputs in config[f"{many}_input_configs"]:
            for shared in config[f"{many}_shared_configs"]:
                made, drawn = {**init, **shared}, {**inputs, **shared}
                found.append(Setting(_name(made, drawn), made, drawn, _trial_seeds(trials)))
    return tuple(found)


def _name(init: Mapping[str, Any], inputs: Mapping[str, Any]) -> str:
    joined = "_".join(f"{key}_{value}" for part in (init, inputs) for key, value in part.items())
    return joined.translate(str.maketrans(" .-=", "____")) or "default"


def _trial_seeds(trials: int) -> tuple[int, ...]:
    """Return the seeds of robust-kbench's own trials, so that inputs are bitwise identical."""
    torch = require_torch()
    stream = torch.Generator().manual_seed(_FIRST_SEED)
    return tuple(int(torch.randint(0, 2**32 - 1, (1,), generator=stream).item()) for _ in range(trials))


def _earlier(config: Mapping[str, Any], where: str, multi: bool) -> tuple[Setting, ...]:
    """Return shapes × seeds."""
    shapes, seeds = config["shapes"], config["seeds"]
    if not isinstance(seeds, list) or not seeds or not all(isinstance(seed, int) for seed in seeds):
        raise UsageError(f"{where}: seeds is not a list of numbers")
    found = []
    for row in shapes if isinstance(shapes, list) else []:
        if not isinstance(row, dict) or set(row) != {"name", "B", "H", "S", "D"}:
            raise UsageError(f"{where}: a shape must be {{name, B, H, S, D}}, not {row}")
        sizes = {name: row[name] for name in "BHSD"}
        every = {**sizes, "HQ": row["H"], "HKV": row["H"], "SQ": row["S"], "SKV": row["S"]}
        found.append(Setting(str(row["name"]), every, every, tuple(seeds if multi else seeds[:1])))
    if not found:
        raise UsageError(f"{where} has no shapes")
    return tuple(found if multi else found[:1])


def _tolerance(given: Any, where: str) -> Tolerance:
    if not isinstance(given, dict) or set(given) != {"atol", "rtol", "pct_bad_max"}:
        raise UsageError(f"{where}: tolerance must be {{atol, rtol, pct_bad_max}}")
    return Tolerance(float(given["atol"]), float(given["rtol"]), bad_share=float(given["pct_bad_max"]) / 100)


# The user's program.
def _function(module: Mapping[str, Any], name: str, folder: TaskFolder) -> Callable[..., Any]:
    found = module.get(name)
    if not callable(found):
        raise UsageError(f"{folder.path / 'func_forward.py'} defines no function {name}")
    return found  # type: ignore[no-any-return]


def _call(function: Callable[..., Any], given: Mapping[str, Any], folder: TaskFolder, name: str) -> Any:
    """Call the function: current configs name exactly its parameters; earlier ones also name other sizes."""
    if folder.form == "current":
        chosen = dict(given)
    else:
        parameters = inspect.signature(function).parameters
        chosen = {key: value for key, value in given.items() if key in parameters}
        missing = [
            each.name
            for each in parameters.values()
            if each.default is each.empty and each.name not in chosen and each.kind is each.POSITIONAL_OR_KEYWORD
        ]
        if missing:
            raise UsageError(f"{folder.path}: {name} requires {missing[0]!r}; the config gives {', '.join(given)}")
    try:
        return function(**chosen)
    except TypeError as error:
        raise UsageError(f"{folder.path}: {name} does not take {', '.join(chosen)}: {error}") from error


def _argument(value: Any, torch: Any, folder: TaskFolder) -> Argument:
    if isinstance(value, torch.Tensor):
        return to_numpy(value)
    if isinstance(value, int | float):
        return value
    raise Unsupported(f"{folder.path}: the function gets a {type(value).__name__}; Weft passes tensors and numbers")
