"""Several PTX texts linked to one: nvlink's rules, and what runs afterwards, on both engines."""

import struct
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.ptx.harness import ENGINES, HEADER, Array, Engine
from weft.core.errors import CompileError, Unsupported
from weft.ptx.link import Unit, link
from weft.ptx.module import Instruction
from weft.ptx.parse import parse
from weft.vm.launch_spec import LaunchSpec
from weft.vm.layout import place_globals
from weft.vm.memory import GlobalMemory

PTXAS = (
    Path(spec.origin).parent / "backends/nvidia/bin/ptxas" if (spec := find_spec("triton")) and spec.origin else None
)

ADD = """.visible .func (.param .b32 r) add_bias(.param .b32 a)
{{ .reg .b32 %x, %y; ld.param.b32 %x, [a]; ld.global.u32 %y, [{bias}]; add.u32 %x, %x, %y; st.param.b32 [r], %x; ret; }}
"""
DECLARED = ".extern .func (.param .b32 r) add_bias(.param .b32 a);\n"
KERNEL = """.visible .entry k(.param .u64 out)
{ .reg .b32 %t, %v, %w; .reg .b64 %a, %at;
  ld.param.u64 %a, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 4; add.u64 %a, %a, %at;
  { .param .b32 arg; .param .b32 back; st.param.b32 [arg], %t; call (back), add_bias, (arg); ld.param.b32 %v, [back]; }
  ld.global.u32 %w, [own]; add.u32 %v, %v, %w;
  st.global.u32 [%a], %v; ret; }
"""


def _link(*texts: str) -> str:
    return link([Unit(f"{name}.ptx", HEADER + text) for name, text in zip("abc", texts, strict=False)])


def _run(engine: str, text: str) -> Array:
    module = parse(text)
    memory = GlobalMemory(1 << 16)
    globals_at = place_globals(module, memory)
    out = memory.allocate(4 * 64)
    memory.write(out, bytes(4 * 64))
    spec = LaunchSpec("k", (1, 1, 1), (64, 1, 1), struct.pack("<Q", out), max_steps=1 << 20)
    assert not Engine(engine, module).run(spec, memory, globals_at).findings
    return memory.read(out, 4 * 64).view(np.uint32)


THREADS = np.arange(64, dtype=np.uint32)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("turn", [False, True])
def test_a_kernel_calls_a_function_and_reads_a_variable_of_another_file(engine: str, turn: bool) -> None:
    texts = [DECLARED + ".extern .global .u32 own;\n" + KERNEL]
    texts.append(".visible .global .u32 own = 100;\n.global .u32 hidden = 7;\n" + ADD.format(bias="hidden"))
    assert np.array_equal(_run(engine, _link(*(reversed(texts) if turn else texts))), THREADS + 107)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("turn", [False, True])
def test_symbols_without_a_linking_directive_do_not_collide(engine: str, turn: bool) -> None:
    """`own` is another variable in each file, also where one is `.visible`."""
    for first, second in ((".global", ".global"), (".visible .global", ".global"), (".global", ".visible .global")):
        texts = [f"{DECLARED}{first} .u32 own = 1000;\n{KERNEL}", f"{second} .u32 own = 5;\n" + ADD.format(bias="own")]
        assert np.array_equal(_run(engine, _link(*(reversed(texts) if turn else texts))), THREADS + 1005)


def test_a_renamed_symbol_may_have_the_name_of_an_opcode_or_of_a_label() -> None:
    body = "{ .reg .b32 %x; .reg .pred %p; setp.eq.u32 %p, 0, 0; @%p bra ret; bra: ld.global.u32 %x, [bra]; ret: ret; }"
    text = _link(
        ".global .u32 bra; .global .u32 ret;", f".global .u32 bra; .global .u32 ret;\n.visible .entry k()\n{body}"
    )
    function = parse(text).functions["k"]
    opcodes = [item.opcode for item in function.body if isinstance(item, Instruction)]
    assert opcodes == ["setp.eq.u32", "bra", "ld.global.u32", "ret"]
    assert "[bra$2]" in text


