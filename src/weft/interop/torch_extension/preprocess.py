"""The host's view of a CUDA file: macros expanded, `#if` decided as nvcc's host pass decides it.

    #define BIND(T) void f_##T(at::Tensor x) { k_##T<<<1, 32>>>(…); }
    BIND(half)                      →   void f_half(at::Tensor x) { k_half<<<1, 32>>>(…); }

Device code is not taken from here: NVRTC preprocesses it itself. A macro of the user's file that is a plain integer
stays a name, so that launch lines can define it. Tokens keep the line of the macro's use.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from weft.core.errors import Unsupported

from .cpp_tokens import CppSource, Token, pair_tokens, scan_tokens

_DEFINE = re.compile(r"#\s*define\s+(\w+)(\([^)]*\))?(.*)", re.DOTALL)
_MOST_TOKENS = 2_000_000
PREDEFINED: Mapping[str, str] = {
    "__CUDACC__": "1", "__NVCC__": "1", "__cplusplus": "201703", "__CUDACC_VER_MAJOR__": "12",
    "__CUDACC_VER_MINOR__": "8", "CUDART_VERSION": "12080", "CUDA_VERSION": "12080", "__linux__": "1", "NDEBUG": "",
    "TORCH_EXTENSION_NAME": "extension",
}  # fmt: skip
"""Macros that nvcc defines for the host; `__CUDA_ARCH__` is not one of them."""


@dataclass(frozen=True)
class _Piece:
    """A token during expansion: whether a space precedes it, and the macros that must not expand it again."""

    kind: str
    text: str
    line: int
    space: bool
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Macro:
    parameters: tuple[str, ...] | None
    body: tuple[_Piece, ...]
    variadic: bool = False


@dataclass(frozen=True)
class HostText:
    """The tokens of the host pass, and the integers that stayed macros."""

    source: CppSource
    integers: Mapping[str, str]
    unset: Mapping[int, str] = field(default_factory=dict)
    """Line of an `#if` that was decided by a macro that nothing defines → the macro."""
    left_out: tuple[Token, ...] = ()
    """Tokens that an `#if` leaves out of both passes: its condition does not name the architecture."""


def preprocess(tokens: Sequence[Token], path: str, lines: Sequence[int], own: Sequence[bool]) -> HostText:
    """Expand a file's tokens. `lines` and `own` give, for each line of the text, the line of the user's file that it
    belongs to, and whether it is in that file itself."""
    state = _State(path, _integers(tokens, own))
    for name, text in PREDEFINED.items():
        state.macros[name] = _Macro(None, tuple(_pieces(text, 0, path)))
    pending: list[_Piece] = []
    done: list[_Piece] = []
    left_out: list[Token] = []
    previous_end = 0
    for token in tokens:
        line = lines[min(token.line, len(lines)) - 1]
        if token.kind == "directive":
            # A macro's arguments may continue after a directive, but an #if selects single tokens.
            if _balanced(pending):
                done += state.expand(pending)
                pending = []
            state.directive(token.text, line)
        elif all(state.active):
            pending.append(_Piece(token.kind, token.text, line, token.start != previous_end))
        elif not any(state.of_arch):
            left_out.append(token)
        previous_end = token.end
        if len(done) > _MOST_TOKENS:
            raise Unsupported(f"{path}:{line}: macros expand without end")
    done += state.expand(pending)
    return HostText(_source(done, path), state.integers, state.unset, tuple(left_out))


def _balanced(pieces: Sequence[_Piece]) -> bool:
    return sum(piece.text in "([" for piece in pieces if piece.kind == "punct") == sum(
        piece.text in ")]" for piece in pieces if piece.kind == "punct"
    )


def _source(pieces: Sequence[_Piece], path: str) -> CppSource:
    parts: list[str] = []
    tokens: list[Token] = []
    at = 0
    for piece in pieces:
        if piece.space:
            parts.append(" ")
            at += 1
        parts.append(piece.text)
        tokens.append(Token(piece.kind, piece.text, at, at + len(piece.text), piece.line))
        at += len(piece.text)
    return pair_tokens(tuple(tokens), "".join(parts), path)


def _pieces(text: str, line: int, path: str) -> list[_Piece]:
    found: list[_Piece] = []
    end = 0
    for token in scan_tokens(text, path, directives=False):
        if token.text == "#" and token.start == end and found and found[-1].text == "#":
            found[-1] = replace(found[-1], text="##")
        else:
            found.append(_Piece(token.kind, token.text, line, token.start != end))
        end = token.end
    return found


def _integers(tokens: Sequence[Token], own: Sequence[bool]) -> dict[str, str]:
    """Return macros of the user's file that are integers, defined once and never only inside an #if."""
    found: dict[str, str] = {}
    spoilt: set[str] = set()
    for token in tokens:
        if token.kind != "directive":
            continue
        undone = re.match(r"#\s*undef\s+(\w+)", token.text)
        match = _DEFINE.match(token.text)
        if undone:
            spoilt.add(undone[1])
        if match is None:
            continue
        text = re.sub(r"/\*.*?\*/|//.*", " ", match[3].replace("\\\n", " "), flags=re.DOTALL).strip()
        words = set(re.findall(r"[A-Za-z_]\w*", re.sub(r"\b0[xX][0-9a-fA-F]+[uUlL]*|\b\d+[uUlL]*\b", "0", text)))
        plain = bool(text) and re.fullmatch(r"[\w\s()+*/<>-]+", text) is not None and not re.search(r"\d\.", text)
        if match[2] or match[1] in found or not plain or not own[min(token.line, len(own)) - 1]:
            spoilt.add(match[1])
        elif words <= set(found) and re.search(r"\d|\w", text):
            found[match[1]] = text
        else:
            spoilt.add(match[1])
    return {name: text for name, text in found.items() if name not in spoilt}


