"""The tool `explain`: the meaning of a finding's code."""

from typing import Annotated

from mcp.types import CallToolResult
from pydantic import Field

from weft.core.errors import UsageError
from weft.core.finding_codes import FINDING_CODES
from weft.core.finding_pages import page
from weft.core.names import did_you_mean

from .answers import CodeAnswer, ExplainAnswer, reply
from .calls import carried_out


def explain(
    code: Annotated[str, Field(description="A finding's code, such as R101. Empty: a list of all.")] = "",
    detail: Annotated[bool, Field(description="The complete page: what, why, an example.")] = False,
) -> Annotated[CallToolResult, ExplainAnswer]:
    """Explain a finding's code and its cure; with detail also why it matters and an example."""
    with carried_out():
        if not code:
            rows = tuple(CodeAnswer(row.code, row.name, str(row.severity)) for row in FINDING_CODES.values())
            return reply(ExplainAnswer(cure="name one of these codes", codes=rows))
        row = FINDING_CODES.get(code.upper())
        if row is None:
            hint, known = did_you_mean(code, FINDING_CODES), ", ".join(FINDING_CODES)
            raise UsageError(f"no finding has the code {code}{hint}; there are {known}")
        text = page(row.code) if detail else ""
        return reply(ExplainAnswer(row.cure, row.code, row.name, str(row.tool), str(row.severity), text))
