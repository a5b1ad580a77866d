"""Small forms that sm_90, sm_100 and sm_120 add: elect, stmatrix, three sources, marks without effect, targets."""

import numpy as np
import pytest

from tests.ptx.harness import HEADER, check_body, edge_values, random_values
from weft.ptx.parse import parse

N = 128


def test_elect_chooses_the_lowest_lane_of_its_members() -> None:
    """All lanes; odd lanes in a divergent branch; two groups of different masks at one instruction."""
    body = """elect.sync %d|%p, -1;
      and.b32 %t0, %tid, 1; setp.eq.u32 %odd, %t0, 1;
      @!%odd bra AFTER;
      elect.sync %e|%q, 0xAAAAAAAA;
      elect.sync _|%s, 0xAAAAAAAA;
      AFTER:
      selp.b32 %t1, 0xAAAAAAAA, 0x55555555, %odd;
      elect.sync %f|%r, %t1;"""
    outputs = {"d": "b32", "e": "b32", "f": "b32", "p": "pred", "q": "pred", "r": "pred", "s": "pred"}
    ran = check_body(body, {}, outputs, declarations=".reg .pred %odd;", n=N)
    lane = np.arange(N) % 32
    odd = lane % 2 == 1
    assert (ran.outputs["d"] == 0).all()
    np.testing.assert_array_equal(ran.outputs["p"].astype(bool), lane == 0)
    assert (ran.outputs["e"][odd] == 1).all()
    for name in "qs":
        np.testing.assert_array_equal(ran.outputs[name].astype(bool), lane == 1)
    np.testing.assert_array_equal(ran.outputs["f"], odd)
    np.testing.assert_array_equal(ran.outputs["r"].astype(bool), lane < 2)


STMATRIX = [
    *(f"stmatrix.sync.aligned.m8n8.{num}{trans}.shared.b16" for num in ("x1", "x2", "x4") for trans in ("", ".trans")),
    "stmatrix.sync.aligned.x4.m8n8.shared::cta.b16",  # CUTLASS' order
    "stmatrix.sync.aligned.m8n8.x2.b16",
]


