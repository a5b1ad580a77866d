"""`weft journal versions`: list the versions of a kernel, their verdicts and their estimated costs."""

from typing import Annotated

import typer

from weft.core.errors import UsageError
from weft.journal.kernel_versions import Version
from weft.journal.kernel_versions import versions as versions_of

from .journal_output import finish, open_journal, print_table

BAR = 40
"""Characters of the longest bar."""


def versions(
    kernel: Annotated[str, typer.Argument(help="A file or a rung, as its commands named it (default: all).")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """List the versions of a kernel that weft journal run recorded, with bars for their estimates.

    A version is one source text: its digest, the commit, its last check, and EST_warm of its last weft profile.
    """
    with open_journal() as books:
        ledger = books.ledger()
    found = versions_of(ledger.book.entries)
    if kernel and kernel not in found:
        raise UsageError(f"no command of the journal named {kernel}; it has {', '.join(found) or 'no kernel yet'}")
    chosen = {path: each for path, each in found.items() if not kernel or path == kernel}
    if not as_json:
        for path, each in chosen.items():
            print(f"{path}: {len(each)} version{'s'[: len(each) > 1]}")
            print_table(["source", "commit", "entries", "check", "EST_warm cycles", "profiled with", ""], _rows(each))
    record = {path: [_record(version) for version in each] for path, each in chosen.items()}
    finish(ledger, [], {"kernels": record}, as_json=as_json)
    return 0


def _rows(found: tuple[Version, ...]) -> list[list[object]]:
    """Return the rows. Bars have the same scale if their profiles have the same terms."""
    longest: dict[str, float] = {}
    for version in found:
        longest[version.terms] = max(longest.get(version.terms, 0.0), version.middle or 0.0)
    rows: list[list[object]] = []
    for version in found:
        entries = ", ".join(map(str, version.entries))
        cells: list[object] = [version.digest[:12], _short(version.commit), entries, version.check or "-"]
        terms = version.terms or ("its own sizes" if version.estimate else "-")
        rows.append([*cells, _cycles(version), terms, _bar(version.middle, longest[version.terms])])
    return rows


def _short(commit: str) -> str:
    return commit[:10] + "+" * commit.endswith("+") if commit else "-"


def _cycles(version: Version) -> str:
    if version.estimate is None:
        return "-"
    return " to ".join(dict.fromkeys(f"{end:,.0f}" for end in version.estimate))


def _bar(middle: float | None, longest: float) -> str:
    """Return a bar as long as the middle of the estimate: shorter is faster."""
    return "█" * max(1, round(BAR * middle / longest)) if middle and longest else ""


def _record(version: Version) -> dict[str, object]:
    return {
        "digest": version.digest,
        "commit": version.commit,
        "entries": version.entries,
        "check": version.check,
        "est_warm_cycles": version.estimate,
        "profiled_with": version.terms,
    }
