"""The verbs of `weft`, in the groups and the order in which `weft --help` lists them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    """One verb: where its function is, and what the help shows without loading it."""

    target: str
    """module:function"""
    help: str
    """One line of `weft --help`, short enough for a terminal of 80 columns."""
    examples: tuple[str, ...] = ()
    """Commands that open the verb's own help."""


GROUPS = {
    "Judge": {
        "check": Verb(
            "weft.cli.check:check",
            "Check a kernel: memory, races, results, determinism.",
            ("weft check kernel.cu --masks causal", "weft check wmma --shapes small,ragged"),
        ),
        "triton": Verb(
            "weft.cli.triton:app",
            "Run a script's Triton kernels on the virtual GPU.",
            ("weft triton --check script.py",),
        ),
        "exec": Verb(
            "weft.cli.exec:app",
            "Run a CUDA program without a GPU, with checkers.",
            ("weft exec python script.py", "weft exec --tools all pytest tests/"),
        ),
        "certify": Verb(
            "weft.cli.certify:certify",
            "Test a task's gate with wrong implementations.",
            ("weft certify sdpa", "weft certify --source-mutants kernel.cu --count 24"),
        ),
    },
    "Debug": {
        "diagnose": Verb(
            "weft.cli.diagnose:diagnose",
            "Find a kernel's first wrong stage, the line and the cure.",
            ("weft diagnose kernel.cu --shape small",),
        ),
        "run": Verb(
            "weft.cli.run:run",
            "Run a kernel on the virtual GPU and print its findings.",
            ("weft run kernel.cu --tool racecheck", "weft run kernel.cu --size S=256 --save o=o.npy"),
        ),
        "show": Verb(
            "weft.cli.show:show",
            "Show PTX, SASS, LLVM IR, resources or shared memory.",
            ("weft show kernel.cu --as resources",),
        ),
        "explain": Verb(
            "weft.cli.explain:explain",
            "Explain a finding code, with an example and the cure.",
            ("weft explain R101",),
        ),
    },
    "Measure": {
        "profile": Verb(
            "weft.cli.profile:profile",
            "Model the cost on a GPU: counters, occupancy, bounds, lines.",
            ("weft profile kernel.cu --gpu h100", "weft profile scalar wmma --shape mission"),
        ),
        "bench": Verb(
            "weft.cli.bench:bench_verb",
            "Time kernels on a real GPU, against PyTorch or each other.",
            ("weft bench kernel.cu --shapes mission",),
        ),
    },
    "Search": {
        "evolve": Verb(
            "weft.cli.evolve:evolve",
            "Search for a faster kernel that passes the check.",
            ("weft evolve --start kernel.cu --budget 60 -o winner.cu",),
        ),
        "runs": Verb(
            "weft.cli.runs:runs",
            "List searches; show one with lineage, levers and insights.",
            ("weft runs", "weft runs show 1"),
        ),
    },
    "Share": {
        "report": Verb(
            "weft.cli.report:report",
            "Write one HTML page about a kernel or a search.",
            ("weft report kernel.cu -o report.html",),
        ),
        "bundle": Verb(
            "weft.cli.bundle:bundle",
            "Write one file: kernel, workloads, versions, verdict.",
            ("weft bundle kernel.cu -o kernel.weft",),
        ),
        "replay": Verb(
            "weft.cli.replay:replay",
            "Judge a bundle again on this machine and list differences.",
            ("weft replay kernel.weft",),
        ),
        "export": Verb(
            "weft.cli.export:export",
            "Write a kernel in the format of another tool.",
            ("weft export wmma --torch wmma_torch.cu",),
        ),
        "import": Verb(
            "weft.cli.import_:import_file",
            "Extract device code and launch lines of a torch extension.",
            ("weft import extension.cu -o kernel.cu",),
        ),
    },
    "Set up": {
        "demo": Verb(
            "weft.cli.demo:demo",
            "Find, explain and fix a bug in a sample kernel.",
            ("weft demo",),
        ),
        "doctor": Verb(
            "weft.cli.doctor:doctor",
            "Show what is installed and how to add what is missing.",
            ("weft doctor --try",),
        ),
        "list": Verb(
            "weft.cli.list:list_all",
            "List kernels, shapes, regimes and tasks.",
            ("weft list",),
        ),
        "mcp": Verb(
            "weft.cli.mcp:mcp",
            "Serve these tools to a coding agent (MCP over stdio).",
            ("weft mcp",),
        ),
        "completion": Verb(
            "weft.cli.completion:completion",
            "Print a shell's completion script.",
            ("weft completion bash",),
        ),
    },
    "Less common": {
        "worker": Verb(
            "weft.cli.worker:worker",
            "Evaluate the candidates that searches queue in a store.",
            ("weft worker --store search.db --once",),
        ),
        "fleet": Verb(
            "weft.cli.fleet:app",
            "Show the workers of a store: queue, rates, metrics, log.",
            ("weft fleet status --store search.db",),
        ),
        "journal": Verb(
            "weft.cli.journal:journal",
            "Record goals, results, decisions, time and money.",
            ("weft journal start 'faster softmax'", "weft journal run weft check kernel.cu"),
        ),
        "validate-gpu": Verb(
            "weft.cli.validate_gpu:validate_gpu",
            "Compare the predictions with measurements on a real GPU.",
            ("weft validate-gpu --rungs wmma -o validation.zip",),
        ),
    },
}
"""Heading → its verbs. `weft --help` shows them in this order."""

VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}
