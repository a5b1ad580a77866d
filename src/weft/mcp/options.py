"""Arguments that several tools share, with their descriptions for the model."""

from typing import Annotated

from pydantic import Field

from weft.judge.select import Choice

Path = Annotated[
    str, Field(description="A CUDA, PTX or Triton file on this machine with launch lines, or a rung such as `wmma`.")
]
Text = Annotated[str, Field(description="The source itself instead of a path: CUDA C++ or PTX with launch lines.")]
Language = Annotated[str, Field(description="Language of the text: `cuda` or `ptx`.")]
Launch = Annotated[str, Field(description="Launch lines of a PTX text.")]
Task = Annotated[
    str, Field(description="The task, such as sdpa or fp8_sdpa, or a Python file. Empty: the rung's task, or sdpa.")
]
Gpu = Annotated[str, Field(description="The modelled GPU, such as l4 or a100.")]
Detail = Annotated[bool, Field(description="Return more: longer lists, numbers, threads. Costs tokens.")]
Shapes = Annotated[
    list[str] | None, Field(description="Named shapes, such as small, ragged, mission. None: a quick choice.")
]
Regimes = Annotated[
    list[str] | None, Field(description="How inputs are drawn, such as unit_normal. None: a quick choice.")
]
Masks = Annotated[
    list[str] | None, Field(description="none, top_left, bottom_right; causal is both. None: the kernel's.")
]
Dtypes = Annotated[list[str] | None, Field(description="f16, bf16, f32. None: the kernel's first.")]
Encodings = Annotated[list[str] | None, Field(description="sim_fp8, e4m3 for 8-bit inputs. None: what it has.")]


def chosen(
    shapes: list[str] | None,
    regimes: list[str] | None,
    masks: list[str] | None,
    dtypes: list[str] | None,
    encodings: list[str] | None,
    seeds: tuple[int, ...],
) -> Choice:
    """Return the choice of workloads."""
    return Choice(
        tuple(shapes or ()),
        tuple(regimes or ()),
        tuple(masks or ()),
        tuple(dtypes or ()),
        tuple(encodings or ()),
        seeds,
    )
