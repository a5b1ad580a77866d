"""One spelling of options is documented, both are accepted; unknown names get a suggestion."""

from pathlib import Path

import pytest

from weft.cli.main import SPELLINGS, main


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "wmm"], "neither a file nor a rung of the ladder (did you mean wmma?)"),
        (["profile", "wmm"], "(did you mean wmma?)"),
        (["check", "wmma", "--shapes", "mision"], "unknown shape 'mision' (did you mean mission?)"),
        (["check", "wmma", "--masks", "causl"], "unknown mask 'causl' (did you mean causal?)"),
        (["check", "wmma", "--regimes", "unit_norml"], "(did you mean unit_normal?)"),
        (["check", "wmma", "--dtypes", "f15"], "(did you mean f16?)"),
        (["check", "wmma", "--task", "spda"], "(did you mean sdpa?)"),
        (["check", "wmma", "--gpu", "rtx4080"], "(did you mean rtx4090?)"),
        (["check", "wmma", "--tool", "racechek"], "(did you mean racecheck?)"),
        (["profile", "wmma", "--shape", "mision"], "(did you mean mission?)"),
        (["explain", "R110"], "(did you mean R10"),
        (["run", "{own}", "--size", "n=3"], "'n' is not a size of this kernel (did you mean N?)"),
        (["run", "{own}", "--shape", "mission"], "has no arrays q, k and v"),
    ],
)
def test_an_unknown_name_gets_a_suggestion(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.cu"
    lines = "sizes N=8", "out x : float[N]", "launch fill(x, N) grid(1) block(32)"
    kernel = 'extern "C" __global__ void fill(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = 1.0f; }\n'
    own.write_text("".join(f"// weft: {line}\n" for line in lines) + kernel)
    assert main([word.replace("{own}", str(own)) for word in arguments]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(("one", "several"), SPELLINGS.items())
@pytest.mark.parametrize("verb", ["check", "diagnose"])
def test_both_spellings_are_one_option(verb: str, one: str, several: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for spelled in (one, several):
        assert main([verb, "no_such_kernel", f"--{spelled}", "x"]) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1] and "neither a file nor a rung" in said[0]
