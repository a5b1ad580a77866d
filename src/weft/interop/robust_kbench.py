"""A kernel → the three files of a robust-kbench task. docs/howto/robust_kbench.md describes them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.attention.shapes import Shape
from weft.core.errors import UsageError
from weft.engines.kernel_file import KernelFile
from weft.kernels.ladder import RUNGS

from .exported_kernel import INPUTS, ExportedKernel, exported_rung, named_shapes
from .torch_binding import torch_unit

FILES = ("func_forward.py", "config_forward.json", "forward.cu")

OF_THE_BENCHMARK = ("eval_results", "filter_results.json", "__pycache__", "traces")
"""Files that the benchmarks and Python write into a folder."""

FORMS = ("current", "earlier")
"""Forms of config_forward.json: six lists of settings, or the logs' arch, seeds, shapes, tolerance and timing."""

TOLERANCE = {"atol": 5e-2, "rtol": 5e-2, "pct_bad_max": 0.0}
"""Tolerance of the logs; no element may exceed it."""

TIMING = {"warmup_iters": 25, "timed_iters": 100}

_EARLIER_NAMES = """

# The earlier form of config_forward.json has only B, H, S and D.
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
"""The logs' shapes, and others: lengths that are not multiples of a tile, other D, GQA, fewer queries than keys."""

DEFAULT_SEEDS = 3

TEMPLATES: Mapping[str, str] = {"sdpa": "sdpa_func_forward.py.in", "fp8_sdpa": "fp8_sdpa_func_forward.py.in"}
"""Task → the PyTorch side."""

INIT_METHODS = ("unit_normal", "logits_8", "logits_32", "v_offset", "outlier_channels", "all_equal", "zeros")
"""Initialisations of the model's cache; templates/init_methods.py.in defines them."""

_GROUPS = 'TORCH_CHECK(HQ % HKV == 0, HQ, " heads of Q are no multiple of ", HKV, " heads of K and V");'
"""Check of sizes in addition to the shapes of the arrays, where a kernel has both."""

_TORCH_NAMES: Mapping[str, str] = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}

_TEMPLATE_FOLDER = Path(__file__).parent / "templates"


def make_task(
    target: str | ExportedKernel,
    *,
    shapes: Sequence[str] = DEFAULT_SHAPES,
    seeds: int = DEFAULT_SEEDS,
    defines: Mapping[str, str] = {},
    form: str = "current",
) -> dict[str, str]:
    """Return file name → text, of a rung with these levers (`defines`) or of a kernel; the first shape is timed."""
    if form not in FORMS:
        raise UsageError(f"form {form!r}: use one of {', '.join(FORMS)}")
    exported = _rung(target, defines) if isinstance(target, str) else target
    if exported.task not in TEMPLATES:
        takes = " or ".join(f"({', '.join(INPUTS[task])})" for task in TEMPLATES)
        raise UsageError(
            f"{exported.name}: a robust-kbench task needs a kernel whose inputs are {takes}, in this order"
        )
    if not shapes:
        raise UsageError("a task needs at least one shape")
    found = named_shapes(tuple(shapes))
    sizes = [exported.sizes_at(shape) for shape in found]
    _require_plain(exported)
    texts = (
        _func_forward(exported) + (_EARLIER_NAMES if form == "earlier" else ""),
        config([_sizes(shape) for shape in found], seeds)
        if form == "current"
        else earlier_config(found, seeds, exported.kernel.arch),
        torch_unit(exported.kernel, sizes, notes=_notes(exported, shapes), checks=group_check(exported.kernel)),
    )
    return dict(zip(FILES, texts, strict=True))


def group_check(kernel: KernelFile) -> str:
    """Return C++ that refuses query heads that are not a multiple of key heads, where the kernel has both."""
    return _GROUPS if {"HQ", "HKV"} <= set(kernel.sizes) else ""


