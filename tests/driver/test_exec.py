"""`weft exec`: findings while it runs and at the end, exit codes, reports, the trace."""

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.driver.conftest import Exec
from weft.core.chips import chip
from weft.core.errors import ToolMissing

PROGRAMS = Path("tests/driver/programs")


def scale(*arguments: int) -> list[str]:
    return ["python", str(PROGRAMS / "scale.py"), *map(str, arguments)]


def test_a_right_program_runs(weft_exec: Exec) -> None:
    done = weft_exec(*scale(10, 10, 0))
    assert (done.returncode, done.stdout) == (0, "launch 0\nwait 0\n"), done.stderr
    assert done.stderr.splitlines() == ["weft: 1 launch", "ERROR SUMMARY: 0 errors, 0 warnings"]


def test_a_fault_is_the_contexts_error_from_the_next_call_on(weft_exec: Exec, tmp_path: Path) -> None:
    record, log = tmp_path / "result.json", tmp_path / "result.sarif"
    done = weft_exec("--json", str(record), "--sarif", str(log), *scale(10, 16, 0))
    assert (done.returncode, done.stdout) == (1, "launch 0\nwait 700\n"), done.stderr
    first, *_ = done.stderr.splitlines()
    assert first.startswith("weft: scale: M101") and "allocation 1 (40 bytes)" in first and "lanes 10-15" in first
    result = json.loads(record.read_text())
    assert (result["exit_code"], result["program_exit_code"], result["launches"]) == (1, 0, 1)
    assert {(each["kernel"], each["code"]) for each in result["findings"]} == {("scale", "M101")}
    assert {each["ruleId"] for each in json.loads(log.read_text())["runs"][0]["results"]} == {"M101"}


@pytest.mark.parametrize(
    ("fault", "finding", "code"),
    [("trap", "X401", 719), ("misaligned", "M102", 716), ("null", "M104", 700), ("endless", "S302", 702)],
)
def test_faults_have_the_codes_of_a_gpu_until_the_device_is_reset(
    weft_exec: Exec, fault: str, finding: str, code: int
) -> None:
    done = weft_exec("--max-steps", "1000", "python", str(PROGRAMS / "faults.py"), fault)
    assert done.stdout == f"launch 0\nwait {code}\nagain {code}\nreset 0 0\n", done.stderr
    assert done.returncode == 1 and f"weft: k: {finding} " in done.stderr


def test_findings_can_be_reported_only(weft_exec: Exec) -> None:
    done = weft_exec("--findings", "report", *scale(10, 16, 0))
    assert (done.returncode, done.stdout) == (1, "launch 0\nwait 0\n"), done.stderr
    assert "M101" in done.stderr and "ERROR SUMMARY: 2 errors" in done.stderr  # a load and a store


def test_a_trap_is_an_error_of_the_program_also_where_findings_are_reported_only(weft_exec: Exec) -> None:
    done = weft_exec("--findings", "report", "python", str(PROGRAMS / "faults.py"), "trap")
    assert done.stdout == "launch 0\nwait 719\nagain 719\nreset 0 0\n", done.stderr


def test_suppressed_findings_do_not_count(weft_exec: Exec) -> None:
    done = weft_exec("--suppress", "M101", *scale(10, 16, 0))
    assert (done.returncode, done.stdout) == (0, "launch 0\nwait 0\n"), done.stderr
    assert "ERROR SUMMARY: 0 errors, 0 warnings, 2 suppressed" in done.stderr


@pytest.mark.parametrize(("arguments", "expected"), [((10, 10, 7), 7), ((10, 16, 7), 7)])
def test_the_programs_own_exit_code_comes_first(weft_exec: Exec, arguments: tuple[int, ...], expected: int) -> None:
    assert weft_exec(*scale(*arguments)).returncode == expected