@pytest.mark.parametrize("engine", ENGINES)
def test_a_local_variable_hides_a_variable_of_another_file_only_in_its_function(engine: str) -> None:
    """The kernel's own shared array is called `own`, and so is the variable that the function it calls reads."""
    kernel = KERNEL.replace(".reg .b64 %a, %at;", ".reg .b64 %a, %at; .shared .u32 own;").replace(
        "ld.global.u32 %w, [own]", "st.shared.u32 [own], 30; ld.shared.u32 %w, [own]"
    )
    text = _link(DECLARED + kernel, ".visible .global .u32 own = 5;\n" + ADD.format(bias="own"))
    assert np.array_equal(_run(engine, text), THREADS + 35)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("directives", "total"),
    [
        ((".weak", ".weak"), 10),
        ((".weak", ".visible"), 20),
        ((".visible", ".weak"), 10),
        ((".common", ".weak"), 20),
    ],
)
def test_one_definition_is_chosen(engine: str, directives: tuple[str, str], total: int) -> None:
    """A `.visible` definition first, then the first `.weak` one, then `.common`."""
    values = ("" if each == ".common" else f" = {value}" for each, value in zip(directives, (10, 20), strict=True))
    first, second = (f"{each} .global .u32 own{value};\n" for each, value in zip(directives, values, strict=True))
    text = _link(first, second, ".extern .global .u32 own;\n.global .u32 zero;\n" + ADD.format(bias="zero") + KERNEL)
    assert np.array_equal(_run(engine, text), THREADS + total)
    assert text.count(".u32 own") == 1