def write_task(files: Mapping[str, str], folder: Path, *, force: bool = False) -> None:
    """Write the files. Raises for a folder with other files, unless `force`; nothing is ever deleted."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; name a folder")
    known = {*(name.split("/")[0] for name in files), *OF_THE_BENCHMARK}
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in known) if folder.exists() else []
    if foreign and not force:
        shown = ", ".join(foreign[:3]) + (" …" if foreign[3:] else "")
        raise UsageError(f"{folder} already contains {shown}; name an empty folder, or add to this one with --force")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error}") from error


def config(sizes: Sequence[Mapping[str, int]], seeds: int) -> str:
    """Return `config_forward.json`: cases are init × input × shared; the `single_` ones are timed."""
    init = [{"init_method": name} for name in INIT_METHODS]
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
    """Return `config_forward.json` in the form of the logs: as many keys as queries, and no GQA."""
    rows = []
    for shape in shapes:
        if shape.hq != shape.hkv or shape.sq != shape.skv:
            raise UsageError(f"the earlier form has only B, H, S and D; leave out shape {shape.name}")
        rows.append({"name": shape.name, "B": shape.b, "H": shape.hq, "S": shape.sq, "D": shape.d})
    body = {
        "arch": arch,
        "seeds": list(range(seeds)),
        "shapes": rows,
        "tolerance": TOLERANCE,
        "timing": TIMING,
    }
    return json.dumps(body, indent=4) + "\n"


def _rung(name: str, defines: Mapping[str, str]) -> ExportedKernel:
    exportable = [rung.name for rung in RUNGS.values() if rung.task in TEMPLATES and rung.language == "CUDA"]
    if name not in exportable:
        known = f"{name} computes {RUNGS[name].task}" if name in RUNGS else f"there is no rung {name!r}"
        if name in RUNGS and RUNGS[name].language != "CUDA":
            known = f"{name} is a {RUNGS[name].language} kernel"
        raise UsageError(f"{known}; robust-kbench tasks are made from {', '.join(exportable)}")
    return exported_rung(name, defines)


def _sizes(shape: Shape) -> dict[str, int]:
    return {"B": shape.b, "HQ": shape.hq, "HKV": shape.hkv, "SQ": shape.sq, "SKV": shape.skv, "D": shape.d}


def _require_plain(exported: ExportedKernel) -> None:
    """Refuse defines for other codes or masks: the PyTorch side has sim-FP8 codes and no mask."""
    kernel = exported.kernel
    settled = kernel.numbers()
    for name, plain in (("CAUSAL", "0"), ("ENCODING", "0"), ("WINDOW_LEFT", "-1"), ("WINDOW_RIGHT", "-1")):
        if settled.get(name, plain) != plain:
            raise UsageError(f"-D {name}={settled[name]}: the robust-kbench task has sim-FP8 codes and no mask")
    unknown = [name for name in kernel.defines if name not in {define.name for define in kernel.lines.defines}]
    if unknown and exported.levers:
        raise UsageError(f"-D {unknown[0]}: {exported.name} has no such define; it has {', '.join(exported.levers)}")


def _func_forward(exported: ExportedKernel) -> str:
    text = (_TEMPLATE_FOLDER / TEMPLATES[exported.task]).read_text()
    filled = text.replace("@INIT_METHODS@\n", (_TEMPLATE_FOLDER / "init_methods.py.in").read_text())
    elements = {line.name: line.element for line in exported.kernel.lines.arrays}
    taken = _TORCH_NAMES.get(elements[INPUTS[exported.task][0]], "")
    filled = filled.replace("@RUNG@", exported.name).replace("@INPUT@", taken)
    return filled.replace("@OUTPUT@", _TORCH_NAMES[exported.kernel.outputs[0].element])


def _notes(exported: ExportedKernel, shapes: Sequence[str]) -> list[str]:
    command = f"weft export {exported.name} --robust-kbench FOLDER"
    return [
        f"{exported.name} as a PyTorch extension for robust-kbench:",
        f"{exported.about}.",
        "",
        f"Generated by `{command}` from {exported.file} and its `// weft:` lines:",
        "change those, not this file. Its templates are instantiated for the shapes",
        f"{', '.join(shapes)}.",
        "",
        "Weft has run the kernel on its virtual GPU. This file, with its host part, has not been run on hardware.",
    ]
