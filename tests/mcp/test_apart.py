"""A separate process: a crash or hang in it fails only that call."""

import multiprocessing
import os
from multiprocessing.connection import wait

import pytest
from mcp.server.mcpserver.exceptions import ToolError

from weft.mcp import apart
from weft.mcp.calls import Progress


class Silent(Progress):
    """Without a client."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def tell(self, message: str, total: int | None = None) -> None:
        self.messages.append(message)


def test_a_process_that_dies_is_an_error_that_names_its_end() -> None:
    with pytest.raises(ToolError, match="exit code 9; the server continues"):
        apart.apart(os._exit, int, {"status": 9}, Silent())
    assert multiprocessing.active_children() == []


def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "SECONDS", 1.0)
    monkeypatch.setattr(apart, "STEP_SECONDS", 0.2)
    silent = Silent()
    with pytest.raises(ToolError, match="no answer within 1 s"):
        apart.apart(wait, list, {"object_list": [], "timeout": 600}, silent)
    assert multiprocessing.active_children() == [] and silent.messages