def test_the_largest_common_variable_is_allocated_once() -> None:
    text = _link(
        ".common .global .align 4 .b8 c[8];", ".common .global .align 16 .b8 c[32];", ".extern .global .b8 c[];"
    )
    assert [(each.size_bytes, each.align) for each in parse(text).variables] == [(32, 16)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pointer_to_a_function_of_another_file_is_called(engine: str) -> None:
    """Its address is in a variable of a third file."""
    kernel = KERNEL.replace("call (back), add_bias, (arg);", "ld.global.u64 %f, [chosen];\n call (back), %f, (arg), P;")
    kernel = kernel.replace("{ .param", "{ .reg .b64 %f; P: .callprototype (.param .b32 _) _ (.param .b32 _);\n .param")
    text = _link(
        ".extern .global .u64 chosen;\n.global .u32 own = 1;\n" + kernel,
        f"{DECLARED}.visible .global .u64 chosen = add_bias;",
        ".global .u32 own = 50;\n" + ADD.format(bias="own"),
    )
    assert np.array_equal(_run(engine, text), THREADS + 51)


def test_places_keep_their_file_and_line() -> None:
    """Both files call their source number 1; one shares a header with the other."""
    lines = '.file 1 "{name}.cu"\n.file 2 "shared.h"\n.func {name}()\n{{ .loc 1 {line} 0\n'
    lines += "trap;\n.loc 2 5 0, function_name $L0, inlined_at 1 {line} 0\ntrap; ret; }}\n"
    strings = ".section .debug_str\n{ $L0: .b8 102,0 }\n"
    text = _link(*(lines.format(name=name, line=line) + strings for name, line in (("f", 10), ("g", 20))))
    module = parse(text)
    places = {name: [str(item.place) for item in module.functions[name].body] for name in "fg"}  # type: ignore[union-attr]
    assert places["f"] == ["f.cu:10", *["shared.h:5 (inlined at f.cu:10)"] * 2]
    assert places["g"] == ["g.cu:20", *["shared.h:5 (inlined at g.cu:20)"] * 2]
    assert set(module.files.values()) == {"f.cu", "g.cu", "shared.h"}


def test_a_text_without_lines_of_its_source_gets_its_own() -> None:
    body = (
        ".visible .entry {}()\n{{\n .reg .pred %p;\n setp.eq.u32 %p, 0, 0;\nL:\n @%p\n trap; trap;\n {{ bra L; }}\n}}\n"
    )
    module = parse(_link(body.format("k"), "\n\n" + body.format("m")))
    start = HEADER.count("\n")
    for name, file, skipped in (("k", "a.ptx", 0), ("m", "b.ptx", 2)):
        body_lines = [
            item.place.line for item in module.functions[name].body if isinstance(item, Instruction) and item.place
        ]
        assert body_lines == [start + skipped + line for line in (4, 6, 7, 8)]
        assert {
            item.place.file for item in module.functions[name].body if isinstance(item, Instruction) and item.place
        } == {file}


WRONG = {
    "undefined function": (
        (DECLARED + ".global .u32 own;\n" + KERNEL,),
        "add_bias is used in a.ptx, but no file defines it",
    ),
    "undefined variable": (
        (".extern .global .u32 own;\n.global .u32 zero;\n" + ADD.format(bias="zero") + KERNEL,),
        "own is used in a.ptx, but no file defines it",
    ),
    "mangled": (
        (".extern .func _Z4helpf(.param .b32 a);\n.visible .entry k()\n{ .param .b32 p; call _Z4helpf, (p); ret; }",),
        "help (_Z4helpf) is used in a.ptx",
    ),
    "two functions": ((ADD.format(bias="b"),) * 2, "add_bias has several definitions, in a.ptx and b.ptx"),
    "two variables": ((".visible .global .u32 x;",) * 2, "x has several definitions, in a.ptx and b.ptx"),
    "two static kernels": ((".entry k()\n{ ret; }",) * 2, "two files have a kernel k"),
    "prototype": (
        (DECLARED, ".visible .func (.param .b64 r) add_bias(.param .b64 a, .param .b32 b)\n{ ret; }"),
        "add_bias differs between b.ptx and a.ptx: parameters → results of (8, 4) → (8) and of (4) → (4) bytes",
    ),
    "size": (
        (".extern .global .b8 x[16];", ".visible .global .b8 x[8];"),
        "x differs between b.ptx and a.ptx: 8 and 16 bytes",
    ),
    "state space": ((".extern .const .u32 x;", ".visible .global .u32 x;"), ".global and .const"),
    "syntax": ((".visible .global .u32 x", ""), "a.ptx: PTX line"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_nvlink_refuses_is_refused_with_names(name: str) -> None:
    texts, message = WRONG[name]
    with pytest.raises(CompileError) as error:
        _link(*texts)
    assert message in str(error.value)


def test_every_problem_is_reported() -> None:
    with pytest.raises(CompileError, match=r"\(and 1 more\)") as error:
        _link(DECLARED + ".extern .global .u32 own;\n" + KERNEL)
    assert [each.message.split()[0] for each in error.value.diagnostics] == ["add_bias", "own"]


def test_what_is_declared_and_not_used_needs_no_definition() -> None:
    text = _link(DECLARED + ".extern .global .u32 own;", ".visible .entry k()\n{ ret; }")
    assert not parse(text).variables


def test_functions_of_the_device_runtime_stay_external() -> None:
    printf = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
    kernel = (
        ".visible .entry {}()\n{{ .param .b32 r; .param .b64 a; .param .b64 b; call (r), vprintf, (a, b); ret; }}\n"
    )
    text = _link(printf + kernel.format("k"), printf + kernel.format("m"))
    assert text.count(".extern .func") == 1 and parse(text).functions["vprintf"].extern


def test_dynamic_shared_memory_of_two_files_is_one_block() -> None:
    text = _link(".extern .shared .align 4 .b8 s[];", ".extern .shared .align 16 .b8 s[];")
    assert [(each.name, each.align, each.count) for each in parse(text).variables] == [("s", 16, 0)]


def test_the_newest_version_and_target_are_taken() -> None:
    old, new = (
        f".version {v}\n.target {t}\n.address_size 64\n" for v, t in (("7.8", "sm_80"), ("8.5", "sm_89, debug"))
    )
    module = parse(link([Unit("a.ptx", new), Unit("b.ptx", old)]))
    assert (module.version, module.target) == ((8, 5), "sm_89")


def test_only_a_launched_kernel_must_be_supported() -> None:
    """A body that Weft does not read is passed on; a declaration that it cannot compare is refused with the file."""
    text = _link(
        ".visible .entry strange()\n{ .reg .b32 %x; frobnicate.b32 %x; ret; }", ".visible .entry k()\n{ ret; }"
    )
    assert parse(text).functions["strange"].refused is not None
    with pytest.raises(Unsupported, match=r"b\.ptx: parameters in registers"):
        _link("", ".visible .func f(.reg .b32 a)\n{ ret; }")


@pytest.mark.skipif(PTXAS is None or not PTXAS.is_file(), reason="ptxas comes with Triton, which is optional")
def test_ptxas_accepts_the_result(tmp_path: Path) -> None:
    """ptxas refuses an `.extern` declaration of what the file defines, and names without a declaration before them."""
    kernel = DECLARED + ".extern .global .u32 own;\n.extern .global .u64 chosen[2];\n.global .u32 zero;\n" + KERNEL
    lines = '.file 1 "f.cu"\n.visible .func f()\n{ .loc 1 3 0\n ret; }\n.section .debug_str\n{ $L0: .b8 102,0 }\n'
    table = f"{DECLARED}.extern .func f();\n.visible .global .u64 chosen[2] = {{add_bias, f}};\n"
    ours = ".visible .global .u32 own = 4;\n.global .u32 zero = 3;\n" + ADD.format(bias="zero")
    (tmp_path / "k.ptx").write_text(_link(kernel, table + lines, ours))
    command = [str(PTXAS), "-arch=sm_89", "k.ptx", "-o", "k.cubin"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
