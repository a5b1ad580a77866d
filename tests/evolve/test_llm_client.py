"""The endpoint: a bounded number of retries with the server's pauses, and errors with advice."""

import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from weft.core.errors import ToolMissing, UsageError
from weft.evolve.llm.client import Endpoint, retry_after
from weft.evolve.llm.question import Message, ModelError, Question

from .stub_model import COMPLETION_TOKENS, PROMPT_TOKENS, Refusal, served

QUESTION = Question("1/0/0", 0, "stub-1", (Message("system", "be brief"), Message("user", "hello")))
KEY = "sk-secret-0123456789"
BUSY = Refusal(429, {"retry-after": "7"})


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_an_answer_and_its_tokens() -> None:
    with served(["good day"]) as stub:
        answer = Endpoint(stub.url).ask(QUESTION)
    assert (answer.text, answer.prompt_tokens, answer.completion_tokens) == (
        "good day",
        PROMPT_TOKENS,
        COMPLETION_TOKENS,
    )
    assert stub.asked == [
        {
            "model": "stub-1",
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
        }
    ]


def test_the_pause_is_the_servers_or_doubles() -> None:
    pauses: list[float] = []
    with served([BUSY, Refusal(503), Refusal(500), "at last"]) as stub:
        assert Endpoint(stub.url, sleep=pauses.append).ask(QUESTION).text == "at last"
    assert pauses == [7.0, 2.0, 4.0]


def test_tries_are_bounded() -> None:
    pauses: list[float] = []
    with served([BUSY] * 10) as stub, pytest.raises(ModelError, match="answers 429, 3 times"):
        Endpoint(stub.url, tries=3, sleep=pauses.append).ask(QUESTION)
    assert len(stub.asked) == 3 and pauses == [7.0, 7.0]


def test_a_pause_of_hours_is_not_waited_for() -> None:
    pauses: list[float] = []
    with served([Refusal(429, {"retry-after": "7200"})]) as stub, pytest.raises(ModelError, match="pause of 7200 s"):
        Endpoint(stub.url, sleep=pauses.append).ask(QUESTION)
    assert pauses == []


def test_a_refusal_is_not_repeated_and_never_shows_the_key() -> None:
    body = '{"error": {"message": "no such key: ' + KEY + '"}}'
    with served([Refusal(401, body=body), "unreachable"]) as stub, pytest.raises(ModelError) as raised:
        Endpoint(stub.url).ask(QUESTION)
    assert len(stub.asked) == 1
    assert "refuses with 401" in str(raised.value) and KEY not in str(raised.value)


def test_no_server_listens() -> None:
    with served([]) as stub:
        url = stub.url
    with pytest.raises(ModelError, match="cannot be reached"):
        Endpoint(url.replace("//", "//user:pass@"), tries=2, sleep=lambda seconds: None).ask(QUESTION)


@pytest.mark.parametrize("body", ["<html>welcome</html>", "{}", '{"choices": []}', "[1]"])
def test_something_else_answers(body: str) -> None:
    with served([Refusal(200, body=body)]) as stub, pytest.raises(ModelError, match="/v1"):
        Endpoint(stub.url, tries=1).ask(QUESTION)


def test_without_a_count_of_tokens_no_budget_can_be_kept() -> None:
    with served(["a", "b"], usage=False) as stub:
        assert Endpoint(stub.url).ask(QUESTION).prompt_tokens == 0
        with pytest.raises(ModelError, match="does not report its tokens"):
            Endpoint(stub.url, counted=True).ask(QUESTION)


def test_invalid_text_becomes_valid_text() -> None:
    with served(["a\ud800b"]) as stub:
        assert Endpoint(stub.url).ask(QUESTION).text == "a?b"


def test_a_key_is_needed_unless_the_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UsageError, match="set OPENAI_API_KEY"):
        Endpoint()
    with served(["local"]) as stub:
        assert Endpoint(stub.url).ask(QUESTION).text == "local"
    monkeypatch.setenv("OTHER_KEY", "k2")
    with served(["other"]) as stub:
        Endpoint(stub.url, key_variable="OTHER_KEY").ask(QUESTION)
    assert stub.keys == ["Bearer k2"]


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ToolMissing, match=r"pip install 'weft-gpu\[llm\]'"):
        Endpoint("http://127.0.0.1:1/v1")


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after("1.5") == 1.5
    assert retry_after("-3") == 0.0
    assert [retry_after(header) for header in (None, "", "soon", "nan", "inf")] == [None] * 5
    in_a_minute = retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True))
    assert in_a_minute is not None and 50 < in_a_minute <= 60
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
