"""A rung of the ladder → the three files of a robust-kbench task. docs/howto/robust_kbench.md says what is in them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.attention.shapes import SHAPES, Shape
from weft.core.errors import UsageError
from weft.engines.kernel_file import KernelFile, load
from weft.kernels.ladder import RUNGS, Rung

from .torch_binding import torch_unit

FILES = ("func_forward.py", "config_forward.json", "forward.cu")

OF_THE_BENCHMARK = ("eval_results", "filter_results.json", "__pycache__", "traces")
"""What the benchmarks and Python leave in a folder."""

FORMS = ("current", "earlier")
"""Of config_forward.json: six lists of settings, or the logs' arch, seeds, shapes, tolerance and timing."""

TOLERANCE = {"atol": 5e-2, "rtol": 5e-2, "pct_bad_max": 0.0}
"""Of the logs; no element may be beyond it."""

TIMING = {"warmup_iters": 25, "timed_iters": 100}

_EARLIER_NAMES = """

# The earlier form of config_forward.json has B, H, S and D alone.
_Model, _get_inputs = Model, get_inputs


class Model(_Model):  # noqa: F811
    def __init__(self, B: int, H: int, S: int, D: int, init_method: str = "unit_normal") -> None:
        super().__init__(B, H, H, S, S, D, init_method)


def get_inputs(B: int = 1, H: int = 8, S: int = 512, D: int = 64, seed: int = 0) -> list[torch.Tensor]:  # noqa: F811
    return _get_inputs(B, H, H, S, S, D, seed)
"""

DEFAULT_SHAPES = (
    "mission", "small", "long", "validation_128", "split_65", "ragged", "d80", "d128", "gqa_4", "few_queries",
)  # fmt: skip
"""The logs' shapes, and odd ones: lengths that are no whole tiles, other D, shared heads, fewer queries than keys."""

DEFAULT_SEEDS = 3

TEMPLATES: Mapping[str, str] = {"fp8_sdpa": "fp8_sdpa_func_forward.py.in"}
"""Task → the PyTorch side."""

INIT_METHODS: Mapping[str, tuple[str, ...]] = {
    "fp8_sdpa": ("unit_normal", "logits_8", "logits_32", "v_offset", "outlier_channels", "all_equal", "zeros"),
}
"""Task → the init methods that its template has."""

_CHECKS: Mapping[str, str] = {
    "fp8_sdpa": 'TORCH_CHECK(HQ % HKV == 0, HQ, " heads of Q are no multiple of ", HKV, " heads of K and V");',
}
"""Task → what its sizes must fulfil beyond the shapes of the arrays."""

_TORCH_NAMES: Mapping[str, str] = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}

_TEMPLATE_FOLDER = Path(__file__).parent / "templates"


def make_task(
    rung: str,
    *,
    shapes: Sequence[str] = DEFAULT_SHAPES,
    seeds: int = DEFAULT_SEEDS,
    defines: Mapping[str, str] = {},
    form: str = "current",
) -> dict[str, str]:
    """File name → text. `defines` set the rung's levers; the first shape is the one that is timed."""
    if form not in FORMS:
        raise UsageError(f"form {form!r}: use one of {', '.join(FORMS)}")
    chosen = _rung(rung)
    found = _shapes(chosen, shapes)
    sizes = [_sizes(shape) for shape in found]
    kernel = load(chosen.path, defines=defines)
    _require_plain(chosen, kernel)
    texts = (
        _func_forward(chosen, kernel) + (_EARLIER_NAMES if form == "earlier" else ""),
        config(chosen.task, sizes, seeds) if form == "current" else earlier_config(found, seeds, kernel.arch),
        torch_unit(kernel, sizes, notes=_notes(chosen, shapes), checks=_CHECKS[chosen.task]),
    )
    return dict(zip(FILES, texts, strict=True))


