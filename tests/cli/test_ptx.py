"""PTX from NVRTC, from Triton, written by hand, and invalid; with its launch lines in a separate file."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.cli.main import main
from weft.core.errors import UsageError
from weft.engines.kernel_file import NoLaunchLines
from weft.toolchain.ptx_file import read_ptx

SOURCE = """\
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = 2.0f * x[i];
}
"""
LINES = """\
// weft: sizes   N=1000
// weft: in      x : f32[N] = normal
// weft: out     y : f32[N]
// weft: launch  scale(x, y, N) grid(cdiv(N, 256)) block(256)
"""
BY_HAND = """\
.version 7.0
.target sm_80
.address_size 64
.visible .entry reverse(.param .u64 data, .param .u32 count)
.maxntid 64, 1, 1
{
    .reg .b64 %p<4>;
    .reg .b32 %r<8>;
    .shared .align 4 .b8 tile[256];
    ld.param.u64 %p0, [data];
    ld.param.u32 %r0, [count];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %p1, %r1, 4;
    add.u64 %p2, %p0, %p1;
    ld.global.u32 %r2, [%p2];
    mov.u32 %r3, tile;
    shl.b32 %r4, %r1, 2;
    add.u32 %r4, %r3, %r4;
    st.shared.u32 [%r4], %r2;
    bar.sync 0;
    sub.u32 %r5, %r0, %r1;
    sub.u32 %r5, %r5, 1;
    shl.b32 %r5, %r5, 2;
    add.u32 %r5, %r3, %r5;
    ld.shared.u32 %r6, [%r5];
    st.global.u32 [%p2], %r6;
    ret;
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def nvrtc(text: str = SOURCE, **options: object) -> str:
    return weft.compile_cuda(text, name="scale.cu", **options).ptx  # type: ignore[arg-type]


def test_of_nvrtc_findings_are_at_the_source_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("scale.ptx").write_text(nvrtc())
    Path("scale.launch").write_text(LINES)
    assert main(["run", "scale.ptx"]) == 1
    out = capsys.readouterr().out
    assert len(re.findall(r"^M101 .*scale\.cu:3 · ", out, re.MULTILINE)) == 2
    Path("moved.launch").write_text(LINES)
    Path("scale.launch").unlink()
    assert main(["run", "scale.ptx", "--launch", "moved.launch"]) == 1


def test_without_line_tables_findings_are_at_the_ptx_line(capsys: pytest.CaptureFixture[str]) -> None:
    bare = re.sub(r"\.loc.*", "", nvrtc())
    Path("bare.ptx").write_text(LINES + bare)
    assert main(["run", "bare.ptx", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    rows = Path("bare.ptx").read_text().splitlines()
    accesses = [number for number, row in enumerate(rows, 1) if re.search(r"\b(ld|st)\.global", row)]
    assert sorted((f["file"], f["line"]) for f in findings) == [("bare.ptx", n) for n in accesses]


def test_a_race_is_at_the_ptx_line(capsys: pytest.CaptureFixture[str]) -> None:
    """All lanes write one word."""
    racing = BY_HAND.replace("shl.b32 %r4, %r1, 2;", "mov.b32 %r4, 0;")
    Path("k.launch").write_text(
        "// weft: inout x : u32[64] = arange\n// weft: launch reverse(x, 64) grid(1) block(64)\n"
    )
    Path("k.ptx").write_text(racing)
    assert main(["run", "k.ptx", "--tool", "racecheck", "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    line = racing.splitlines().index("    st.shared.u32 [%r4], %r2;") + 1
    assert {(f["file"], f["line"]) for f in record["findings"]} == {("k.ptx", line)}


def test_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    Path("k.ptx").write_text(BY_HAND)
    launch = "// weft: inout x : u32[64] = arange\n// A remark.\n// weft: launch reverse(x, 64) grid(1) block(64)\n"
    Path("k.launch").write_text(launch)
    assert main(["run", "k.ptx", "--tool", "all", "--save", "x=x.npy", "--json"]) == 0
    np.testing.assert_array_equal(np.load("x.npy"), np.arange(64)[::-1])
    digest = hashlib.sha256(BY_HAND.encode()).hexdigest()
    record = json.loads(capsys.readouterr().out)
    assert (record["ptx_digest"], record["source_digest"], record["entries"]) == (digest, digest, ["reverse"])


def test_no_lines_are_drafted_from_what_the_code_does(capsys: pytest.CaptureFixture[str]) -> None:
    Path("k.ptx").write_text(BY_HAND)
    assert main(["run", "k.ptx"]) == 2
    *draft, last = capsys.readouterr().err.splitlines()
    assert draft == [
        "// weft: sizes     N=1024",
        "// weft: inout     p0 : i32[N] = zeros",
        "// weft: scalar    p1 : i32 = N",
        "// weft: launch    reverse(p0, p1) grid(cdiv(N, 64)) block(64)",
    ]
    assert "a draft for k.launch" in last
    Path("k.launch").write_text("\n".join(draft))
    assert main(["run", "k.ptx", "--size", "N=64"]) == 0  # and it runs, as far as it is right
    assert main(["check", "k.ptx"]) == 2


def test_a_draft_of_nvrtc_code_has_its_roles() -> None:
    Path("scale.ptx").write_text(nvrtc())
    with pytest.raises(NoLaunchLines) as caught:
        weft.load("scale.ptx")
    rows = [" ".join(line.split()[2:]) for line in caught.value.draft.splitlines()]
    assert rows[1:4] == ["in p0 : f32[N] = normal", "out p1 : f32[N]", "scalar p2 : i32 = N"]


def test_of_triton(capsys: pytest.CaptureFixture[str]) -> None:
    triton = pytest.importorskip("triton")
    import triton.language as tl

    Path("kernel.py").write_text("")

    @triton.jit
    def add_total(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.arange(0, BLOCK)
        value = tl.load(x + at, mask=at < n, other=0.0)
        tl.store(y + at, value + tl.sum(value, axis=0), mask=at < n)

    binary = weft.compile_triton(
        add_total, signature={"x": "*fp32", "y": "*fp32", "n": "i32"}, constexprs={"BLOCK": 256}
    )
    Path("t.ptx").write_text(binary.ptx)
    assert main(["run", "t.ptx"]) == 2
    draft = capsys.readouterr().err
    extra = binary.ptx.count(".param .u64") - 2
    assert extra and f"add_total(p0, p1, p2{', 0' * extra}) grid(cdiv(N, 128)) block(128) shared(BYTES)" in draft
    assert "metadata.shared" in draft and "Triton adds such pointers" in draft
    lines = [
        line.replace("N=1024", "N=200").replace("BYTES", str(binary.dynamic_shared_bytes))
        for line in draft.splitlines()
    ]
    Path("t.launch").write_text("\n".join(line for line in lines if line.startswith("//")))
    saved = ["--save", "p0=x.npy", "--save", "p1=y.npy"]
    assert main(["run", "t.ptx", "--tool", "all", *saved]) == 0
    x = np.load("x.npy").astype(np.float64)
    np.testing.assert_allclose(np.load("y.npy"), x + x.sum(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [("mov.u32 %r1, %tid.x;", "mov.u32 %r1 %tid.x;", 12), ("bar.sync 0;", "bar.synk 0;", 20), ("ret;\n}", "ret;", 28)],
)
def test_broken(old: str, new: str, line: int, capsys: pytest.CaptureFixture[str]) -> None:
    Path("k.ptx").write_text(BY_HAND.replace(old, new))
    for lines in (None, "// weft: inout x : u32[64] = arange\n// weft: launch reverse(x, 64) grid(1) block(64)\n"):
        if lines is not None:
            Path("k.launch").write_text(lines)
        assert main(["run", "k.ptx"]) == 3
        assert f"PTX line {line}" in capsys.readouterr().err


def test_what_a_launch_file_may_not_hold() -> None:
    Path("k.ptx").write_text(BY_HAND)
    good = "// weft: inout x : u32[64] = arange\n// weft: launch reverse(x, 64) grid(1) block(64)\n"
    for text, what in (
        ("launch reverse(x, 64) grid(1) block(64)\n", "k.launch:1: .* is not a launch line"),
        (good + "// weft: allow R103 why\n", "k.launch:3: put allow at the line"),
        ("// nothing\n", "k.launch has no"),
        (good.replace("grid(1)", "grid(what)"), "k.launch:2: 'what' is not known here"),
    ):
        Path("k.launch").write_text(text)
        with pytest.raises(UsageError, match=what):
            weft.load("k.ptx")
    Path("k.launch").write_text(good)
    Path("k.ptx").write_text(good + BY_HAND)
    with pytest.raises(UsageError, match="keep one"):
        weft.load("k.ptx")
    Path("k.ptx").write_text(BY_HAND)
    with pytest.raises(UsageError, match="cannot read gone"):
        weft.load("k.ptx", launch="gone.launch")
    Path("k.cu").write_text(LINES + SOURCE)
    with pytest.raises(UsageError, match="--launch is only for PTX"):
        weft.load("k.cu", launch="k.launch")


def test_target_and_kernel_names() -> None:
    text = "template <int N> __global__ void fill(float* x) { x[threadIdx.x] = N; }\n"
    text += "template __global__ void fill<7>(float*);"
    Path("k.ptx").write_text(nvrtc(text))
    assert dict(read_ptx("k.ptx", entries=["fill< 7 >"]).entries) == {"fill< 7 >": "_Z4fillILi7EEvPf"}
    with pytest.raises(UsageError, match=r"no kernel 'fill<8>' in k\.ptx; it has fill<7>"):
        read_ptx("k.ptx", entries=["fill<8>"])
    assert read_ptx("k.ptx", arch="sm_90").arch == "sm_90"
    with pytest.raises(UsageError, match="made for sm_89 and does not run on sm_80"):
        read_ptx("k.ptx", arch="sm_80")
    Path("k.ptx").write_text(nvrtc(text).replace(".target sm_89", ".target sm_90a"))
    with pytest.raises(UsageError, match="made for sm_90a"):
        read_ptx("k.ptx", arch="sm_100")


def test_show_has_no_cubin(capsys: pytest.CaptureFixture[str]) -> None:
    Path("k.ptx").write_text(BY_HAND)
    assert main(["show", "k.ptx"]) == 0
    shown = capsys.readouterr()
    assert shown.out == BY_HAND and "PTX as given" in shown.err
    assert main(["show", "k.ptx", "--as", "llvm"]) == 0
    capsys.readouterr()
    for form, what in (("sass", "no cubin"), ("resources", "no figures"), ("shared", "cubin")):
        assert main(["show", "k.ptx", "--as", form]) == 2
        assert what in capsys.readouterr().err
    assert main(["show", "k.ptx", "-D", "A=1"]) == 2


def test_check_judges_what_it_was_compiled_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Its define lines say type and mask; a head dimension that is not passed is compiled in."""
    kernel = Path(weft.__file__).parent / "kernels" / "scalar.cu"
    lines = [line for line in kernel.read_text().splitlines() if line.startswith("// weft:")]
    settled = [line.replace("CAUSAL = 0", "CAUSAL = 1") for line in lines]
    loaded = weft.load(kernel, defines={"CAUSAL": "1"})
    Path("a.ptx").write_text(loaded.compile().ptx)
    Path("a.launch").write_text("\n".join(settled))
    options = ["--shapes", "small", "--regimes", "unit_normal", "--seeds", "1"]
    assert main(["check", "a.ptx", *options]) == 0
    out = capsys.readouterr().out
    assert "small\t1 of 1" in out and "a -G build needs the CUDA source" in out
    assert main(["check", "a.ptx", *options, "--masks", "none"]) == 5
    Path("a.launch").write_text("\n".join(lines))  # a wrong mask does not pass
    assert main(["check", "a.ptx", *options]) == 1
    assert main(["run", "a.ptx", "-D", "CAUSAL=2"]) == 2
    assert "already compiled PTX, CAUSAL is compiled with 0" in capsys.readouterr().err