def test_a_program_that_a_signal_ends(weft_exec: Exec) -> None:
    assert weft_exec("sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM


def test_a_program_without_a_gpu_call_is_left_alone(weft_exec: Exec) -> None:
    done = weft_exec("sh", "-c", "echo $0 $1", "a", "--tools")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a --tools\n", "")


def test_a_program_that_does_not_exist(weft_exec: Exec) -> None:
    done = weft_exec("./no_such_program")
    assert done.returncode == 2 and "cannot run ./no_such_program" in done.stderr


def test_unknown_tools_are_refused(weft_exec: Exec) -> None:
    done = weft_exec("--tools", "memchek", "sleep", "100")
    assert done.returncode == 2 and "memchek" in done.stderr


def test_initcheck_knows_what_copies_wrote(weft_exec: Exec) -> None:
    program = str(PROGRAMS / "uninitialised.py")
    done = weft_exec("--tools", "initcheck", "python", program)
    assert done.returncode == 1, done.stderr
    assert done.stdout == "ok\n"
    assert done.stderr.count("I202") == 1 and "allocation 2" in done.stderr


def test_the_trace_has_every_call(weft_exec: Exec, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    assert weft_exec("--trace", str(trace), *scale(10, 10, 0)).returncode == 0
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [row["call"] for row in rows] == [
        "cuInit",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuModuleGetGlobal_v2",
        "cuMemcpyHtoD_v2",
        "cuMemAlloc_v2",
        "cuMemcpyHtoD_v2",
        "cuLaunchKernel",
        "cuCtxSynchronize",
        "cuMemcpyDtoH_v2",
        "cuMemFree_v2",
        "cuModuleUnload",
    ]
    assert {row["result"] for row in rows} == {0}
    launch = rows[9]
    assert launch["args"][1:8] == ["0x1", "0x1", "0x1", "0x40", "0x1", "0x1", "0"]
    assert all(row["us"] >= 0 and row["pid"] and row["tid"] for row in rows)
    assert rows[4]["name"] == ["scale"]


def test_after_a_fork_the_driver_is_not_initialised(weft_exec: Exec) -> None:
    done = weft_exec("python", str(PROGRAMS / "fork.py"))
    assert (done.returncode, done.stdout) == (0, "child 3 3\nparent 0\nfresh 0\n"), done.stderr


def test_several_processes_have_separate_memory(weft_exec: Exec) -> None:
    program = f"{sys.executable} {PROGRAMS / 'scale.py'} 10 10 0"
    done = weft_exec("sh", "-c", f"{program} & {program}; wait")
    assert (done.returncode, done.stdout.count("wait 0")) == (0, 2), done.stderr
    assert "weft: 2 launches" in done.stderr


def test_the_program_ends_with_the_server(driver_library: Path, tmp_path: Path) -> None:
    number = tmp_path / "pid"
    script = f"echo $$ > {number}.new; mv {number}.new {number}; exec sleep 600"
    server = subprocess.Popen([sys.executable, "-m", "weft", "exec", "sh", "-c", script])
    deadline = time.monotonic() + 60
    while not number.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    child = Path("/proc", number.read_text().strip())
    assert child.exists()
    server.kill()
    server.wait()
    while child.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not child.exists()


@pytest.mark.sweep
def test_weft_bench_runs_to_its_end(weft_exec: Exec) -> None:
    words = "bench scalar split_k --shapes small --iters 8 --warmup 0 --against first --l2 warm --json"
    done = weft_exec("python", "-m", "weft", *words.split())
    assert done.returncode == 0, done.stderr
    assert "Weft virtual L4" in done.stdout


def test_without_the_library_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.driver import program

    monkeypatch.setattr(program.platform, "machine", lambda: "riscv64")
    with pytest.raises(ToolMissing, match=r"scripts/build_driver.*ziglang"):
        program.library_folder()


CUDA_CORE = """
    cuCtxGetCurrent cuCtxGetDevice cuCtxGetStreamPriorityRange cuCtxSetCurrent cuDeviceGetAttribute cuDeviceGetCount
    cuDeviceGetMemPool cuDeviceGetName cuDevicePrimaryCtxRetain cuDriverGetVersion cuEventCreate cuEventElapsedTime_v2
    cuEventRecord cuGetExportTable cuGetProcAddress_v2 cuInit cuLaunchKernelEx cuLibraryGetKernel cuLibraryLoadData
    cuMemAllocFromPoolAsync cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemcpyDtoH_v2 cuMemcpyHtoD_v2
    cuStreamCreateWithPriority cuStreamIsCapturing cuStreamSynchronize
""".split()
"""What cuda.core 1.2 and NVRTC 13 call until the first result is back. Another version may call something else: if the
test fails after an update, read the trace and write the new list."""


def test_cuda_core_runs_unmodified(weft_exec: Exec, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    done = weft_exec("--trace", str(trace), "python", str(PROGRAMS / "with_cuda_core.py"))
    assert (done.returncode, done.stdout) == (0, "ptx ok\ncubin ok\ncubin ok\n"), done.stderr
    calls = [json.loads(line)["call"] for line in trace.read_text().splitlines()]
    assert sorted(set(calls[: calls.index("cuMemcpyDtoH_v2") + 1])) == sorted(CUDA_CORE)


TRITON = """
    cuCtxGetCurrent cuCtxGetDevice cuCtxSetCurrent cuDeviceGet cuDeviceGetAttribute cuDeviceGetCount
    cuDevicePrimaryCtxRetain cuFuncGetAttribute cuGetProcAddress_v2 cuInit cuLaunchKernelEx cuMemAlloc_v2
    cuMemcpyDtoH_v2 cuMemcpyHtoD_v2 cuModuleGetFunction cuModuleLoadData cuPointerGetAttribute
""".split()


@pytest.mark.skipif(shutil.which("cc") is None, reason="Triton compiles a C module")
def test_tritons_own_driver_runs(weft_exec: Exec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "trace.jsonl"
    monkeypatch.setenv("TRITON_DEFAULT_BACKEND", "nvidia")
    done = weft_exec("--trace", str(trace), "python", str(PROGRAMS / "with_triton.py"))
    assert (done.returncode, done.stdout) == (0, "CudaDriver 89\nelementwise True 0\ndot True True\n"), done.stderr
    calls = [json.loads(line)["call"] for line in trace.read_text().splitlines()]
    assert sorted(set(calls[: calls.index("cuMemcpyDtoH_v2") + 1])) == sorted(TRITON)


def test_registers_of_ptx_come_from_ptxas(weft_exec: Exec, monkeypatch: pytest.MonkeyPatch) -> None:
    program = str(PROGRAMS / "registers.py")
    known = weft_exec("python", program)  # 256 threads of 98 to 128 registers: 65536 // (256 * 104) = 2 blocks
    if shutil.which("ptxas") or importlib.util.find_spec("triton"):
        assert known.stdout == "registers True blocks 2\nlarge 701\ncooperative 0 720\n", known.stderr

    def no_assembler(ptx: str, target: str) -> bytes:
        raise ToolMissing("ptxas is not installed")

    monkeypatch.setattr("weft.driver.resources.assemble", no_assembler)
    unknown = weft_exec("python", program)
    assert unknown.stdout.startswith("registers False blocks 6\nlarge 0\n"), unknown.stderr
    assert "weft: registers of many are unknown (ptxas is not installed)" in unknown.stderr


@pytest.mark.skipif(not importlib.util.find_spec("triton") and not shutil.which("ptxas"), reason="ptxas is missing")
def test_events_by_the_model_hold_the_estimates_of_launches(weft_exec: Exec) -> None:
    program = str(PROGRAMS / "timed.py")
    none, one, two = map(float, weft_exec("--clock", "model", "python", program).stdout.split())
    read_ms = 4 * 2**18 / (chip("l4").dram_gbs * 1e9) * 1e3  # every element is read once; what is written fits into L2
    assert none == 0 and read_ms <= one < 10 * read_ms and two == pytest.approx(2 * one, rel=1e-3)
    none, *_ = map(float, weft_exec("python", program).stdout.split())
    assert none > 0  # the host's time
    refused = weft_exec("--clock", "model", "--tools", "racecheck", "true")
    assert refused.returncode == 2 and "without --tools" in refused.stderr


def test_several_gpus_have_separate_memory_and_contexts(weft_exec: Exec) -> None:
    done = weft_exec("--gpu", "l4,h100", "python", str(PROGRAMS / "two_devices.py"))
    assert done.stdout.splitlines() == [
        "devices 2 peer 0 capabilities 8 9 uuids 2",
        "third 101",
        "device 0 10 20 30 40",
        "device 1 11 22 33 44",
        "variables 2",
        "copied 11 22 33 44",
        "managed 110 110 110 110",  # 1 * 10 on the first, * 11 on the second
        "used 20",  # a buffer and a variable of the second; managed memory is in the first
        "module of the other device 400",
        "no access 0 700",
        "freed 0 700",
        "kept 11 22 33 44",
    ], done.stderr
    assert done.returncode == 1 and "M101" in done.stderr
    refused = weft_exec("--gpu", "l4,l4", "--tools", "racecheck", "true")
    assert refused.returncode == 2 and "--memory" in refused.stderr
    few = weft_exec("--gpu", "l4,l4", "--memory", "1", "--tools", "all", *scale(10, 10, 0))
    assert (few.returncode, few.stdout) == (0, "launch 0\nwait 0\n"), few.stderr


def test_nvml_describes_the_virtual_gpu(weft_exec: Exec) -> None:
    done = weft_exec("python", str(PROGRAMS / "nvml.py"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "count 1 cuda 13000",
        "Weft virtual L4 True",
        "uuid True True",
        "memory True 1000 True",
        "capability (8, 9) MHz 2040",  # the L4's boost clock
        "power: not supported",
    ]


def test_memory_kinds_and_rectangles(weft_exec: Exec) -> None:
    done = weft_exec("python", str(PROGRAMS / "memory_kinds.py"))
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_advice_and_batches(weft_exec: Exec) -> None:
    done = weft_exec("python", str(PROGRAMS / "managed.py"))
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@pytest.mark.parametrize("words", [("free",), ("use",), ("free", "use"), ("free", "early")])
def test_memory_of_a_graph_is_freed_by_its_node(weft_exec: Exec, words: tuple[str, ...]) -> None:
    """The graph is launched twice if it frees its memory: it is the same memory again."""
    done = weft_exec("--findings", "report", "python", str(PROGRAMS / "graph_memory.py"), *words)
    wrong = words in (("free", "use"), ("free", "early"))
    assert (done.returncode, done.stdout) == (int(wrong), "ok\n"), done.stderr
    assert ("M104 read of freed memory: offset 0 in allocation 1" in done.stderr) == wrong, done.stderr


def test_conditional_nodes_of_graphs(weft_exec: Exec) -> None:
    done = weft_exec("--tools", "all", "python", str(PROGRAMS / "conditions.py"))
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_launches_with_clusters(weft_exec: Exec) -> None:
    program = ("python", str(PROGRAMS / "clusters.py"))
    done = weft_exec("--gpu", "h100", "--tools", "all", *program)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert "cannot be divided into clusters of (4, 1, 1) CTAs" in done.stderr
    done = weft_exec("--gpu", "l4", *program, "without")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_tensor_maps_of_the_driver(weft_exec: Exec) -> None:
    program = ("python", str(PROGRAMS / "tensor_maps.py"))
    done = weft_exec("--gpu", "h100", "--tools", "all", *program)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert "cuTensorMapEncodeTiled: tensor map: the box has 28 bytes in dimension 0" in done.stderr
    done = weft_exec("--gpu", "l4", *program, "without")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    done = weft_exec("--gpu", "h100", "--keep-going", *program, "refused")
    assert (done.returncode, done.stdout) == (3, "ok\n"), done.stderr
    assert "cuTensorMapEncodeTiled: unsupported: a tensor map of type 11" in done.stderr
