"""PTX → what two texts have in common that do the same in the same order: no names, no line information, no layout.

Registers, labels and symbols are numbered by their first appearance, registers anew in every function.
"""

import re

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEBUG_SECTION = re.compile(r"\.section\s+\.debug\w*\s*\{[^}]*\}")
_LINE_INFO = re.compile(r"^[ \t]*\.(?:loc|file)\b[^\n]*$", re.MULTILINE)
_REGISTERS = re.compile(r"\.reg\s+[.\w\s]*?(%\w+)(?:<\d+>)?((?:\s*,\s*%\w+(?:<\d+>)?)*)\s*;")
_SYMBOL = re.compile(
    r"\.(?:entry|func(?:\s*\([^)]*\))?|param|shared|global|const|local)\b((?:\s+\.(?:align\s+\d+|\w+))*)\s+([A-Za-z_$][\w$]*)"
)
_TOKEN = re.compile(r'"[^"]*"|%[\w$]+|[A-Za-z_$][\w$]*|\.\w+|0[fFdDxX][0-9a-fA-F]+|\d+|\S')
_FUNCTIONS = (".entry", ".func")


def canonical_text(ptx: str) -> str:
    """The tokens that are left, one space apart."""
    text = _DEBUG_SECTION.sub(" ", _COMMENT.sub(" ", ptx))
    text = _LINE_INFO.sub(" ", text)
    prefixes = {name for match in _REGISTERS.finditer(text) for name in re.findall(r"%[A-Za-z_]\w*", match[0])}
    text = _REGISTERS.sub(" ", text)
    symbols = {match[2] for match in _SYMBOL.finditer(text)}
    numbered: dict[str, str] = {}
    registers: dict[str, str] = {}
    tokens = []
    for token in _TOKEN.findall(text):
        if token in _FUNCTIONS:
            registers = {}
        if token.startswith("%"):
            if token in prefixes or token.rstrip("0123456789") in prefixes:
                token = registers.setdefault(token, f"%{len(registers)}")
        elif token in symbols or token.startswith("$L"):
            token = numbered.setdefault(token, f"n{len(numbered)}")
        tokens.append(token)
    return " ".join(tokens)
