"""Where a CUDA source asks which compiler reads it.

The judge compiles by NVRTC, a build often by nvcc: code that asks is judged in one form and may run in another.
Often it is host code, which only nvcc should see; so it is a note, not an error.
"""

import re
from collections.abc import Iterator

from weft.core.records import Finding, Place

_ASKED = re.compile(r"\b(?:__CUDACC_RTC__|__NVCC__|__WEFT__|WEFT)\b")
_NO_CODE = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""Comments, and texts, in which a comment cannot begin."""


def compiler_questions(text: str, path: str) -> Iterator[Finding]:
    """Yield a note for each line of a source's code that names a macro of the compiler."""
    code = _NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for line, content in enumerate(code.splitlines(), 1):
        if asked := _ASKED.search(content):
            message = f"the source tests which compiler is used ({asked[0]}): other compilers may build other code"
            yield Finding("X404", message, place=Place(path, line))
