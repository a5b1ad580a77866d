"""The instructions that kernels for sm_80, sm_86 and sm_89 use, and the page that compares the tables with this list.

`WANTED` names each as its family of opcodes: `{a,b}` means either, `{,.x}` with or without. The page
`docs/ptx_coverage.md` is written from this list and the instruction tables by `scripts/ptx_coverage`.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import product

from weft.ptx import isa
from weft.ptx.isa import ROWS
from weft.ptx.special import SPECIALS

_INT = "{u16,u32,u64,s16,s32,s64}"
_WORD = "{u32,s32,u64,s64}"
_ANY = "{b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64}"
_RND = "{rn,rz,rm,rp}"
_HALF = "{f16,f16x2}"
_BFLOAT = "{bf16,bf16x2}"
_CMP = "{eq,ne,lt,le,gt,ge}"
_FCMP = "{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}"
_ORDERS = "{,.relaxed,.acquire,.release,.acq_rel}{.cta,.gpu,.sys}"
_HERE = "{,.shared,.shared::cta}"

WANTED: Mapping[str, tuple[str, ...]] = {
    "ld, st: 8 to 128 bits, v1 to v4, spaces, .nc, .volatile, cache hints": (
        f"ld{{,.global,.shared,.local,.const,.param}}{{,.v2,.v4}}.{_ANY}",
        f"st{{,.global,.shared,.local}}{{,.v2,.v4}}.{_ANY}",
        f"ld.global.nc{{,.v2,.v4}}.{_ANY}",
        "{ld,st}.volatile{,.global,.shared,.local}{,.v2,.v4}.{b32,u32,f32,b64}",
        "ld.{relaxed,acquire}.{cta,gpu,sys}{,.global,.shared}.{b32,u32,b64,f32}",
        "st.{relaxed,release}.{cta,gpu,sys}{,.global,.shared}.{b32,u32,b64,f32}",
        "ld.global{.ca,.cg,.cs,.lu,.cv}.v4.u32",
        "st.global{.wb,.cg,.cs,.wt}.v4.u32",
        "ld.global{.L1::evict_last,.L1::evict_first,.L1::no_allocate}{,.L2::cache_hint}{,.L2::128B,.L2::256B}.v4.b32",
        "ld.global.nc{,.L1::no_allocate}{,.L2::cache_hint}.L2::128B.v4.b32",
        "createpolicy.fractional.{L2::evict_last,L2::evict_first,L2::evict_unchanged}.b64",
        "prefetch{,.global,.local}.{L1,L2}",
    ),
    "addresses": (
        "cvta{,.to}.{global,shared,local,const,param}.u64",
        "isspacep.{global,shared,local,const,param}",
    ),
    "mov, bits": (
        "mov.{pred,b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}",
        "prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}",
        "lop3{,.and,.or}.b32",
        "{and,or,xor,not}.{pred,b16,b32,b64}",
        "cnot.{b16,b32,b64}",
        f"bfe.{_WORD}",
        "bfi.{b32,b64}",
        f"bfind{{,.shiftamt}}.{_WORD}",
        "{popc,clz,brev}.{b32,b64}",
        "shl.{b16,b32,b64}",
        "shr.{b16,b32,b64,u16,u32,u64,s16,s32,s64}",
        "shf.{l,r}.{clamp,wrap}.b32",
    ),
    "integers": (
        f"{{add,sub}}.{_INT}",
        "{add,sub}.sat.s32",
        f"mul.{{lo,hi}}.{_INT}",
        "mul.wide.{u16,u32,s16,s32}",
        f"mad.{{lo,hi}}.{_INT}",
        "mad.wide.{u16,u32,s16,s32}",
        f"{{add,sub}}.cc.{_WORD}",
        f"{{addc,subc}}{{,.cc}}.{_WORD}",
        f"mad.{{lo,hi}}.cc.{_WORD}",
        f"madc.{{lo,hi}}{{,.cc}}.{_WORD}",
        f"{{div,rem,sad,min,max}}.{_INT}",
        "{abs,neg}.{s16,s32,s64}",
        "dp4a.{u32,s32}.{u32,s32}",
        "dp2a.{lo,hi}.{u32,s32}.{u32,s32}",
    ),
    "f32 and f64": (
        f"{{add,sub,mul}}{{,.{_RND[1:-1].replace(',', ',.')}}}{{,.ftz}}{{,.sat}}.f32",
        f"fma.{_RND}{{,.ftz}}{{,.sat}}.f32",
        f"{{add,sub,mul,fma}}.{_RND}.f64",
        f"div.{_RND}{{,.ftz}}.f32",
        "div.{approx,full}{,.ftz}.f32",
        f"{{div,rcp,sqrt}}.{_RND}.f64",
        f"{{rcp,sqrt}}.{_RND}{{,.ftz}}.f32",
        "{rcp,sqrt,rsqrt,sin,cos,lg2,ex2}.approx{,.ftz}.f32",
        "{rcp,rsqrt}.approx.ftz.f64",
        "rsqrt.approx.f64",
        "tanh.approx.f32",
        "{abs,neg}{,.ftz}.f32",
        "{abs,neg,min,max}.f64",
        "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f32",
        "{copysign,testp.finite,testp.notanumber}.{f32,f64}",
    ),
    "f16 and bf16": (
        f"{{add,sub,mul}}{{,.rn}}{{,.ftz}}{{,.sat}}.{_HALF}",
        f"fma.rn{{,.ftz}}{{,.sat,.relu}}.{_HALF}",
        f"{{add,sub,mul}}{{,.rn}}.{_BFLOAT}",
        f"fma.rn{{,.relu}}.{_BFLOAT}",
        f"{{neg,abs}}{{,.ftz}}.{_HALF}",
        f"{{neg,abs}}.{_BFLOAT}",
        f"{{min,max}}{{,.ftz}}{{,.NaN}}.{_HALF}",
        f"{{min,max}}{{,.NaN}}.{_BFLOAT}",
        "tanh.approx.{f16,f16x2,bf16,bf16x2}",
        f"ex2.approx.{_HALF}",
        f"ex2.approx.ftz.{_BFLOAT}",
    ),
    "cvt": (
        "cvt{,.sat}.{u8,u16,u32,u64,s8,s16,s32,s64}.{u8,u16,u32,u64,s8,s16,s32,s64}",
        "cvt.{rni,rzi,rmi,rpi}{,.sat}.{u8,u16,u32,u64,s8,s16,s32,s64}.{f16,bf16,f32,f64}",
        "cvt.{rn,rz,rm,rp}{,.sat}.{f16,bf16,f32,f64}.{u8,u16,u32,u64,s8,s16,s32,s64}",
        "cvt{,.sat}.f32.{f16,bf16}",
        "cvt{,.sat}.f64.{f16,bf16,f32}",
        "cvt.{rn,rz,rm,rp}.{f16,bf16}.{f32,f64}",
        "cvt.{rn,rz,rm,rp}{,.ftz}.f32.f64",
        "cvt.{rn,rz}{,.relu}.{f16,bf16}.f32",
        "cvt.{rn,rz}{,.relu}.{f16x2,bf16x2}.f32",
        "cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.{f32,f16x2}",
        "cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2}",
        "cvt.rna.tf32.f32",
        "cvt.pack.sat.{u8,s8}.s32.b32",
    ),
    "setp, set, selp, slct": (
        f"setp.{_CMP}{{,.and,.or,.xor}}.{_INT}",
        "setp.{eq,ne}.{b16,b32,b64}",
        f"setp.{_FCMP}{{,.and,.or,.xor}}{{,.ftz}}.f32",
        f"setp.{_FCMP}{{,.and}}.{{f64,f16,f16x2,bf16,bf16x2}}",
        f"set.{_CMP}{{,.and}}.{{u32,s32,f32}}.{{u32,s32,f32}}",
        "set.{lt,gt}.{u32,f16x2}.f16x2",
        "set.{lt,gt}.{u32,bf16x2}.bf16x2",
        "selp.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}",
        "slct.{b32,u32,s32,f32,f64,b64}.{s32,f32}",
    ),
    "control": ("bra{,.uni}", "brx.idx{,.uni}", "call{,.uni}", "ret{,.uni}", "exit", "trap", "brkpt", "nanosleep.u32",
                "griddepcontrol.{launch_dependents,wait}"),
    "barriers and fences": (
        "bar{,.cta}.{sync,arrive}",
        "bar{,.cta}.red.{popc.u32,and.pred,or.pred}",
        "barrier{,.cta}.{sync,arrive}{,.aligned}",
        "barrier{,.cta}.red.popc{,.aligned}.u32",
        "barrier{,.cta}.red.{and,or}{,.aligned}.pred",
        "bar.warp.sync",
        "membar.{cta,gl,sys}",
        "fence{,.sc,.acq_rel}.{cta,gpu,sys}",
    ),
    "warp collectives": (
        "activemask.b32",
        "vote.sync.{all.pred,any.pred,uni.pred,ballot.b32}",
        "match.{any,all}.sync.{b32,b64}",
        "redux.sync.{add,min,max}.{u32,s32}",
        "redux.sync.{and,or,xor}.b32",
        "shfl.sync.{idx,up,down,bfly}.b32",
    ),
    "mbarrier": (
        f"mbarrier.{{init,inval}}{_HERE}.b64",
        f"mbarrier.{{arrive,arrive_drop}}{{,.noComplete}}{_HERE}.b64",
        f"mbarrier.test_wait{{,.parity}}{_HERE}.b64",
        "mbarrier.pending_count.b64",
        f"cp.async.mbarrier.arrive{{,.noinc}}{_HERE}.b64",
    ),
    "atom and red: all types, scopes and orders": (
        f"atom{_ORDERS}{{,.global,.shared}}.{{and,or,xor,exch,cas}}.{{b32,b64}}",
        f"atom{_ORDERS}{{,.global,.shared}}.add.{{u32,s32,u64,f32,f64,noftz.f16,noftz.f16x2,noftz.bf16,noftz.bf16x2}}",
        f"atom{_ORDERS}{{,.global,.shared}}.{{min,max}}.{{u32,s32,u64,s64}}",
        f"atom{_ORDERS}{{,.global,.shared}}.{{inc,dec}}.u32",
        "atom{,.global,.shared}.cas.b16",
        f"red{_ORDERS}{{,.global,.shared}}.{{and,or,xor}}.{{b32,b64}}",
        f"red{_ORDERS}{{,.global,.shared}}.add.{{u32,s32,u64,f32,f64,noftz.f16,noftz.f16x2,noftz.bf16,noftz.bf16x2}}",
        f"red{_ORDERS}{{,.global,.shared}}.{{min,max}}.{{u32,s32,u64,s64}}",
        f"red{_ORDERS}{{,.global,.shared}}.{{inc,dec}}.u32",
        f"atom.{{and,or,xor,exch,cas}}{_ORDERS}.{{b32,b64}}",
        f"atom.add{_ORDERS}.{{u32,s32,u64,f32,f64}}",
    ),
    "cp.async": (
        "cp.async.{ca,cg}.{shared,shared::cta}.global{,.L2::64B,.L2::128B,.L2::256B}",
        "cp.async.{ca,cg}.shared.global.L2::cache_hint{,.L2::128B}",
        "cp.async.{commit_group,wait_group,wait_all}",
    ),
    "tensor cores": (
        "ldmatrix.sync.aligned.m8n8.{x1,x2,x4}{,.trans}{,.shared,.shared::cta}.b16",
        "ldmatrix.sync.aligned.trans.m8n8.{x1,x2,x4}.shared.b16",
        "ldmatrix.sync.aligned.{x1,x2,x4}{,.trans}.m8n8.shared.b16",
        "movmatrix.sync.aligned.m8n8.trans.b16",
        "mma.sync.aligned.{m16n8k8,m16n8k16}.row.col.{f16,f32}.f16.f16.{f16,f32}",
        "mma.sync.aligned.{m16n8k8,m16n8k16}.row.col.f32.bf16.bf16.f32",
        "mma.sync.aligned.{m16n8k4,m16n8k8}.row.col.f32.tf32.tf32.f32",
        "mma.sync.aligned.m16n8k32.row.col.{f16,f32}.{e4m3,e5m2}.{e4m3,e5m2}.{f16,f32}",
        "mma.sync.aligned.{m16n8k16,m16n8k32}.row.col{,.satfinite}.s32.{s8,u8}.{s8,u8}.s32",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
        "wmma.load.{a,b}.sync.aligned.{row,col}.{m16n16k16,m32n8k16,m8n32k16}{,.global,.shared}.{f16,bf16,s8,u8}",
        "wmma.load.{a,b}.sync.aligned.{row,col}.m16n16k8{,.global,.shared}.tf32",
        "wmma.load.c.sync.aligned.{row,col}.{m16n16k16,m32n8k16,m8n32k16}{,.global,.shared}.{f16,f32,s32}",
        "wmma.store.d.sync.aligned.{row,col}.{m16n16k16,m32n8k16,m8n32k16}{,.global,.shared}.{f16,f32,s32}",
        "wmma.mma.sync.aligned.{row,col}.{row,col}.{m16n16k16,m32n8k16,m8n32k16}.{f16,f32}.{f16,f32}",
        "wmma.mma.sync.aligned.{row,col}.{row,col}.{m16n16k16,m32n8k16,m8n32k16}.f32.bf16.bf16.f32",
        "wmma.mma.sync.aligned.{row,col}.{row,col}.{m16n16k16,m32n8k16,m8n32k16}.s32.{s8,u8}.{s8,u8}.s32{,.satfinite}",
        "wmma.mma.sync.aligned.{row,col}.{row,col}.m16n16k8.f32.tf32.tf32.f32",
    ),
}  # fmt: skip

SPECIAL_WANTED = (
    "%{tid,ntid,ctaid,nctaid}.{x,y,z}",
    "%{laneid,warpid,nwarpid,smid,nsmid,gridid}",
    "%lanemask_{eq,lt,le,gt,ge}",
    "%{clock,clock_hi,clock64,globaltimer,globaltimer_lo,globaltimer_hi}",
    "%{dynamic_smem_size,total_smem_size,envreg1,envreg2}",
    "%reserved_smem_offset_{begin,end,cap,0,1}",
)

MANUAL = {
    "9.7.1, 9.7.2 Integer arithmetic": "add sub mul mad mul24 mad24 sad div rem abs neg min max popc clz bfind fns brev"
    " bfe bfi szext bmsk dp4a dp2a addc subc madc",
    "9.7.3, 9.7.4 Floating point": "testp copysign fma rcp sqrt rsqrt sin cos lg2 ex2 tanh",
    "9.7.6 to 9.7.8 Comparison, selection, logic": "set setp selp slct and or xor not cnot lop3 shf shl shr",
    "9.7.9 Data movement": "mov shfl.sync prmt ld ldu st st.async st.bulk multimem.ld_reduce multimem.st multimem.red"
    " prefetch prefetchu applypriority discard createpolicy isspacep cvta cvt cvt.pack mapa getctarank cp.async"
    " cp.async.bulk cp.reduce.async.bulk cp.async.bulk.tensor cp.reduce.async.bulk.tensor tensormap.replace",
    "9.7.10, 9.7.11 Textures and surfaces": "tex tld4 txq istypep suld sust sured suq",
    "9.7.12 Control flow": "bra brx.idx call ret exit",
    "9.7.13 Synchronisation": "bar barrier bar.warp.sync barrier.cluster membar fence fence.proxy fence.mbarrier_init"
    " atom red red.async vote.sync match activemask redux.sync griddepcontrol elect.sync mbarrier.init mbarrier.inval"
    " mbarrier.arrive mbarrier.arrive_drop mbarrier.test_wait mbarrier.try_wait mbarrier.expect_tx mbarrier.complete_tx"
    " mbarrier.pending_count cp.async.mbarrier.arrive tensormap.cp_fenceproxy clusterlaunchcontrol.try_cancel",
    "9.7.14 Warp matrices": "wmma.load wmma.store wmma.mma mma.sync mma.sp ldmatrix stmatrix movmatrix",
    "9.7.15, 9.7.16 Warpgroup and fifth-generation matrices": "wgmma.mma_async wgmma.fence wgmma.commit_group"
    " wgmma.wait_group tcgen05.mma tcgen05.ld tcgen05.st tcgen05.cp tcgen05.alloc tcgen05.commit",
    "9.7.17 Stack": "stacksave stackrestore alloca",
    "9.7.18 Video": "vadd vsub vabsdiff vmin vmax vshl vshr vmad vset vadd2 vadd4 vabsdiff4",
    "9.7.19 Miscellaneous": "brkpt nanosleep pmevent trap setmaxnreg",
}  # fmt: skip
"""Every instruction of the manual, all targets. `name.part` is an instruction that the manual describes apart."""


def without_row(names: str) -> list[str]:
    """Return the instructions of a section that the tables do not have."""
    return [name for name in names.split() if not any(_starts(row, name) for row in ROWS)]


def _starts(row: isa.Form, name: str) -> bool:
    head = re.split(r"[ {]", row.text, maxsplit=1)[0]
    return head == name or head.startswith(f"{name}.")


CHAPTERS = {
    "integer": "9.7.1 Integer arithmetic, 9.7.2 extended precision", "bits": "9.7.8 Logic and shift",
    "floating": "9.7.3 Floating point", "half": "9.7.4 Half precision",
    "compare": "9.7.6, 9.7.7 Comparison and selection", "convert": "9.7.9.21 Conversion",
    "memory": "9.7.9 Data movement", "control": "9.7.12 Control flow, 9.7.19 miscellaneous",
    "sync": "9.7.13 Synchronisation and communication", "mbarrier": "9.7.13.15 mbarrier",
    "matrix": "9.7.14 Matrix multiply-accumulate", "wgmma": "9.7.15 Matrix products of a warpgroup",
    "bulk": "9.7.9.25, 9.7.9.28 Bulk copies, tensor copies, tensor maps",
    "cluster": "9.7.9.23, 9.7.13.3 Clusters",
}  # fmt: skip


def spelled(family: str) -> Iterator[str]:
    """Return every opcode of a family."""
    parts = re.split(r"\{([^}]*)\}", family)
    choices = [part.split(",") if at % 2 else [part] for at, part in enumerate(parts)]
    return ("".join(chosen) for chosen in product(*choices))


def missing() -> list[str]:
    """Return the opcodes and special registers of the list that the tables do not have."""
    opcodes = [opcode for families in WANTED.values() for family in families for opcode in spelled(family)]
    specials = [name for family in SPECIAL_WANTED for name in spelled(family)]
    return [op for op in opcodes if isa.lookup(op) is None] + [name for name in specials if name not in SPECIALS]


def _count(row: isa.Form) -> int:
    total = 1
    for slot in row.slots:
        total *= len(slot.choices) + slot.optional
    return total


REASONS = (
    "Some have no row because they need a later architecture than the virtual GPU has (sm_90, sm_100), textures and",
    "surfaces because Weft has no texture memory, `shfl` and `vote` without `.sync` because sm_70 removed them. A",
    "call of a function pointer from outside stops the launch: a kernel can call only functions of the same file.",
    "A form that needs a later target than the file names is refused, as ptxas refuses it (`Facts.target` of the row).",
)

PRODUCTION = """\
FlashInfer 0.7.2 (single-request decode and prefill) and CuTe of CUTLASS 4.2, unmodified, through NVRTC 13 and nvcc
13.0: no form is missing. Both write `ldmatrix` with its modifiers in another order than the manual's, as ptxas accepts;
so does Weft. How to run them, and what the checkers report: [production kernels](howto/production_kernels.md)."""


def page() -> str:
    """Return the text of docs/ptx_coverage.md."""
    lines = [
        "# PTX coverage",
        "",
        "Written by `scripts/ptx_coverage` from the instruction tables (`src/weft/ptx/isa/`); a test compares them.",
        "Every row runs on the interpreter and on the compiled path with the same bits (`tests/ptx/`). An opcode",
        "without a row is refused with its PTX line.",
        "",
        "## Which instructions of sm_80, sm_86 and sm_89 are supported",
        "| group | opcodes | missing |",
        "|---|---:|---:|",
    ]
    for group, families in WANTED.items():
        opcodes = [opcode for family in families for opcode in spelled(family)]
        lines.append(f"| {group} | {len(opcodes)} | {sum(isa.lookup(op) is None for op in opcodes)} |")
    names = [name for family in SPECIAL_WANTED for name in spelled(family)]
    lines.append(f"| special registers | {len(names)} | {sum(name not in SPECIALS for name in names)} |")
    absent = missing()
    lines += ["", f"Missing: {', '.join(f'`{op}`' for op in absent) if absent else 'none'}.", ""]
    lines += ["## Which instructions of the manual have no row", "They are refused by name.", ""]
    lines += ["| section | instructions | without a row | which |", "|---|---:|---:|---|"]
    for section, listed in MANUAL.items():
        absent = without_row(listed)
        shown = ", ".join(f"`{name}`" for name in absent)
        lines.append(f"| {section} | {len(listed.split())} | {len(absent)} | {shown} |")
    lines += ["", *REASONS, ""]
    lines += ["## What production code needs", PRODUCTION, ""]
    lines += ["## Rows by chapter of the manual"]
    for chapter, title in CHAPTERS.items():
        rows = [row for row in ROWS if row.chapter == chapter]
        lines += ["", f"### {title}", f"{len(rows)} rows, {sum(map(_count, rows))} spellings.", "```text"]
        lines += [f"{row.section:<13} {row.facts.target:<7} {row.text}" for row in rows] + ["```"]
    return "\n".join(lines) + "\n"