def write_task(files: Mapping[str, str], folder: Path, *, force: bool = False) -> None:
    """Write the files. A folder that holds anything else is left alone unless `force`; nothing is ever deleted."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; name a folder")
    known = {*(name.split("/")[0] for name in files), *OF_THE_BENCHMARK}
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in known) if folder.exists() else []
    if foreign and not force:
        shown = ", ".join(foreign[:3]) + (" …" if foreign[3:] else "")
        raise UsageError(f"{folder} holds {shown}; name an empty folder, or write beside it with --force")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error}") from error


def config(task: str, sizes: Sequence[Mapping[str, int]], seeds: int) -> str:
    """`config_forward.json`: cases are init × input × shared; the `single_` ones are timed."""
    init = [{"init_method": name} for name in INIT_METHODS[task]]
    inputs = [{"seed": seed} for seed in range(seeds)]
    lists: dict[str, Sequence[Mapping[str, object]]] = {
        "single_input_configs": inputs[:1],
        "single_init_configs": init[:1],
        "single_shared_configs": sizes[:1],
        "multi_input_configs": inputs,
        "multi_init_configs": init,
        "multi_shared_configs": sizes,
    }
    blocks = []
    for key, rows in lists.items():
        body = ",\n".join(f"        {json.dumps(row)}" for row in rows)
        blocks.append(f'    "{key}": [\n{body}\n    ]')
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def earlier_config(shapes: Sequence[Shape], seeds: int, arch: str) -> str:
    """`config_forward.json` as the logs have it: as many keys as queries, and no shared heads."""
    rows = []
    for shape in shapes:
        if shape.hq != shape.hkv or shape.sq != shape.skv:
            raise UsageError(f"the earlier form has B, H, S and D alone; leave out shape {shape.name}")
        rows.append({"name": shape.name, "B": shape.b, "H": shape.hq, "S": shape.sq, "D": shape.d})
    body = {
        "arch": arch,
        "seeds": list(range(seeds)),
        "shapes": rows,
        "tolerance": TOLERANCE,
        "timing": TIMING,
    }
    return json.dumps(body, indent=4) + "\n"


def _rung(name: str) -> Rung:
    exportable = [rung.name for rung in RUNGS.values() if rung.task in TEMPLATES]
    if name not in exportable:
        known = f"{name} computes {RUNGS[name].task}" if name in RUNGS else f"there is no rung {name!r}"
        raise UsageError(f"{known}; robust-kbench tasks are made from {', '.join(exportable)}")
    return RUNGS[name]


def _shapes(rung: Rung, names: Sequence[str]) -> list[Shape]:
    if not names:
        raise UsageError("a task needs at least one shape")
    unknown = [name for name in names if name not in SHAPES]
    if unknown:
        raise UsageError(f"unknown shape {unknown[0]!r}; `weft list` has the names")
    found = [SHAPES[name] for name in names]
    for shape in found:
        if rung.largest_d is not None and shape.d > rung.largest_d:
            raise UsageError(f"{rung.name} takes D up to {rung.largest_d}; leave out shape {shape.name}")
    return found


def _sizes(shape: Shape) -> dict[str, int]:
    return {"B": shape.b, "HQ": shape.hq, "HKV": shape.hkv, "SQ": shape.sq, "SKV": shape.skv, "D": shape.d}


def _require_plain(rung: Rung, kernel: KernelFile) -> None:
    """The PyTorch side has sim-FP8 codes and no mask: with a define that says otherwise no kernel could pass."""
    for name in ("CAUSAL", "ENCODING"):
        if kernel.defines.get(name, "0") != "0":
            raise UsageError(f"-D {name}={kernel.defines[name]}: the robust-kbench task has sim-FP8 codes and no mask")
    unknown = [name for name in kernel.defines if name not in {define.name for define in kernel.lines.defines}]
    if unknown:
        known = ", ".join(("ELEMENT", *rung.levers))
        raise UsageError(f"-D {unknown[0]}: {rung.name} has no such define; it has {known}")


def _func_forward(rung: Rung, kernel: KernelFile) -> str:
    text = (_TEMPLATE_FOLDER / TEMPLATES[rung.task]).read_text()
    return text.replace("@RUNG@", rung.name).replace("@OUTPUT@", _TORCH_NAMES[kernel.outputs[0].element])


def _notes(rung: Rung, shapes: Sequence[str]) -> list[str]:
    return [
        f"{rung.name} as a PyTorch extension for robust-kbench:",
        f"{rung.idea}.",
        "",
        f"Generated by `weft export {rung.name} --robust-kbench FOLDER` from {rung.file} and its `// weft:` lines:",
        "change those, not this file. Its templates are instantiated for the shapes",
        f"{', '.join(shapes)}.",
        "",
        "Weft has run the kernel on its virtual GPU. This file, with its host part, has not been run on hardware.",
    ]
