"""A task from a contract: inputs, outputs, stages, references and gates derive from it."""

from functools import partial
from typing import Any

from weft.attention.contract import Contract
from weft.attention.stages import STAGES

from .attention_inputs import draw_attention
from .attention_problem import attention_reference, judge_attention, judge_coded, outputs_of
from .numpy_attention import RIGHT
from .task import Task


def attention_task(contract: Contract, **given: Any) -> Task:
    """Return the task of an attention. `given` are the fields of `Task` that the contract does not define."""
    derived: dict[str, Any] = {
        "inputs": contract.inputs,
        "outputs": outputs_of(contract),
        "stages": STAGES,
        "draw": partial(draw_attention, contract),
        "reference": attention_reference,
        "judge": judge_coded if contract.coded else judge_attention,
        "right": RIGHT,
        "macros": contract.defines(),
    }
    return Task(**{**derived, **given})