def test_stmatrix_is_the_inverse_of_ldmatrix() -> None:
    """Lane 8 i + r gives the address of row r of matrix i; lane l has elements 2 (l mod 4) and 1 more of row l / 4."""
    rng = np.random.default_rng(5)
    registers = [random_values("b32", N, rng) for _ in range(4)]
    lines, outputs = [], {}
    for number, opcode in enumerate(STMATRIX):
        count = next(int(part[1:]) for part in opcode.split(".") if part in ("x1", "x2", "x4"))
        listed = ", ".join(f"%a{i}" for i in range(count))
        # A row is 16 bytes; those of one matrix are 32 bytes apart, so that an address that is not used shows.
        lines += [
            "mov.u32 %t0, %tid.x; shl.b32 %t0, %t0, 5; mov.u32 %t1, rows; add.u32 %t0, %t0, %t1;",
            "st.shared.v4.b32 [%t0], {-1, -1, -1, -1}; bar.warp.sync -1;",
            "cvt.u64.u32 %generic, %t0; cvta.shared.u64 %generic, %generic;",
            f"{opcode} [{'%t0' if 'shared' in opcode else '%generic'}], {{{listed}}}; bar.warp.sync -1;",
            f"ld.shared.v4.b32 {{{', '.join(f'%d{number}_{word}' for word in range(4))}}}, [%t0];",
        ]
        outputs |= {f"d{number}_{word}": "b32" for word in range(4)}
    inputs = {f"a{i}": ("b32", values) for i, values in enumerate(registers)}
    shared = ".shared .align 16 .b8 rows[4096];"
    ran = check_body("\n".join(lines), inputs, outputs, module_scope=shared, declarations=".reg .b64 %generic;")
    assert not ran.findings
    tiles = np.stack(registers, axis=1).reshape(N // 32, 32, 4).transpose(0, 2, 1)  # warp, matrix, lane
    halves = np.ascontiguousarray(tiles).view(np.uint16).reshape(N // 32, 4, 8, 8)
    for number, opcode in enumerate(STMATRIX):
        count = next(int(part[1:]) for part in opcode.split(".") if part in ("x1", "x2", "x4"))
        rows = halves.transpose(0, 1, 3, 2) if ".trans" in opcode else halves
        expected = np.full((N // 32, 32, 4), 0xFFFFFFFF, np.uint32)
        words = np.ascontiguousarray(rows).view(np.uint32).reshape(N // 32, 32, 4)
        expected[:, : 8 * count] = words[:, : 8 * count]
        got = np.stack([ran.outputs[f"d{number}_{word}"] for word in range(4)], axis=1)
        np.testing.assert_array_equal(got, expected.reshape(N, 4), opcode)


def test_stmatrix_of_bad_rows_is_reported() -> None:
    body = """mov.u32 %t0, rows; add.u32 %t0, %t0, 8; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%t0], {%t1};
      stmatrix.sync.aligned.m8n8.x1.shared.b16 [rows+4096], {%t1};"""
    ran = check_body(body, {}, {}, module_scope=".shared .align 16 .b8 rows[2048];", n=N)
    assert {finding.code for finding in ran.findings} == {"M101", "M102"}


def test_min_and_max_of_three_sources() -> None:
    """The same as two instructions with two sources, for all triples of edge values."""
    edges = edge_values("f32")
    a, b, c = (x.ravel() for x in np.meshgrid(edges, edges, edges))
    forms = [f"{name}{ftz}{nan}.f32" for name in ("min", "max") for ftz in ("", ".ftz") for nan in ("", ".NaN")]
    lines = ["add.f32x2 %pair, %pair, %pair;"]  # the target of the file follows from it
    for number, form in enumerate(forms):
        lines.append(f"{form} %d{number}, %a, %b, %c;")
        lines.append(f"{form} %t0, %a, %b; {form} %e{number}, %t0, %c;")
    inputs = {"a": ("f32", a), "b": ("f32", b), "c": ("f32", c)}
    outputs = {f"{kind}{number}": "f32" for number in range(len(forms)) for kind in "de"}
    ran = check_body("\n".join(lines), inputs, outputs, declarations=".reg .b64 %pair; mov.b64 %pair, 0;")
    for number, form in enumerate(forms):
        np.testing.assert_array_equal(ran.outputs[f"d{number}"], ran.outputs[f"e{number}"], form)


def test_pairs_and_mixed_operands_have_known_results() -> None:
    one, two, eps = 0x3F800000, 0x40000000, 0x33800000  # 2^-24
    pair = np.full(N, two << 32 | one, np.uint64)
    small = np.full(N, eps << 32 | eps, np.uint64)
    half, bfloat = np.full(N, 0x3C00, np.uint16), np.full(N, 0x4000, np.uint16)  # 1 in f16, 2 in bf16
    body = """add.rp.f32x2 %up, %a, %b; add.f32x2 %near, %a, %b; fma.rz.f32x2 %fused, %a, %a, %a;
      add.rn.f32.f16 %m, %h, %f; sub.rn.f32.f16 %n, %h, %f; sub.f32.bf16 %o, %g, %f; fma.rn.f32.bf16 %q, %g, %g, %f;"""
    inputs = {
        "a": ("b64", pair), "b": ("b64", small), "h": ("b16", half), "g": ("b16", bfloat),
        "f": ("f32", np.full(N, 3, np.float32)),
    }  # fmt: skip
    outputs = {"up": "b64", "near": "b64", "fused": "b64", "m": "f32", "n": "f32", "o": "f32", "q": "f32"}
    got = {name: values[0] for name, values in check_body(body, inputs, outputs).outputs.items()}
    assert got["up"] == (two + 1) << 32 | one + 1
    assert got["near"] == two << 32 | one
    assert got["fused"] == 0x40C00000 << 32 | two  # 2 * 2 + 2, 1 * 1 + 1
    floats = np.array([got[name] for name in "mnoq"], np.uint32).view(np.float32)
    assert floats.tolist() == [4, -2, -1, 7]


def test_marks_change_nothing_and_every_cta_is_a_cluster() -> None:
    names = "clusterid.x nclusterid.x cluster_ctaid.x cluster_nctaid.y cluster_ctarank cluster_nctarank".split()
    body = """mov.b64 %map, 0; prefetch.tensormap [%map]; prefetch.param.tensormap [%map];
      fence.proxy.tensormap::generic.acquire.gpu [%map], 128;
      setmaxnreg.dec.sync.aligned.u32 24; setmaxnreg.inc.sync.aligned.u32 240;"""
    body += "".join(f"mov.u32 %d{at}, %{name};" for at, name in enumerate(names))
    ran = check_body(body, {}, {f"d{at}": "b32" for at in range(6)}, declarations=".reg .b64 %map;", n=2 * N)
    assert [ran.outputs[f"d{at}"][-1] for at in range(6)] == [1, 2, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("statement", "target", "words"),
    [
        ("max.f32 %f, %f, %f, %f;", "sm_90a", "needs sm_100"),
        ("max.f32 %f, %f, %f, %f;", "sm_120", ""),
        ("max.f32 %f, %f, %f;", "sm_80", ""),
        ("setmaxnreg.inc.sync.aligned.u32 64;", "sm_90", "needs sm_90a or a later architecture-specific target"),
        ("setmaxnreg.inc.sync.aligned.u32 64;", "sm_90a", ""),
        ("setmaxnreg.inc.sync.aligned.u32 64;", "sm_120a", ""),
        ("elect.sync _|%p, -1;", "sm_89", "needs sm_90"),
        ("wgmma.fence.sync.aligned;", "sm_90", "needs sm_90a"),
        ("wgmma.fence.sync.aligned;", "sm_120a", "needs sm_90a"),
        ("mov.u32 %r, %cluster_ctarank;", "sm_89", "clusters need sm_90"),
        ("mov.u32 %r, %cluster_ctarank;", "sm_120a", ""),
    ],
)
def test_each_target_has_its_forms(statement: str, target: str, words: str) -> None:
    declared = ".reg .b32 %r; .reg .f32 %f; .reg .pred %p;"
    text = f"{HEADER.replace('sm_89', target)}.visible .entry k() {{ {declared}\n{statement}\nret; }}"
    refused = parse(text).functions["k"].refused
    assert refused is None if not words else words in str(refused)


@pytest.mark.parametrize(
    ("directives", "cluster"),
    [
        (".maxclusterrank 8", (0, 0, 0)),
        (".explicitcluster .reqnctapercluster 1, 1, 1", (1, 1, 1)),
        (".explicitcluster", (0, 0, 0)),
        (".reqnctapercluster 2", (2, 1, 1)),
    ],
)
def test_directives_of_clusters_need_sm_90(directives: str, cluster: tuple[int, int, int]) -> None:
    text = f"{HEADER}.visible .entry k() {directives} {{ ret; }}"
    assert "clusters need sm_90" in str(parse(text).functions["k"].refused)
    function = parse(text.replace("sm_89", "sm_90")).functions["k"]
    assert function.refused is None and function.cluster == cluster