@dataclass
class _State:
    path: str
    integers: dict[str, str]
    macros: dict[str, _Macro] = field(default_factory=dict)
    active: list[bool] = field(default_factory=list)
    taken: list[bool] = field(default_factory=list)
    of_arch: list[bool] = field(default_factory=list)
    unset: dict[int, str] = field(default_factory=dict)

    # Directives.
    def directive(self, text: str, line: int) -> None:
        match = re.match(r"#\s*(\w+)[ \t]*(.*)", text.replace("\\\n", " ").replace("\\\r\n", " "), re.DOTALL)
        if match is None:
            return
        word, rest = match[1], re.sub(r"/\*.*?\*/|//.*", " ", match[2], flags=re.DOTALL).strip()
        if word in ("if", "ifdef", "ifndef"):
            outside = all(self.active)
            holds = outside and self._condition(word, rest, line)
            self.active.append(holds)
            self.taken.append(holds)
            self.of_arch.append("__CUDA_ARCH" in rest)
        elif word in ("elif", "else") and self.active:
            self.active.pop()
            holds = not self.taken[-1] and all(self.active) and (word == "else" or self._condition("if", rest, line))
            self.active.append(holds)
            self.taken[-1] = self.taken[-1] or holds
            self.of_arch[-1] = self.of_arch[-1] or "__CUDA_ARCH" in rest
        elif word == "endif" and self.active:
            self.active.pop()
            self.taken.pop()
            self.of_arch.pop()
        elif word == "define" and all(self.active):
            self._define(text)
        elif word == "undef" and all(self.active):
            self.macros.pop(rest, None)

    def _define(self, text: str) -> None:
        match = _DEFINE.match(text.replace("\\\r\n", " ").replace("\\\n", " "))
        if match is None:
            return
        names: tuple[str, ...] | None = None
        if match[2] is not None:
            names = tuple(name.strip() for name in match[2][1:-1].split(",") if name.strip())
        variadic = bool(names) and names[-1].endswith("...")  # type: ignore[index]
        if variadic and names is not None:
            names = (*names[:-1], names[-1].removesuffix("...") or "__VA_ARGS__")
        self.macros[match[1]] = _Macro(names, tuple(_pieces(match[3].strip(), 0, self.path)), variadic)

    def _condition(self, word: str, text: str, line: int) -> bool:
        if word != "if":
            name = text.split()[0] if text.split() else ""
            if name not in self.macros and word == "ifdef":
                self.unset[line] = name
            return (name in self.macros) == (word == "ifdef")
        text = re.sub(r"\bdefined\s*\(?\s*(\w+)\s*\)?", lambda m: str(int(self._known(m[1], line))), text)
        text = re.sub(r"__has_include\s*\([^)]*\)", "0", text)
        pieces = self.expand(_pieces(text, line, self.path), everything=True)
        return _evaluate(pieces)

    def _known(self, name: str, line: int) -> bool:
        if name not in self.macros:
            self.unset[line] = name
        return name in self.macros

    # Expansion by Prosser's algorithm: a token carries the macros it came from.
    def expand(self, pieces: Sequence[_Piece], *, everything: bool = False) -> list[_Piece]:
        waiting = list(reversed(pieces))
        done: list[_Piece] = []
        while waiting:
            if len(done) > _MOST_TOKENS:
                raise Unsupported(f"{self.path}:{done[-1].line}: macros expand without end")
            piece = waiting.pop()
            macro = self.macros.get(piece.text) if piece.kind == "word" else None
            if macro is None or piece.text in piece.hidden or (piece.text in self.integers and not everything):
                done.append(piece)
                continue
            hidden = piece.hidden | {piece.text}
            if macro.parameters is None:
                replaced = [replace(each, hidden=each.hidden | hidden) for each in macro.body]
                body = self._paste(replaced)
            else:
                if not waiting or waiting[-1].text != "(":
                    done.append(piece)
                    continue
                arguments = self._arguments(waiting, macro)
                if arguments is None:
                    done.append(piece)
                    continue
                body = self._substitute(macro, arguments, hidden, everything)
            placed = [replace(each, line=piece.line) for each in body]
            if placed:
                placed[0] = replace(placed[0], space=piece.space)
            waiting += reversed(placed)
        return done

    def _arguments(self, waiting: list[_Piece], macro: _Macro) -> list[list[_Piece]] | None:
        """Take the arguments after a macro's name from the waiting tokens; None if their bracket does not close."""
        arguments: list[list[_Piece]] = [[]]
        depth, at = 0, len(waiting) - 1
        assert macro.parameters is not None
        while at >= 0:
            piece = waiting[at]
            if piece.kind == "punct" and piece.text in "([{":
                depth += 1
                if depth == 1:
                    at -= 1
                    continue
            elif piece.kind == "punct" and piece.text in ")]}":
                depth -= 1
                if not depth:
                    del waiting[at:]
                    break
            last = macro.variadic and len(arguments) == len(macro.parameters)
            # Braces do not protect a comma from the preprocessor, but a lambda's body is always the last argument.
            if piece.text == "," and depth == 1 and piece.kind == "punct" and not last:
                arguments.append([])
            else:
                arguments[-1].append(piece)
            at -= 1
        else:
            return None
        if not macro.parameters and arguments == [[]]:
            return []
        while len(arguments) < len(macro.parameters):
            arguments.append([])
        return arguments

    def _substitute(
        self, macro: _Macro, arguments: list[list[_Piece]], hidden: frozenset[str], everything: bool
    ) -> list[_Piece]:
        assert macro.parameters is not None
        given = dict(zip(macro.parameters, arguments, strict=False))
        body, done = macro.body, list[_Piece]()
        at = 0
        while at < len(body):
            piece = body[at]
            after = body[at + 1] if at + 1 < len(body) else None
            if piece.text == "#" and after is not None and after.text in given:
                text = " ".join(each.text for each in given[after.text])
                done.append(_Piece("string", '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"', 0, True))
                at += 2
            elif piece.text == "__VA_OPT__" and after is not None and after.text == "(":
                close = _closing(body, at + 1)
                if given.get("__VA_ARGS__"):
                    inner = replace(macro, body=body[at + 2 : close])
                    done += self._substitute(inner, arguments, hidden, everything)
                at = close + 1
            elif piece.kind == "word" and piece.text in given:
                pasted = _is_paste(body, at + 1) or _is_paste(body, at - 1)
                value = given[piece.text]
                value = value if pasted else self.expand(value, everything=everything)
                if value:
                    done += [replace(value[0], space=piece.space or (value[0].space and not pasted)), *value[1:]]
                elif pasted:
                    done.append(_Piece("empty", "", 0, False))
                at += 1
            else:
                done.append(piece)
                at += 1
        done = self._paste(done)
        return [replace(each, hidden=each.hidden | hidden) for each in done]

    def _paste(self, pieces: list[_Piece]) -> list[_Piece]:
        """`a ## b` → `ab`; `, ## __VA_ARGS__` without arguments loses its comma."""
        done: list[_Piece] = []
        at = 0
        while at < len(pieces):
            if _is_paste(pieces, at) and done and at + 1 < len(pieces):
                left, right = done.pop(), pieces[at + 1]
                text = left.text + right.text
                if left.text == ",":
                    done += [left, replace(right, space=True)] if right.kind != "empty" else []
                elif text:
                    made = _pieces(text, left.line, self.path)
                    done += [replace(made[0], space=left.space, hidden=left.hidden & right.hidden), *made[1:]]
                else:
                    done.append(left)
                at += 2
            else:
                done.append(pieces[at])
                at += 1
        return [piece for piece in done if piece.kind != "empty"]


