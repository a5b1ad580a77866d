"""Lines of a CUDA source that test which compiler is used.

The judge compiles with NVRTC, a build often with nvcc: such code is judged in one form and may run in another. Often
it only hides host code from NVRTC, so it is a note and not an error.
"""

import re
from collections.abc import Iterator

from weft.core.records import Finding, Place

_ASKED = re.compile(r"\b(?:__CUDACC_RTC__|__NVCC__|__WEFT__|WEFT)\b")
_NO_CODE = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""Comments, and strings, in which a comment cannot begin."""


def compiler_questions(text: str, path: str) -> Iterator[Finding]:
    """Yield a note for each line of a source's code that names a macro of the compiler."""
    code = _NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for line, content in enumerate(code.splitlines(), 1):
        if asked := _ASKED.search(content):
            message = f"the source tests which compiler is used ({asked[0]}): other compilers may build other code"
            yield Finding("X404", message, place=Place(path, line))
