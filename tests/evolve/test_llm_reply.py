"""Replies: which are accepted, and the exact complaint about the others."""

import json
from typing import Any

import pytest

from weft.evolve.levers import Change, Effect
from weft.evolve.llm.reply import MOST_SOURCE_BYTES, BrokenReply, Rules, read_reply
from weft.kernels.ladder import RUNGS
from weft.tasks.registry import find_task

RULES = Rules(find_task("sdpa"), ("ELEMENT", "CAUSAL"), ("issued", "barriers", "registers"))
SOURCE = RUNGS["wmma"].path.read_text()
RECORD: dict[str, Any] = {
    "levers": [
        {"name": "BLOCK_N", "before": 32, "after": 64},
        {"name": "copy mode", "before": "plain", "after": "async"},
    ],
    "hypothesis": "half as many tiles\nand no registers on the way",
    "predicted": [{"counter": "barriers", "direction": "falls", "why": "fewer tiles"}],
}


def reply(source: str = SOURCE, record: object = RECORD) -> str:
    return f"Here it is.\n```cuda\n{source}```\n\n```json\n{json.dumps(record)}\n```\nGood luck."


def with_record(**changed: object) -> str:
    return reply(record={**RECORD, **changed})


def test_a_good_reply() -> None:
    found = read_reply(reply(), RULES)
    assert found.source == SOURCE
    assert found.changes == (Change("BLOCK_N", "32", "64"), Change("copy mode", "plain", "async"))
    assert found.hypothesis == "half as many tiles and no registers on the way"
    assert found.predicted == (Effect("barriers", "falls", "fewer tiles"),)


def test_spellings_that_models_use() -> None:
    assert read_reply(reply().replace("```cuda", "```cpp wmma.cu"), RULES).source == SOURCE
    assert read_reply(reply().replace("```", "~~~~"), RULES).source == SOURCE
    assert read_reply(f"<think>a draft:\n{reply()}</think>\n{reply()}", RULES).source == SOURCE


def test_a_fence_inside_a_longer_one_is_text() -> None:
    source = SOURCE + "// ```\n"
    text = reply(source).replace("```cuda", "````cuda").replace("``````\n", "").replace("// ```\n```", "// ```\n````")
    assert read_reply(text, RULES).source == source


def test_control_characters_do_not_reach_a_terminal() -> None:
    found = read_reply(with_record(hypothesis="\x1b[31mred\x1b[0m\u202e " + "x" * 2000), RULES)
    assert found.hypothesis.isprintable() and len(found.hypothesis) == 600


def lines_without(what: str) -> str:
    assert what in SOURCE
    return "".join(line for line in SOURCE.splitlines(keepends=True) if what not in line)


LEVERS = RECORD["levers"]
COMPLAINTS = {
    "": "0 closed ```cuda blocks",
    reply() + reply(): "2 closed ```cuda blocks",
    reply().partition("```json")[0]: "0 closed ```json blocks",
    reply().rpartition("```")[0]: "0 closed ```json blocks",
    reply().replace('{"levers"', '{levers"'): "the JSON block cannot be read",
    reply().replace('{"levers"', "[" * 100_000 + '{"levers"'): "the JSON block cannot be read",
    reply(record=[RECORD]): "must be one object",
    reply(record={"levers": LEVERS}): "lacks hypothesis, predicted",
    with_record(levers=LEVERS[:1]): "exactly two objects with name, before and after, not 1",
    with_record(levers=[*LEVERS, LEVERS[0]]): "exactly two objects with name, before and after, not 3",
    with_record(levers="BLOCK_N"): "after, not something else",
    with_record(levers=[LEVERS[0], "COPY"]): "a lever is an object",
    with_record(levers=[LEVERS[0], {**LEVERS[1], "name": "block_n"}]): "both levers are named",
    with_record(levers=[LEVERS[0], {"name": "COPY", "before": "a", "after": "a"}]): "lever COPY stays a",
    with_record(levers=[LEVERS[0], {"name": "COPY", "before": "a"}]): "a lever's after must be a non-empty text",
    with_record(levers=[LEVERS[0], {**LEVERS[1], "name": "$(rm)"}]): "is not a lever's name",
    with_record(hypothesis="  "): "hypothesis must be a non-empty text",
    with_record(hypothesis=True): "hypothesis must be a non-empty text",
    with_record(predicted=[]): "`predicted` must",
    with_record(predicted=["barriers"]): "a prediction is an object",
    with_record(predicted=[{"counter": "speed", "direction": "rises", "why": "x"}]): "'speed' is not a counter",
    with_record(predicted=[{"counter": ["issued"], "direction": "rises", "why": "x"}]): "is not a counter",
    with_record(predicted=[{"counter": "issued", "direction": "down", "why": "x"}]): "`falls` or `rises`",
    with_record(predicted=2 * RECORD["predicted"]): "predicted twice",
    reply(SOURCE + "// " + "x\n" * MOST_SOURCE_BYTES): "the limit is 65536",
    reply(SOURCE + "// " + "x" * 500 + "\n"): "has 503 characters; the limit is 400",
    reply(SOURCE + "int x = '\0';\n"): "not text",
    reply(SOURCE + "void f() { wmma_attention<64><<<1, 128>>>(); }\n"): "host code (<<<)",
    reply(SOURCE + "void f() { cudaMalloc(0, 4); }\n"): "host code (cudaMalloc()",
    reply(SOURCE + "int main() { return 0; }\n"): "host code (int main()",
    reply(lines_without("weft: launch")): "launch lines are wrong",
    reply(lines_without("weft:")): "no `// weft: launch` line",
    reply(SOURCE.replace("// weft: in      k, v", "// weft: in      keys, v")): "launch lines are wrong",
    reply(SOURCE.replace("weft: out     o ", "weft: workspace o ")): "declare no output o",
    reply(
        SOURCE.replace("weft: in      q ", "weft: workspace q ").replace("D] = normal", "D]", 1)
    ): "have the inputs k, v; the task",
    reply(SOURCE.replace("// weft: define  CAUSAL = 0\n", "#define CAUSAL 0\n")): "`define` line of CAUSAL is missing",
    reply("// weft: option -pre-include=/etc/passwd\n" + SOURCE): "may not set this compiler option",
}


@pytest.mark.parametrize("text", COMPLAINTS, ids=[complaint[:40] for complaint in COMPLAINTS.values()])
def test_a_broken_reply_gets_a_message_about_what_is_wrong(text: str) -> None:
    with pytest.raises(BrokenReply) as raised:
        read_reply(text, RULES)
    assert COMPLAINTS[text] in str(raised.value)


def test_host_code_in_a_comment_is_allowed() -> None:
    source = SOURCE + "// launched as kernel<<<grid, block>>> elsewhere; int main() is not here\n"
    assert read_reply(reply(source), RULES).source == source