def _is_paste(pieces: Sequence[_Piece], at: int) -> bool:
    return 0 <= at < len(pieces) and pieces[at].text == "##" and pieces[at].kind == "punct"


def _closing(pieces: Sequence[_Piece], at: int) -> int:
    depth = 0
    for place in range(at, len(pieces)):
        depth += (pieces[place].text == "(") - (pieces[place].text == ")")
        if not depth:
            return place
    return len(pieces)


_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def _evaluate(pieces: Sequence[_Piece]) -> bool:
    """Return the value of an #if: a word that is not a macro is 0, and so is anything that is not arithmetic."""
    words = []
    for piece in pieces:
        if piece.kind == "word":
            words.append("1" if piece.text == "true" else "0")
        elif piece.kind == "number":
            words.append(re.sub(r"[uUlL']+", "", piece.text))
        elif piece.text in ("<", ">") and words[-1:] == [piece.text] and not piece.space:
            words[-1] += piece.text  # a shift is two tokens
        else:
            words.append({"&&": " and ", "||": " or ", "!": " not ", "/": "//"}.get(piece.text, piece.text))
    try:
        return bool(_number(ast.parse(" ".join(words).strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError):
        return False


def _number(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.BoolOp(op=ast.And(), values=values):
            return int(all(_number(each) for each in values))
        case ast.BoolOp(values=values):
            return int(any(_number(each) for each in values))
        case ast.UnaryOp(op=ast.Not(), operand=value):
            return int(not _number(value))
        case ast.UnaryOp(op=ast.USub(), operand=value):
            return -_number(value)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return int(_OPERATORS[type(sign)](_number(left), _number(right)))
        case ast.Compare(left=left, ops=[sign], comparators=[right]):
            return int(_OPERATORS[type(sign)](_number(left), _number(right)))
    raise ValueError
