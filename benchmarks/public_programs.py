"""Public CUDA programs under `weft exec`: which are run, how they are built, and whether they find themselves right.

For benchmarks/programs.py --programs FOLDER. FOLDER has checkouts of siboehm/SGEMM_CUDA, karpathy/llm.c,
NVIDIA/cuda-samples and zjin-lcf/HeCBench; those that are not there are left out. nvcc builds them for compute_89 with
-lineinfo. Nothing of them is changed but sizes: by arguments, and in llm.c, which has none, by the numbers in SIZES.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.driver.program import LIBRARY, library_folder

OURS = Path(__file__).parent / "public_sources"
NVCC = ["nvcc", "-w", "-O3", "-lineinfo", "-std=c++17", "-gencode", "arch=compute_89,code=compute_89"]

LLM_C = {  # program → kernels, by number; those that need cuBLAS or cuDNN are left out
    "adamw": (1, 2),
    "attention_forward": (1, 2),
    "classifier_fused": (1, 2, 3, 4, 5),
    "crossentropy_forward": (1,),
    "crossentropy_softmax_backward": (1,),
    "encoder_backward": (1, 2),
    "encoder_forward": (1, 2, 3),
    "fused_residual_forward": (1, 2, 3, 4, 5, 6),
    "gelu_backward": (1, 2),
    "gelu_forward": (1, 2),
    "global_norm": (1, 2, 3, 4),
    "layernorm_backward": (2, 3, 4, 5, 6, 7, 8, 9, 10),
    "layernorm_forward": (1, 2, 3, 4, 5, 6),
    "matmul_backward_bias": (1, 2, 3, 4, 5, 6, 7, 8),
    "matmul_forward": (1, 3),
    "permute": (1,),
    "residual_forward": (1, 2),
    "softmax_forward": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
    "trimat_forward": (0, 1, 2, 3, 4),
}
SIZES = {"B": 2, "T": 128, "C": 256, "OC": 128, "NH": 2, "V": 1024, "L": 1, "num_parameters": 4096, "repeat_times": 1}
"""Numbers in place of those of llm.c."""

CUDA_SAMPLES = {  # folder below Samples → arguments
    "0_Introduction": {
        name: ""
        for name in """asyncAPI clock fp16ScalarProduct mergeSort simpleAWBarrier simpleAssert
        simpleAtomicIntrinsics simpleAttributes simpleCallback simpleCooperativeGroups simpleHyperQ
        simpleMultiCopy simpleMultiGPU simpleOccupancy simplePrintf simpleStreams simpleTemplates simpleVoteIntrinsics
        simpleZeroCopy systemWideAtomics template vectorAdd""".split()
    }
    | {"matrixMul": "-wA=64 -hA=64 -wB=64 -hB=64"},
    "2_Concepts_and_Techniques": {
        "cppIntegration": "",
        "histogram": "",
        "inlinePTX": "",
        "reduction": "--n=4096",
        "reductionMultiBlockCG": "--n=4096",
        "scalarProd": "",
        "scan": "",
        "shfl_scan": "",
        "sortingNetworks": "",
        "streamOrderedAllocation": "",
        "threadFenceReduction": "--n=4096",
        "dct8x8": "",
        "eigenvalues": "",
        "convolutionSeparable": "",
    },
    "3_CUDA_Features": {
        name: ""
        for name in """binaryPartitionCG bf16TensorCoreGemm cudaTensorCoreGemm dmmaTensorCoreGemm globalToShmemAsyncCopy
        graphMemoryFootprint graphMemoryNodes immaTensorCoreGemm jacobiCudaGraphs newdelete simpleCudaGraphs
        tf32TensorCoreGemm warpAggregatedAtomicsCG""".split()
    },
    "5_Domain_Specific": {
        name: ""
        for name in "BlackScholes SobolQRNG binomialOptions dwtHaar1D fastWalshTransform quasirandomGenerator".split()
    },
    "6_Performance": {"alignedTypes": "", "transpose": "-dimX=128 -dimY=128", "UnifiedMemoryPerf": ""},
}

HECBENCH = """
accuracy 512 1000 10 1 | adam 1000 20 1 | adamw 10000 1 | adjacent 10000 1 | aidw 1 1 1 | atomicAggregate 1
attention 256 64 0 1 | attentionMergeState 16 4 128 1 | axpby 1 | background-subtract 128 64 0 5 | bezier-surface -n 64
bilateral 64 48 0.5 0.5 1 | bincount 10000 1 | bitonic-sort 8 2 | blockScan 10 1 | bscan 1 | burger 64 64 2
bwt 1000 | cbsfil 64 64 1 | channelSum 16 16 1 | chi2 128 512 64 64 256 1 | colorwheel 10 64 1 | complex 1000 1
convolution1D 4096 1 | convolution3D 2 1 2 8 8 3 1 | convolutionSeparable 128 128 1 | cooling 1000 1
coordinates 1000 1 | cross 1000 1 | dct8x8 64 64 1 | dense-embedding 300 16 1 | dp4a 4096 1
ecdh 1000 1 | eigenvalue 64 1 | entropy 64 64 1 | filter 10000 256 1 | flip 3 16 1 | floydwarshall 32 1 16
ga 1000 100 11 1 | gabor 64 64 1 | gamma-correction 64 64 256 1 | glu 3 16 1 | groupnorm 2 32 4 4 32 1
hadamard 64 1 | hausdorff 1000 1000 1 | heat2d 64 64 4 | hwt1d 4096 1 | iso2dfd 64 64 2 | jenkins-hash 256 4096 1
keogh 16 2000 1 | laplace3d 32 32 32 2 1 | lif 100 32 10 | logprob 4 2 512 1 | mask 8 8 8 1 | matern 16 1
matrix-rotate 64 1 | matrixT 64 64 1 | maxpool3d 64 64 2 1 | merge 1000 1 | minmax 1000 1 | moe-sum 8 64 1
morphology 4 4 64 64 1 | mrc 1000 1 | mtf 16 1 | multinomial 64 64 1 | nlll 16 8 1 | nonzero 64 64 1
nqueen 8 3 1 | nw 64 10 1 | perplexity 64 8 1 | pool 1 2 16 16 4 4 1 | present 100 1 | quantBnB 4096 1
reverse 1 | rfs 1 1000 | ring 1 1024 1 | romberg 2 64 1 | s8n 16 32 1 | scan 4096 1 | scatter 1000 1
scatterAdd 1000 32 8 1 | scel 16 64 1 | silu 2 2 8 8 1 | softmax 64 32 0 1 | softmax-fused 1 1 32 32 1
split 4096 1 | stddev 32 64 1 | stencil1d 4096 1 | surfel 16 32 32 1 | threadfence 1 10000 | tsa 32 32 1
unfold 1000 1 | upsample 1 2 8 8 1 | vadd 64 64 1 | vanGenuchten 8 8 8 1 | wedford 4 4 64 1 | wyllie 1000 1 1
zeropoint 1000 1 | zoom 1 3 16 32 1
"""

WRONG = re.compile(
    r"\bFAIL|\bfailed\b|[Mm]ismatch|[Nn]ot match|NOT OK|[Ii]ncorrect|not match|\bwrong\b|CUDA error", re.I
)
NONE_WRONG = re.compile(
    r"\b(?:0|no) (?:failures|errors|mismatches)|failed as expected|assertion of a kernel failed", re.I
)
RIGHT = re.compile(r"\bPASS|\bOK\b|[Ss]uccess|\bcorrect|\bmatch|results match|\bdone\b|completed", re.I)
WAIVED = 2
"""The exit code of cuda-samples where a GPU lacks what is shown."""
KEPT = 600
"""Characters of a wrong program's output that are kept."""


