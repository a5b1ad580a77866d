"""mov, ld, ldu, st, cvta, isspacep, prefetch and cp.async on every engine."""

import numpy as np
import pytest

import weft
from tests.in_turn import one_in
from tests.ptx.harness import HEADER, Array, check, check_body, random_values
from weft.core.records import Binary, Run
from weft.engines.launch import Launch
from weft.engines.protocol import RunOptions
from weft.probes import InitCheck, Probes, RaceCheck
from weft.profile.kernel_match import match_kernel
from weft.ptx.module import WIDTH

N = 1024
INTS = ["b8", "b16", "b32", "b64", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"]
LOADED = [*INTS, "f16", "f32", "f64"]
EVICT = ["L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"]
PREFETCH = ["L2::64B", "L2::128B", "L2::256B"]
SPACES = ["global", "shared", "shared::cta", "local", "param", "param::func", "const", ""]

MOVES = [f"mov.{t}" for t in ["pred", "b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"]]


def _dotted(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _shapes(types: list[str]) -> list[tuple[str, str]]:
    return [(v, t) for v in ("", "v2", "v4") for t in types if int(v[1:] or 1) * WIDTH[t] <= 128]


LOADS = {
    space: [
        *(_dotted("ld", space, v, t) for v, t in _shapes(LOADED)),
        *(_dotted("ld.weak", space, cop, "v2.u32") for cop in ["ca", "cg", "cs", "lu", "cv"]),
        *(_dotted("ld", space, evict, prefetch, "u32") for evict in EVICT for prefetch in PREFETCH),
        *(_dotted("ld.volatile", space, v, t) for v, t in (("", "s8"), ("v2", "f64"), ("v4", "b32"))),
        *(
            _dotted("ld", order, scope, space, "u32")
            for order in ("relaxed", "acquire")
            for scope in ["cta", "cluster", "gpu", "sys"]
        ),
    ]
    for space in SPACES
}
NC_LOADS = [
    *(_dotted("ld.global.nc", v, t) for v, t in _shapes(LOADED)),
    *(_dotted("ld.global", cop, "nc.v4.f32") for cop in ("ca", "cg", "cs")),
    *(_dotted("ld.global.nc", evict, prefetch, "b64") for evict in EVICT for prefetch in PREFETCH),
]
HINTED_LOADS = [
    "ld.global.L1::evict_last.L2::cache_hint.L2::128B.v4.b32",
    "ld.global.L2::cache_hint.u8",
    "ld.global.nc.L1::no_allocate.L2::cache_hint.v2.b32",
]
UNIFORM_LOADS = {
    space: [_dotted("ldu", space, v, t) for v, t in _shapes([*INTS, "f32", "f64"])] for space in ("global", "")
}
STORED_SPACES = ["global", "shared", "shared::cta", "local", "param", ""]
STORES = {
    space: [
        *(_dotted("st", space, v, t) for v, t in _shapes(LOADED)),
        *(_dotted("st.weak", space, cop, "v2.u32") for cop in ["wb", "cg", "cs", "wt"]),
        *(_dotted("st", space, evict, "b16") for evict in EVICT),
        *(_dotted("st.volatile", space, v, t) for v, t in (("", "s8"), ("v2", "f64"), ("v4", "b32"))),
        *(
            _dotted("st", order, scope, space, "u32")
            for order in ("relaxed", "release")
            for scope in ["cta", "cluster", "gpu", "sys"]
        ),
    ]
    for space in STORED_SPACES
}
CONVERSIONS = [f"cvta{to}.{s}.u64" for to in ("", ".to") for s in ["const", "global", "local", "shared", "param"]]
PREDICATES = [f"isspacep.{space}" for space in ["const", "global", "local", "shared", "param"]]
POLICIES = [
    "createpolicy.fractional.L2::evict_last.b64",
    "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64",
]
PREFETCHES = [
    "prefetch.tensormap",
    *(_dotted("prefetch", space, level) for space in ("", "global", "local") for level in ("L1", "L2")),
]
COPIES = [
    *(f"cp.async.{cop}.{space}.global" for cop in ("ca", "cg") for space in ("shared", "shared::cta")),
    *(f"cp.async.cg.shared.global.{prefetch}" for prefetch in PREFETCH),
    "cp.async.cg.shared.global.L2::cache_hint",
    "cp.async.ca.shared.global.L2::cache_hint.L2::128B",
    "cp.async.commit_group",
    "cp.async.wait_group",
    "cp.async.wait_all",
]
OPCODES = [
    *MOVES,
    *(op for ops in LOADS.values() for op in ops),
    "ld.param::entry.u64",
    *NC_LOADS,
    *HINTED_LOADS,
    *(op for ops in UNIFORM_LOADS.values() for op in ops),
    *(op for ops in STORES.values() for op in ops),
    "st.global.L1::evict_first.L2::cache_hint.b32",
    *CONVERSIONS,
    *PREDICATES,
    *POLICIES,
    *PREFETCHES,
    *COPIES,
]

CONSTANT = bytes((7 * i + 3) % 256 for i in range(2048))
BUFFERS = (
    ".global .align 16 .b8 gbuf[16384];\n.shared .align 16 .b8 sbuf[2048];\n"
    f".const .align 16 .b8 cbuf[2048] = {{{', '.join(map(str, CONSTANT))}}};"
)
DECLARATIONS = (
    ".local .align 16 .b8 lbuf[16];\n.param .align 16 .b8 pbuf[16];\n"
    ".reg .b64 %base, %off, %policy;\nmov.b64 %policy, 0;"
)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def _address(space: str) -> str:
    """Return PTX that puts the address of the lane's own 16 bytes of `space` in %base."""
    kind = space.partition("::")[0]
    if kind in ("local", "param"):
        name = {"local": "lbuf", "param": "pbuf"}[kind]
        return f"mov.u64 %base, {name};"
    name = {"global": "gbuf", "": "gbuf", "shared": "sbuf", "const": "cbuf"}[kind]
    index = "%tid" if name == "gbuf" else "%t0"
    convert = "cvta.global.u64 %base, %base;" if not kind else ""
    return (
        f"mov.u32 %t0, %tid.x;\nmul.wide.u32 %off, {index}, 16;\nmov.u64 %base, {name};\n"
        f"add.u64 %base, %base, %off;{convert}"
    )


def _memory_operand(space: str) -> str:
    return "[pbuf]" if space.startswith("param") else "[%base]"


def _members(opcode: str) -> tuple[int, str]:
    parts = opcode.split(".")
    return int(parts[-2][1:]) if parts[-2] in ("v2", "v4") else 1, parts[-1]


def _register(ptx_type: str) -> str:
    """Sub-word integers are in 32-bit registers, so that the extension is visible."""
    return "b32" if WIDTH[ptx_type] < 32 and ptx_type != "f16" else f"b{WIDTH[ptx_type]}"


def _expected(raw: Array, opcode: str) -> list[Array]:
    """Return the members of a load from (n, 16) bytes, extended to the register."""
    count, ptx_type = _members(opcode)
    size = WIDTH[ptx_type] // 8
    kind = "int" if ptx_type[0] == "s" else "uint"
    out = []
    for member in range(count):
        part = np.ascontiguousarray(raw[:, member * size : (member + 1) * size]).view(f"{kind}{8 * size}").ravel()
        width = WIDTH[_register(ptx_type)]
        out.append(part.astype(f"{kind}{width}").view(f"uint{width}"))
    return out


def _load_outputs(opcodes: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the output registers of all loads, and the destination operand of each."""
    outputs, operands = {}, []
    for number, opcode in enumerate(opcodes):
        count, ptx_type = _members(opcode)
        names = [f"d{number}_{member}" for member in range(count)]
        outputs |= {name: _register(ptx_type) for name in names}
        listed = ", ".join(f"%{name}" for name in names)
        operands.append(f"{{{listed}}}" if count > 1 else listed)
    return outputs, operands


@pytest.mark.parametrize("opcode", MOVES)
def test_mov(opcode: str, rng: np.random.Generator) -> None:
    a = random_values(opcode.split(".")[1], N, rng)
    bits = check(opcode, {"a": a})["d"]
    assert bits.tobytes() == a.tobytes()


@pytest.mark.parametrize(("whole", "part", "count"), [("b32", "b16", 2), ("b64", "b32", 2), ("b64", "b16", 4)])
def test_mov_packs_and_unpacks(whole: str, part: str, count: int, rng: np.random.Generator) -> None:
    members = {f"m{i}": (part, random_values(part, N, rng)) for i in range(count)}
    outputs = {"d": whole, **{f"e{i}": part for i in range(count)}}
    listed = ", ".join(f"%m{i}" for i in range(count))
    unpacked = ", ".join(["_", *(f"%e{i}" for i in range(1, count))])
    ran = check_body(
        f"mov.{whole} %d, {{{listed}}};\nmov.{whole} {{{unpacked}}}, %d;\n"
        f"mov.{whole} {{%e0, {', '.join(['_'] * (count - 1))}}}, %d;",
        members,
        outputs,
    )
    width = WIDTH[part]
    total = sum(values.astype(object) << (width * i) for i, (_, values) in enumerate(members.values()))
    assert ran.outputs["d"].tolist() == list(total)
    for i, (_, values) in enumerate(members.values()):
        np.testing.assert_array_equal(ran.outputs[f"e{i}"], values)


@pytest.mark.parametrize("space", one_in(4, SPACES))
def test_ld(space: str, rng: np.random.Generator) -> None:
    lo, hi = random_values("b64", N, rng), random_values("b64", N, rng)
    opcodes = LOADS[space]
    outputs, operands = _load_outputs(opcodes)
    at = _memory_operand(space)
    fill = ""
    if space != "const":
        base = space.partition("::")[0] or "generic"
        st = "st" if base == "generic" else f"st.{base}"
        fill = f"{st}.b64 {at}, %lo;\n{st}.b64 {at[:-1]}+8], %hi;"
    loads = "\n".join(f"{opcode} {operand}, {at};" for opcode, operand in zip(opcodes, operands, strict=True))
    ran = check_body(
        f"{_address(space)}\n{fill}\n{loads}",
        {"lo": ("b64", lo), "hi": ("b64", hi)},
        outputs,
        declarations=DECLARATIONS,
        module_scope=BUFFERS,
    )
    raw = np.stack([lo, hi], axis=1).view(np.uint8).reshape(N, 16)
    if space == "const":
        raw = np.tile(np.frombuffer(CONSTANT, np.uint8).reshape(128, 16), (N // 128, 1))
    _compare_loads(ran.outputs, raw, opcodes)
    assert not ran.findings


def _compare_loads(outputs: dict[str, Array], raw: Array, opcodes: list[str]) -> None:
    for number, opcode in enumerate(opcodes):
        for member, expected in enumerate(_expected(raw, opcode)):
            np.testing.assert_array_equal(outputs[f"d{number}_{member}"], expected, opcode)


def test_ld_nc_and_cache_hints(rng: np.random.Generator) -> None:
    lo, hi = random_values("b64", N, rng), random_values("b64", N, rng)
    opcodes = [*NC_LOADS, *HINTED_LOADS]
    outputs, operands = _load_outputs(opcodes)
    body = [_address("global"), "st.global.v2.b64 [%base], {%lo, %hi};"]
    for opcode, operand in zip(opcodes, operands, strict=True):
        body.append(f"{opcode} {operand}, [%base]{', %policy' if 'cache_hint' in opcode else ''};")
    ran = check_body(
        "\n".join(body),
        {"lo": ("b64", lo), "hi": ("b64", hi)},
        outputs,
        declarations=DECLARATIONS,
        module_scope=BUFFERS,
    )
    _compare_loads(ran.outputs, np.stack([lo, hi], axis=1).view(np.uint8).reshape(N, 16), opcodes)


@pytest.mark.parametrize("space", one_in(4, STORED_SPACES))
def test_st(space: str, rng: np.random.Generator) -> None:
    """Each store writes into 16 bytes of 0xEE, which are then read back entirely."""
    values = {f"v{i}": ("b64", random_values("b64", N, rng)) for i in range(4)}
    at = _memory_operand(space)
    plain = "st" if not space else f"st.{space.partition('::')[0]}"
    body = [_address(space), "cvt.u32.u64 %n0, %v0; cvt.u32.u64 %n1, %v1; cvt.u32.u64 %n2, %v2; cvt.u32.u64 %n3, %v3;"]
    body.append("mov.b64 %fill, 0xEEEEEEEEEEEEEEEE;")
    outputs = {}
    for number, opcode in enumerate(STORES[space]):
        count, ptx_type = _members(opcode)
        names = [f"%{'v' if WIDTH[ptx_type] == 64 else 'n'}{member}" for member in range(count)]
        source = f"{{{', '.join(names)}}}" if count > 1 else names[0]
        if ptx_type == "f16":
            body.append(
                "mov.b32 {%h16_0, _}, %n0; mov.b32 {%h16_1, _}, %n1; mov.b32 {%h16_2, _}, %n2; "
                "mov.b32 {%h16_3, _}, %n3;"
            )
            source = source.replace("%n", "%h16_")
        body += [f"{plain}.b64 {at}, %fill;", f"{plain}.b64 {at[:-1]}+8], %fill;", f"{opcode} {at}, {source};"]
        load = plain.replace("st", "ld", 1)
        body += [f"{load}.b64 %o{number}_0, {at};", f"{load}.b64 %o{number}_1, {at[:-1]}+8];"]
        outputs |= {f"o{number}_0": "b64", f"o{number}_1": "b64"}
    declarations = DECLARATIONS + "\n.reg .b32 %n<4>; .reg .b64 %fill; .reg .b16 %h16_<4>;"
    ran = check_body("\n".join(body), values, outputs, declarations=declarations, module_scope=BUFFERS)
    for number, opcode in enumerate(STORES[space]):
        count, ptx_type = _members(opcode)
        size = WIDTH[ptx_type] // 8
        raw = np.full((N, 16), 0xEE, np.uint8)
        for member in range(count):
            stored = values[f"v{member}"][1].view(np.uint8).reshape(N, 8)[:, :size]
            raw[:, member * size : (member + 1) * size] = stored
        got = np.stack([ran.outputs[f"o{number}_0"], ran.outputs[f"o{number}_1"]], axis=1).view(np.uint8).reshape(N, 16)
        np.testing.assert_array_equal(got, raw, opcode)


def test_st_with_cache_hint() -> None:
    values = np.arange(N, dtype=np.uint32)
    body = (
        f"{_address('global')}\nst.global.L1::evict_first.L2::cache_hint.b32 [%base], %v, "
        f"%policy;\nld.global.b32 %d, [%base];"
    )
    ran = check_body(body, {"v": ("b32", values)}, {"d": "b32"}, declarations=DECLARATIONS, module_scope=BUFFERS)
    np.testing.assert_array_equal(ran.outputs["d"], values)


def test_entry_parameters_are_read_with_param_entry() -> None:
    body = "ld.param::entry.u64 %d, [out_e]; ld.param.u64 %e, [out_e];"
    ran = check_body(body, {}, {"d": "b64", "e": "b64"}, n=N)
    np.testing.assert_array_equal(ran.outputs["d"], ran.outputs["e"])
    assert (ran.outputs["d"] != 0).all()


def test_cvta_there_and_back_and_generic_accesses(rng: np.random.Generator) -> None:
    """A generic address reaches the same bytes as the address in the variable's own space."""
    values = random_values("b32", N, rng)
    body, outputs = [], {}
    for space in ("global", "shared", "local"):
        body += [
            _address(space),
            f"st.{space}.b32 [%base], %v;",
            f"cvta.{space}.u64 %gen, %base;",
            f"ld.b32 %{space}_d, [%gen];",
            f"cvta.to.{space}.u64 %back, %gen;",
            f"setp.eq.u64 %{space}_same, %back, %base;",
        ]
        outputs |= {f"{space}_d": "b32", f"{space}_same": "pred"}
    body += [
        _address("const"),
        "cvta.const.u64 %gen, %base;",
        "ld.b32 %const_d, [%gen];",
        "cvta.to.const.u64 %back, %gen;",
        "setp.eq.u64 %const_same, %back, %base;",
        "mov.u64 %base, out_global_d;",
        "cvta.param.u64 %gen, %base;",
        "ld.b64 %param_d, [%gen];",
        "cvta.to.param.u64 %back, %gen;",
        "setp.eq.u64 %param_same, %back, %base;",
        "ld.param.b64 %param_e, [out_global_d];",
    ]
    outputs |= {"const_d": "b32", "const_same": "pred", "param_d": "b64", "param_e": "b64", "param_same": "pred"}
    ran = check_body(
        "\n".join(body),
        {"v": ("b32", values)},
        outputs,
        declarations=DECLARATIONS + ".reg .b64 %gen, %back;",
        module_scope=BUFFERS,
    )
    for space in ("global", "shared", "local"):
        np.testing.assert_array_equal(ran.outputs[f"{space}_d"], values, space)
    assert all(ran.outputs[f"{space}_same"].all() for space in ("global", "shared", "local", "const", "param"))
    words = np.frombuffer(CONSTANT, np.uint8).reshape(128, 16)[:, :4].copy().view(np.uint32).ravel()
    np.testing.assert_array_equal(ran.outputs["const_d"], np.tile(words, N // 128))
    np.testing.assert_array_equal(ran.outputs["param_d"], ran.outputs["param_e"])


def test_isspacep_recognises_the_window() -> None:
    body, outputs = [], {}
    for space in ("global", "shared", "local", "const"):
        body += [_address(space), f"cvta.{space}.u64 %gen, %base;"]
        for asked in ("const", "global", "shared", "local", "param"):
            body.append(f"isspacep.{asked} %{space}_{asked}, %gen;")
            outputs[f"{space}_{asked}"] = "pred"
    ran = check_body(
        "\n".join(body), {}, outputs, n=N, declarations=DECLARATIONS + ".reg .b64 %gen;", module_scope=BUFFERS
    )
    for name, values in ran.outputs.items():
        is_space, asked = name.split("_")
        assert (values == (is_space == asked)).all(), name


def test_a_cache_policy_can_be_made_and_given_to_a_load() -> None:
    values = np.arange(N, dtype=np.uint32)
    body = f"""{POLICIES[0]} %policy; {POLICIES[1]} %policy, 0f3F000000; {_address("global")}
      st.global.L1::evict_first.L2::cache_hint.b32 [%base], %v, %policy;
      ld.global.L2::cache_hint.b32 %d, [%base], %policy;"""
    ran = check_body(
        body,
        {"v": ("b32", values)},
        {"d": "b32"},
        declarations=DECLARATIONS,
        module_scope=BUFFERS,
    )
    np.testing.assert_array_equal(ran.outputs["d"], values)


def test_prefetch_changes_nothing() -> None:
    body = [_address("global"), "st.global.b32 [%base], %v;"]
    body += [f"{opcode} [%base];" for opcode in PREFETCHES if "local" not in opcode]
    body += ["ld.global.b32 %d, [%base];", _address("local"), *(f"{op} [%base];" for op in PREFETCHES if "local" in op)]
    values = np.arange(N, dtype=np.uint32)
    ran = check_body(
        "\n".join(body), {"v": ("b32", values)}, {"d": "b32"}, declarations=DECLARATIONS, module_scope=BUFFERS
    )
    np.testing.assert_array_equal(ran.outputs["d"], values)
    assert not ran.findings


# -- ldu ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["global", ""])
@pytest.mark.parametrize("index", ["%ctaid.x", "%warp"])
def test_ldu(space: str, index: str, rng: np.random.Generator) -> None:
    """The address is the same in a warp: known to the compiler (%ctaid.x), or loaded (%warp)."""
    data, warp = random_values("b64", N, rng), np.arange(N, dtype=np.uint32) // 32
    opcodes = UNIFORM_LOADS[space]
    outputs, operands = _load_outputs(opcodes)
    loads = "\n".join(f"{opcode} {operand}, [%base];" for opcode, operand in zip(opcodes, operands, strict=True))
    ran = check_body(
        f"""ld.param.u64 %base, [in_data];
        mov.u32 %t0, {index}; mul.wide.u32 %off, %t0, 16; add.u64 %base, %base, %off;
        {loads}""",
        {"data": ("b64", data), "warp": ("b32", warp)},
        outputs,
        declarations=DECLARATIONS,
    )
    row = warp if index == "%warp" else np.arange(N) // 128
    _compare_loads(ran.outputs, data.view(np.uint8).reshape(-1, 16)[row], opcodes)
    assert not ran.findings


def test_ldu_under_a_guard_and_in_a_branch(rng: np.random.Generator) -> None:
    data, on = random_values("b32", N, rng), rng.integers(0, 2, N).astype(bool)
    body = """ld.param.u64 %base, [in_data];
      @%on ldu.global.b32 %d, [%base+8];
      @!%on bra skip;
      ldu.b32 %e, [%base+12];
      skip:"""
    inputs: dict[str, tuple[str, Array]] = {"data": ("b32", data), "on": ("pred", on)}
    ran = check_body(body, inputs, {"d": "b32", "e": "b32"}, declarations=DECLARATIONS)
    np.testing.assert_array_equal(ran.outputs["d"], np.where(on, data[2], 0x5A5A5A5A))
    np.testing.assert_array_equal(ran.outputs["e"], np.where(on, data[3], 0x5A5A5A5A))


def test_ldu_of_another_window_is_out_of_range() -> None:
    """Only generic addresses of global memory are allowed."""
    body = f"{_address('shared')}\nst.shared.b32 [%base], 7;\ncvta.shared.u64 %base, %base;\nldu.b32 %d, [%base];"
    ran = check_body(body, {}, {"d": "b32"}, declarations=DECLARATIONS, module_scope=BUFFERS, n=N)
    assert not ran.outputs["d"].any()
    assert {f.code for f in ran.findings} == {"M101"}


LDU_KERNEL = Binary(
    "ldu.ptx", "sm_89", "by hand", (), ptx_digest="ldu", ptx=HEADER + """
.visible .entry total(.param .u64 x, .param .u64 y, .param .u32 at) {
  .reg .b32 %r<7>; .reg .b64 %x, %y, %off;
  ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; ld.param.u32 %r0, [at];
  mul.wide.u32 %off, %r0, 4; add.u64 %x, %x, %off;
  ldu.global.v2.u32 {%r1, %r2}, [%x];
  ldu.u32 %r3, [%x+8];
  add.u32 %r4, %r1, %r2; add.u32 %r4, %r4, %r3;
  mov.u32 %r5, %tid.x; mul.wide.u32 %off, %r5, 4; add.u64 %y, %y, %off;
  st.global.u32 [%y], %r4;
  ret;
}
""",
)  # fmt: skip


def _total(at: int, *, written: bool = True, same: bool = False) -> tuple[Run, Array]:
    """Return the run of 64 threads that store x[at] + x[at+1] + x[at+2] to y; `same`: y is x."""
    x = np.arange(10, 74, dtype=np.uint32)
    y = x if same else np.zeros(64, np.uint32)
    launch = Launch(LDU_KERNEL, "total", 1, 64, [x, y, np.uint32(at)], names=["x", "y", "at"])
    watch = Probes(InitCheck(), RaceCheck())
    run = weft.VirtualGPU(threads=1).run([launch], RunOptions(watch=watch, uninitialised=() if written else (x,)))
    return run, y


def test_the_checkers_and_the_profile_know_ldu_by_its_row() -> None:
    run, y = _total(4)
    assert run.findings == () and y.tolist() == [14 + 15 + 16] * 64
    run, _ = _total(62)  # memcheck: x has 64 elements, so [x+8] is element 64
    assert [(f.code, f.name, f.lanes) for f in run.findings] == [("M101", "x", 0xFFFFFFFF)] * len(run.findings) != []
    run, _ = _total(3)  # memcheck: x+12 is no multiple of 8 bytes
    assert {f.code for f in run.findings} == {"M102"}
    run, _ = _total(4, written=False)  # initcheck: the sum reaches y
    assert {(f.code, f.name, f.level) for f in run.findings} == {("I202", "x", "error")}
    run, _ = _total(4, same=True)  # racecheck: threads 4, 5 and 6 write what all read
    codes = {f.code for f in run.findings if f.level == "error"}
    assert "R106" in codes and codes <= {"R102", "R103", "R106"}
    accesses = [match.access for match in match_kernel(LDU_KERNEL, "total").matches]
    assert [(a.opcode, a.verb, a.space, a.bytes, a.offset) for a in accesses] == [
        ("ldu.global.v2.u32", "load", "global", 8, 0),
        ("ldu.u32", "load", "global", 4, 8),
        ("st.global.u32", "store", "global", 4, 0),
    ]


# -- cp.async ----------------------------------------------------------------------------------------------------

_COPY_START = f"""{_address("global")}
  mov.u64 %src, %base;
  st.global.v2.b64 [%src], {{%lo, %hi}};
  {_address("shared")}
  cvt.u32.u64 %dst, %base;
  st.shared.v2.b64 [%dst], {{%lo, %lo}};
"""
_COPY_DECLARATIONS = DECLARATIONS + ".reg .b64 %src; .reg .b32 %dst;"


def _copy(
    body: str, outputs: dict[str, str], rng: np.random.Generator, **more: tuple[str, Array]
) -> tuple[dict[str, Array], Array, Array]:
    lo, hi = random_values("b64", N, rng), random_values("b64", N, rng)
    ran = check_body(
        _COPY_START + body,
        {"lo": ("b64", lo), "hi": ("b64", hi), **more},
        outputs,
        declarations=_COPY_DECLARATIONS,
        module_scope=BUFFERS,
    )
    assert not ran.findings
    return ran.outputs, lo, hi


@pytest.mark.parametrize("opcode", [op for op in COPIES if "shared" in op])
def test_cp_async_is_seen_after_the_wait(opcode: str, rng: np.random.Generator) -> None:
    policy = ", %policy" if "cache_hint" in opcode else ""
    body = f"""{opcode} [%dst], [%src], 16{policy};
      ld.shared.b64 %before, [%dst+8];
      cp.async.commit_group;
      ld.shared.b64 %committed, [%dst+8];
      cp.async.wait_group 0;
      ld.shared.v2.b64 {{%after_lo, %after}}, [%dst];"""
    out, lo, hi = _copy(body, {"before": "b64", "committed": "b64", "after": "b64", "after_lo": "b64"}, rng)
    np.testing.assert_array_equal(out["before"], lo)
    np.testing.assert_array_equal(out["committed"], lo)
    np.testing.assert_array_equal(out["after"], hi)
    np.testing.assert_array_equal(out["after_lo"], lo)


def test_cp_async_small_sizes_and_zero_fill(rng: np.random.Generator) -> None:
    taken = np.resize(np.array([0, 1, 5, 8, 15, 16], np.uint32), N)
    body = """cp.async.cg.shared.global [%dst], [%src], 16, %taken;
      cp.async.wait_all;
      ld.shared.v2.b64 {%a, %b}, [%dst];
      st.shared.v2.b64 [%dst], {%hi, %hi};
      cp.async.ca.shared.global [%dst], [%src], 4;
      cp.async.ca.shared.global [%dst+8], [%src], 8;
      cp.async.wait_all;
      ld.shared.v2.b64 {%c, %d}, [%dst];"""
    out, lo, hi = _copy(body, {x: "b64" for x in "abcd"}, rng, taken=("b32", taken))
    raw = np.stack([lo, hi], axis=1).view(np.uint8).reshape(N, 16)
    filled = np.where(np.arange(16) < taken[:, None], raw, 0).astype(np.uint8).view(np.uint64)
    np.testing.assert_array_equal(out["a"], filled[:, 0])
    np.testing.assert_array_equal(out["b"], filled[:, 1])
    low = np.uint64(0xFFFFFFFF)
    np.testing.assert_array_equal(out["c"], (lo & low) | (hi & ~low))
    np.testing.assert_array_equal(out["d"], lo)


def test_cp_async_ignore_source_gives_zero(rng: np.random.Generator) -> None:
    ignore = np.resize(np.array([True, False, False]), N)
    body = "cp.async.cg.shared.global [%dst], [%src], 16, %skip;\ncp.async.wait_all;\nld.shared.b64 %d, [%dst];"
    out, lo, _ = _copy(body, {"d": "b64"}, rng, skip=("pred", ignore))
    np.testing.assert_array_equal(out["d"], np.where(ignore, 0, lo))


def test_wait_group_leaves_the_youngest_groups_pending(rng: np.random.Generator) -> None:
    body = """cp.async.ca.shared.global [%dst], [%src+8], 4;
      cp.async.commit_group;
      cp.async.ca.shared.global [%dst+4], [%src+12], 4;
      cp.async.commit_group;
      cp.async.commit_group;
      cp.async.wait_group 2;
      ld.shared.v2.b32 {%a0, %a1}, [%dst];
      cp.async.wait_group 1;
      ld.shared.v2.b32 {%b0, %b1}, [%dst];"""
    out, lo, hi = _copy(body, {x: "b32" for x in ("a0", "a1", "b0", "b1")}, rng)
    old, new = lo.view(np.uint32).reshape(N, 2), hi.view(np.uint32).reshape(N, 2)
    np.testing.assert_array_equal(out["a0"], new[:, 0])
    np.testing.assert_array_equal(out["a1"], old[:, 1])
    np.testing.assert_array_equal(out["b0"], new[:, 0])
    np.testing.assert_array_equal(out["b1"], new[:, 1])


# -- accesses that are wrong -------------------------------------------------------------------------------------


def test_out_of_range_accesses_are_reported_and_masked_off() -> None:
    """Every fourth lane reads and writes far outside; it reads 0, the others are untouched."""
    far = np.resize(np.array([False, False, False, True]), N)
    values = np.arange(1, N + 1, dtype=np.uint32)
    body = f"""{_address("global")}
      st.global.b32 [%base], %v;
      mov.u64 %addr, %base;
      @%far mov.u64 %addr, 0x500;
      ld.global.b32 %d, [%addr];
      st.global.b32 [%addr], 77;
      ld.global.b32 %e, [%base];"""
    ran = check_body(
        body,
        {"v": ("b32", values), "far": ("pred", far)},
        {"d": "b32", "e": "b32"},
        declarations=DECLARATIONS + ".reg .b64 %addr;",
        module_scope=BUFFERS,
    )
    np.testing.assert_array_equal(ran.outputs["d"], np.where(far, 0, values))
    np.testing.assert_array_equal(ran.outputs["e"], np.where(far, values, 77))
    assert {f.code for f in ran.findings} == {"M104"}
    assert {f.lanes for f in ran.findings} == {0x88888888}


@pytest.mark.parametrize("space", ["shared", "local", ""])
def test_out_of_range_in_every_space(space: str) -> None:
    suffix = f".{space}" if space else ""
    body = f"mov.u64 %base, 0x4000000;\nld{suffix}.b32 %d, [%base];\nst{suffix}.b32 [%base], 5;"
    ran = check_body(body, {}, {"d": "b32"}, declarations=DECLARATIONS, module_scope=BUFFERS, n=N)
    assert not ran.outputs["d"].any()
    assert {f.code for f in ran.findings} == {"M101" if space else "M104"}


def test_misaligned_accesses_are_reported() -> None:
    body = (
        f"{_address('global')}\nst.global.b32 [%base], 9;\nld.global.b32 %d, [%base+2];\nld.global.b16 %e, [%base+2];"
    )
    ran = check_body(body, {}, {"d": "b32", "e": "b16"}, declarations=DECLARATIONS, module_scope=BUFFERS, n=N)
    assert not ran.outputs["d"].any()
    assert {f.code for f in ran.findings} == {"M102"}


def test_fresh_shared_and_local_memory_is_all_ones() -> None:
    body = f"{_address('shared')}\nld.shared.b32 %d, [%base];\n{_address('local')}\nld.local.b32 %e, [%base];"
    ran = check_body(body, {}, {"d": "b32", "e": "b32"}, declarations=DECLARATIONS, module_scope=BUFFERS, n=N)
    assert (ran.outputs["d"] == 0xFFFFFFFF).all()
    assert (ran.outputs["e"] == 0xFFFFFFFF).all()


def test_dynamic_shared_memory_follows_the_static_arrays() -> None:
    scope = ".extern .shared .align 16 .b8 dyn[];\n.shared .align 4 .b8 fixed[512];"
    body = """mov.u32 %t0, %tid.x; shl.b32 %t0, %t0, 2; mov.u32 %t1, dyn; add.u32 %t1, %t1, %t0;
      st.shared.b32 [%t1], %t0; mov.u32 %t2, fixed; add.u32 %t2, %t2, %t0; st.shared.b32 [%t2], 1;
      bar.sync 0;
      xor.b32 %t0, %t0, 4; mov.u32 %t1, dyn; add.u32 %t1, %t1, %t0; ld.shared.b32 %d, [%t1];
      mov.u32 %e, %dynamic_smem_size;"""
    ran = check_body(body, {}, {"d": "b32", "e": "b32"}, module_scope=scope, n=N, shared_bytes=512)
    np.testing.assert_array_equal(ran.outputs["d"], 4 * (np.arange(N) % 128 ^ 1))
    assert (ran.outputs["e"] == 512).all()
    assert not ran.findings
