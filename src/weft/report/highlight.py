"""Source text → lines of coloured spans. It reads words, comments and strings, no more."""

import re

from .markup import Markup, join, tag

_C_WORDS = (
    "alignas alignof asm auto bool break case char class const constexpr continue decltype default delete do double "
    "else enum explicit extern false float for goto half if inline int long namespace new nullptr operator private "
    "public register return short signed sizeof size_t static static_assert static_cast reinterpret_cast struct switch "
    "template this true typedef typename union unsigned using virtual void volatile while uint8_t uint16_t uint32_t "
    "uint64_t int8_t int32_t int64_t __global__ __device__ __host__ __shared__ __constant__ __restrict__ "
    "__forceinline__ __launch_bounds__ __noinline__ __syncthreads __syncwarp"
)
_PYTHON_WORDS = (
    "False None True and as assert async await break class continue def del elif else except finally for from global "
    "if import in is lambda nonlocal not or pass raise return try while with yield"
)
_NUMBER = r"(?<![\w.])(?:0[xX][0-9a-fA-F']+|\d[\d']*(?:\.\d*)?(?:[eE][+-]?\d+)?)[fFuUlL]*\b"
_CUDA = re.compile(
    r"(?P<m>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r'|(?P<s>"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)\')'
    r"|(?P<p>^[ \t]*\#[ \t]*\w+)"
    rf"|(?P<k>\b(?:{'|'.join(_C_WORDS.split())})\b)"
    rf"|(?P<d>{_NUMBER})",
    re.MULTILINE | re.DOTALL,
)
_PTX = re.compile(
    rf"(?P<m>//[^\n]*|/\*.*?(?:\*/|\Z))|(?P<p>^[ \t]*\.\w+)|(?P<s>%\w[\w.]*)|(?P<d>{_NUMBER})", re.MULTILINE | re.DOTALL
)
_PYTHON = re.compile(
    r'(?P<s>"""(?:.*?)(?:"""|\Z)|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\')'
    r"|(?P<m>\#[^\n]*)"
    r"|(?P<p>^[ \t]*@[\w.]+)"
    rf"|(?P<k>\b(?:{'|'.join(_PYTHON_WORDS.split())})\b)"
    rf"|(?P<d>{_NUMBER})",
    re.MULTILINE | re.DOTALL,
)
_LANGUAGES = {"cuda": _CUDA, "ptx": _PTX, "python": _PYTHON}


def highlighted(text: str, language: str) -> list[Markup]:
    """One piece of HTML per line; a comment over several lines is a span in each."""
    lines: list[list[str]] = [[]]
    at = 0
    for found in _LANGUAGES[language].finditer(text):
        _put(lines, text[at : found.start()], None)
        _put(lines, found.group(), found.lastgroup)
        at = found.end()
    _put(lines, text[at:], None)
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return [join(parts) for parts in lines]


def _put(lines: list[list[str]], text: str, kind: str | None) -> None:
    for number, piece in enumerate(text.split("\n")):
        if number:
            lines.append([])
        if piece:
            lines[-1].append(tag("span", piece, class_=kind) if kind else piece)