@dataclass(frozen=True)
class Program:
    """One run: how it is built, from which folder, with which arguments."""

    name: str
    folder: Path
    build: tuple[str, ...]
    binary: str
    arguments: tuple[str, ...] = ()
    sizes: bool = False
    key: str = ""
    """Programs of one key are one binary."""


@dataclass
class Outcome:
    """What happened to a program."""

    name: str
    end: str
    """right, unchecked (it ended well and says nothing), waived (by the program: this GPU lacks what it shows), wrong,
    refused, not built, not done."""
    text: str = ""
    launches: int = 0
    findings: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def programs(folder: Path) -> Iterator[Program]:
    """Yield the programs of the checkouts that are in a folder."""
    if (root := folder / "SGEMM_CUDA").is_dir():
        build = (*NVCC, f"-I{OURS}", "-Isrc", "-o", "sgemm_main", str(OURS / "sgemm_main.cu"))
        yield Program("SGEMM_CUDA", root, build, "sgemm_main", key="SGEMM_CUDA")
    if (root := folder / "llm.c" / "dev" / "cuda").is_dir():
        for name, kernels in LLM_C.items():
            build = (*NVCC, "--use_fast_math", "-Xcompiler", "-fopenmp", f"-I{OURS}", "-o", name, f"{name}.cu")
            for kernel in kernels:
                yield Program(f"llm.c {name} {kernel}", root, build, name, (str(kernel),), True, f"llm.c {name}")
    if (root := folder / "cuda-samples").is_dir():
        for name, arguments in (pair for names in CUDA_SAMPLES.values() for pair in names.items()):
            for where in (root / "Samples").glob(f"*/{name}"):  # samples move between groups
                sources = sorted(path.name for path in where.glob("*.c*") if path.suffix in (".cu", ".cpp", ".c"))
                build = (
                    *NVCC,
                    f"-I{root}/Common",
                    "-rdc=true",
                    "-o",
                    "sample",
                    *sources,
                    "-Xlinker",
                    str(library_folder() / LIBRARY),
                    "-Xcompiler",
                    "-fopenmp",
                )
                yield Program(
                    f"cuda-samples {name}", where, build, "sample", tuple(arguments.split()), key=f"sample {name}"
                )
    if (root := folder / "HeCBench" / "src").is_dir():
        for row in HECBENCH.replace("\n", "|").split("|"):
            if row.strip():
                name, *words = row.split()
                build = ("make", "ARCH=compute_89", "program=main", "main")
                yield Program(f"HeCBench {name}", root / f"{name}-cuda", build, "main", tuple(words), key=f"hec {name}")


