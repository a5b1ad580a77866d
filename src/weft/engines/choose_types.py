"""`q : ELEMENT[S, D]` → `q : f16[S, D]`: a text define may choose an element type, so that -D changes both sides."""

from collections.abc import Mapping
from dataclasses import replace

from weft.core.errors import UsageError

from .element_types import CPP_TYPES, ELEMENT_TYPES
from .launch_records import LaunchLines


def choose_types(lines: LaunchLines, file: str, defines: Mapping[str, str]) -> LaunchLines:
    """The lines with a type of ours in every array and scalar. `defines` override the file's."""
    texts = {line.name: line.value for line in lines.defines if isinstance(line.value, str)}
    chosen = {name: defines.get(name, text) for name, text in texts.items()}

    def element(text: str, line: int) -> str:
        if text in ELEMENT_TYPES:
            return text
        known = " ".join(ELEMENT_TYPES)
        if text not in chosen:
            raise UsageError(f"{file}:{line}: {text!r} is not a type; there are {known}, and text defines")
        spelled = " ".join(chosen[text].split())
        found = CPP_TYPES.get(spelled, spelled)
        if found not in ELEMENT_TYPES:
            raise UsageError(f"{file}:{line}: {text} is {spelled!r}, not a type of C++ that Weft knows, nor {known}")
        return found

    return replace(
        lines,
        arrays=tuple(replace(array, element=element(array.element, array.line)) for array in lines.arrays),
        scalars=tuple(replace(scalar, element=element(scalar.element, scalar.line)) for scalar in lines.scalars),
    )
