"""What the command line and a test's marker ask of the virtual GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from weft.core.errors import UsageError

MARKER = "weft"
ALL = ("all",)


@dataclass(frozen=True)
class Settings:
    """A chip and the checkers besides those that are always on."""

    gpu: str
    tools: tuple[str, ...]

    def __str__(self) -> str:
        tools = "all checkers" if self.tools == ALL else ", ".join(self.tools) or "no added checkers"
        return f"virtual {self.gpu}, {tools}"


def from_options(config: pytest.Config) -> Settings:
    """Of the run. All checkers, unless it names some or none."""
    options = config.known_args_namespace
    named = tuple(name for names in options.weft_tool or () for name in names.split(","))
    if named and options.weft_plain:
        raise UsageError("--weft-plain is without checkers, --weft-tool names some: give one of them")
    return Settings(options.weft_gpu, () if options.weft_plain else named or ALL)


def of_test(item: pytest.Item) -> Settings:
    """Of one test; the nearest marker's words come before those of its class and module."""
    settings = from_options(item.config)
    for mark in reversed(list(item.iter_markers(MARKER))):
        settings = _with(settings, mark.args, mark.kwargs)
    return settings


def _with(settings: Settings, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Settings:
    unknown = sorted(set(kwargs) - {"gpu", "check"})
    if args or unknown:
        raise UsageError(f"@pytest.mark.weft takes gpu=… and check=…, not {', '.join([*map(repr, args), *unknown])}")
    return replace(
        settings,
        gpu=kwargs.get("gpu", settings.gpu),
        tools=_tools(kwargs["check"]) if "check" in kwargs else settings.tools,
    )


def _tools(check: Any) -> tuple[str, ...]:
    if isinstance(check, bool):
        return ALL if check else ()
    if isinstance(check, str):
        return tuple(check.split(","))
    if isinstance(check, Sequence) and all(isinstance(name, str) for name in check):
        return tuple(check)
    raise UsageError(f"check={check!r}: give True, False or names such as 'racecheck'")