def built(program: Program, folder: Path) -> Path | str:
    """Build a program in a copy of its folder, once; return the folder, or why there is no program."""
    copy = folder / re.sub(r"\W+", "_", program.key)
    if (copy / program.binary).exists():
        return copy
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(program.folder, copy)
    if program.sizes:
        source = copy / f"{program.binary}.cu"
        text = source.read_text()
        for size, number in SIZES.items():
            text = re.sub(rf"\b(\w+ {size} =) [\d *]+;", rf"\1 {number};", text)
        source.write_text(text)
    # What includes "../other-cuda/x.h" finds it.
    for other in re.findall(r"\.\./([\w-]+)", "".join(path.read_text(errors="replace") for path in copy.glob("*.*u*"))):
        if (program.folder.parent / other).is_dir() and not (folder / other).exists():
            (folder / other).symlink_to(program.folder.parent / other)
    variables = os.environ | {"NVCC_APPEND_FLAGS": "-lineinfo -w"}
    try:
        made = subprocess.run(program.build, cwd=copy, env=variables, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return "nvcc was not done after 900 s"
    return copy if (copy / program.binary).exists() else (made.stderr + made.stdout)[-KEPT:]


def finding_text(row: dict[str, Any]) -> str:
    """Return a finding of `weft exec --json` as a line."""
    place = f" · {Path(row['file']).name}:{row['line']}" if row.get("file") else f" · PTX line {row['ptx_line']}"
    return f"{row['kernel']}: {row['code']} {row['message']}{place}"


def run(program: Program, where: Path, seconds: float, tools: str) -> Outcome:
    """Run a program; judge by its exit code and by what it prints."""
    record = where / "weft.json"
    record.unlink(missing_ok=True)
    command = [sys.executable, "-m", "weft", "exec", "--keep-going", "--findings", "report", "--json", str(record)]
    command += [*(["--tools", tools] if tools else []), f"./{program.binary}", *program.arguments]
    process = subprocess.Popen(
        command,
        cwd=where,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        printed, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Outcome(program.name, "not done", f"after {seconds:.0f} s")
    found: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {"program_exit_code": -1}
    refused = [f"{row['what']}: {row['why']}" for row in found.get("refused", ())]
    own = "\n".join(line for line in said.splitlines() if not line.startswith(("weft: ", "ERROR SUMMARY")))
    text = printed + own
    if refused:
        end = "refused"
    elif found["program_exit_code"] == WAIVED and "aiv" in text:
        end = "waived"
    elif found["program_exit_code"] or WRONG.search(NONE_WRONG.sub("", text)):
        end = "wrong"
    else:
        end = "right" if RIGHT.search(text) else "unchecked"
    findings = [finding_text(row) for row in found.get("findings", ())]
    kept = "" if end == "right" else f"exit code {found['program_exit_code']}: {text[-KEPT:]}"
    return Outcome(program.name, end, kept, found.get("launches", 0), findings, refused)


def run_all(folder: Path, options: argparse.Namespace) -> list[Outcome]:
    """Build and run the programs of a folder; those that have a row in the results are not run again."""
    rows = options.results / "programs.jsonl"
    kept = [Outcome(**json.loads(line)) for line in rows.read_text().splitlines()] if rows.exists() else []
    done = {outcome.name for outcome in kept}
    made = options.results.with_name(f"{options.results.name}_built")
    made.mkdir(parents=True, exist_ok=True)
    for program in programs(folder.resolve()):
        if program.name in done or not re.search(options.only, program.name):
            continue
        where = built(program, made)
        if isinstance(where, str):
            outcome = Outcome(program.name, "not built", where)
        else:
            outcome = run(program, where, options.test_seconds, options.tools)
        kept.append(outcome)
        with rows.open("a") as lines:
            lines.write(json.dumps(vars(outcome)) + "\n")
        sums = f"{outcome.end}, {outcome.launches} launches, {len(outcome.findings)} findings"
        print(f"{outcome.name}: {sums}", file=sys.stderr, flush=True)
    return kept
