"""A wrong attention as a mutant."""

from collections.abc import Callable, Mapping

from weft.attention.reference import Attended
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.task import Mutant, Outputs


def wrong(
    name: str,
    what: str,
    run: Callable[[AttentionProblem], Attended],
    *,
    breaks: str = "o",
    stage: str = "",
    excluded: Mapping[str, str] | None = None,
) -> Mutant:
    """Return a table row of this folder."""

    def outputs(problem: AttentionProblem) -> Outputs:
        return problem.packed(run(problem)._asdict())

    return Mutant(name, what, outputs, breaks, excluded or {}, stage)
