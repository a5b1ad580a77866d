"""What a program's kernels did wrong and what was refused: printed when it happens, counted, summed up at the end."""

import os
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TextIO

from weft.core.finding_codes import Severity
from weft.core.finding_json import finding_record, suppressed_record
from weft.core.finding_text import counted, sarif, summary
from weft.core.records import Finding, Place, Suppressed, first_of_each, worst_first
from weft.engines.spell_findings import folded, plain_names, user_place
from weft.engines.suppress import sift

EXIT_FINDINGS = 1
EXIT_REFUSED = 3


@dataclass(frozen=True)
class KernelFinding:
    """A finding and the kernel that showed it."""

    kernel: str
    finding: Finding


@dataclass(frozen=True)
class Refusal:
    """Something that a GPU would have done and Weft cannot."""

    what: str
    """The entry point, kernel or image."""
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class Report:
    """Everything of all processes of a program. Safe to use from several threads."""

    def __init__(self, *, suppress: Iterable[str] = (), out: TextIO | None = None) -> None:
        self.findings: list[KernelFinding] = []
        """One per kernel, code and line, in the order in which they occurred."""
        self.suppressed: list[Suppressed] = []
        self.refusals: dict[Refusal, int] = {}
        """With their counts."""
        self.notes: dict[str, None] = {}
        self.launches = 0
        self._suppress = frozenset(suppress)
        self._seen: set[tuple[object, ...]] = set()
        self._lock = threading.Lock()
        self._out = out if out is not None else sys.stderr

    def launched(self, kernel: str, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Record a launch; print findings that are new. Returns those that the source does not allow."""
        with self._lock:
            self.launches += 1
            found = folded(map(_in_users_words, findings))
            if not found:
                return ()
            sifted = sift(found, ())
            kept = tuple(finding for finding in sifted.kept if finding.code not in self._suppress)
            by_option = [Suppressed(f, "--suppress") for f in sifted.kept if f.code in self._suppress]
            for item in (*sifted.suppressed, *by_option):
                if self._is_new(kernel, item.finding):
                    self.suppressed.append(item)
            for finding in kept:
                if self._is_new(kernel, finding):
                    self.findings.append(KernelFinding(kernel, finding))
                    self._print(f"weft: {kernel}: {finding}")
            return kept

    def refuse(self, what: str, why: str, *, goes_on: bool) -> None:
        """Record and print a refusal; the second of a kind is only counted."""
        refusal = Refusal(what, why)
        with self._lock:
            self.refusals[refusal] = self.refusals.get(refusal, 0) + 1
            if self.refusals[refusal] == 1:
                follows = "" if goes_on else " · the program was stopped (--keep-going continues)"
                self._print(f"weft: refused: {refusal}{follows}")

    def note(self, text: str) -> None:
        """Record what the end must say."""
        with self._lock:
            self.notes[text] = None

    def say(self, text: str) -> None:
        """Print a line."""
        with self._lock:
            self._print(f"weft: {text}")

    def exit_code(self, own: int) -> int:
        """Return the program's own code if it failed; else 3 if something was refused, 1 with errors, 0."""
        if own:
            return own
        if self.refusals:
            return EXIT_REFUSED
        errors = any(each.finding.level is Severity.ERROR for each in self.findings)
        return EXIT_FINDINGS if errors else 0

    def finish(self) -> None:
        """Print the table of the end; nothing for a program that launched nothing and was refused nothing."""
        with self._lock:
            for note in self.notes:
                self._print(f"weft: {note}")
            for refusal, times in self.refusals.items():
                self._print(f"weft: refused {counted(times, 'time')}: {refusal}")
            if self.launches or self.findings:
                distinct = worst_first(first_of_each(each.finding for each in self.findings))
                kernels = {each.kernel for each in self.findings}
                where = f", findings in {counted(len(kernels), 'kernel')}" if kernels else ""
                launches = "1 launch" if self.launches == 1 else f"{self.launches} launches"
                self._print(f"weft: {launches}{where}")
                self._print(summary(distinct, self.suppressed))

    def record(self, program: list[str], own: int) -> dict[str, Any]:
        """Return the JSON record of the run."""
        return {
            "program": program,
            "exit_code": self.exit_code(own),
            "program_exit_code": own,
            "launches": self.launches,
            "findings": [{"kernel": each.kernel, **finding_record(each.finding)} for each in self.findings],
            "suppressed": [suppressed_record(item) for item in self.suppressed],
            "refused": [{"what": r.what, "why": r.why, "times": times} for r, times in self.refusals.items()],
            "notes": list(self.notes),
        }

    def sarif(self) -> dict[str, object]:
        """Return the findings as a SARIF log."""
        return sarif([each.finding for each in self.findings], self.suppressed)

    def _is_new(self, kernel: str, finding: Finding) -> bool:
        key = (kernel, finding.code, finding.place or finding.ptx_line, finding.severity)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _print(self, line: str) -> None:
        print(line, file=self._out, flush=True)


def _in_users_words(finding: Finding) -> Finding:
    return replace(
        finding,
        message=plain_names(finding.message),
        name=plain_names(finding.name),
        place=_spelled(user_place(finding.place)),
        other=_spelled(user_place(finding.other)),
    )


def _spelled(place: Place | None) -> Place | None:
    """Return the place with a path relative to the current folder, if the file is below it."""
    if place is None:
        return None
    here = os.getcwd() + os.sep
    return replace(place, file=place.file.removeprefix(here), inlined_at=_spelled(place.inlined_at))
