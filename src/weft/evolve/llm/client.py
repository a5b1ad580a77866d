"""A language model behind any endpoint with OpenAI's chat completions API.

The key is read from the environment; it is never written to a file, and is removed from every message.
"""

import math
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from weft.core import knobs
from weft.core.distribution import install_command
from weft.core.errors import ToolMissing, UsageError

from .question import Answer, ModelError, Question

TRIES = 6
LONGEST_WAIT_SECONDS = 300.0
"""A server that requests a longer pause ends the session; the run continues when it is resumed."""
TIMEOUT_SECONDS = 600.0
RETRIED = frozenset({408, 409, 429})
NO_KEY = "none"
"""Local servers accept any key, but the SDK requires one."""
MOST_ERROR_CHARS = 500


class Endpoint:
    """One model at one address; an empty `base_url` is OpenAI."""

    def __init__(
        self,
        base_url: str = "",
        *,
        key_variable: str = "OPENAI_API_KEY",
        counted: bool = False,
        timeout_seconds: float = TIMEOUT_SECONDS,
        tries: int = TRIES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`counted`: an answer without a token count is an error, because a budget depends on it."""
        try:
            import openai
        except ImportError as error:
            raise ToolMissing(f"--proposer llm needs the package openai: {install_command('llm')} ({error})") from error
        self._key = knobs.api_key(key_variable)
        if not base_url and not self._key:
            raise UsageError(f"set {key_variable} to the key of the endpoint, or name a local one with --base-url")
        self._openai: Any = openai
        self._client: Any = openai.OpenAI(
            base_url=base_url or None, api_key=self._key or NO_KEY, max_retries=0, timeout=timeout_seconds
        )
        self._shown = re.sub("//[^/]*@", "//", base_url) or "the endpoint"
        self._counted, self._tries, self._sleep = counted, tries, sleep

    def ask(self, question: Question) -> Answer:
        """Return the model's answer; wait and ask again while the server is busy."""
        began = time.monotonic()
        for tried in range(1, self._tries + 1):
            try:
                text, usage = self._complete(question)
            except self._openai.APIStatusError as error:
                if error.status_code not in RETRIED and error.status_code < 500:
                    raise self._refused(f"refuses with {error.status_code}: {error.message}") from None
                failure, asked = f"answers {error.status_code}", retry_after(error.response.headers.get("retry-after"))
            except self._openai.APIConnectionError as error:  # timeouts are of this kind
                failure, asked = f"cannot be reached: {error}", None
            except (self._openai.OpenAIError, ValueError, AttributeError, TypeError, IndexError) as error:
                raise self._refused(
                    f"does not answer as a chat completions API: {error}; the URL usually ends in /v1"
                ) from None
            else:
                return self._answer(text, usage, time.monotonic() - began)
            pause = min(2.0 ** (tried - 1), 60.0) if asked is None else asked
            if pause > LONGEST_WAIT_SECONDS:
                raise self._refused(f"{failure} and requests a pause of {pause:.0f} s: resume the run after that")
            if tried < self._tries:
                self._sleep(pause)
        raise self._refused(f"{failure}, {self._tries} times: resume the run later, it continues where it stopped")

    def _complete(self, question: Question) -> tuple[str, Any]:
        messages = [{"role": message.role, "content": message.content} for message in question.messages]
        completion = self._client.chat.completions.create(model=question.model, messages=messages)
        text = str(completion.choices[0].message.content or "")
        return text.encode(errors="replace").decode(), completion.usage  # JSON can encode invalid text

    def _answer(self, text: str, usage: Any, seconds: float) -> Answer:
        counts = (getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None))
        if not all(isinstance(count, int) and count >= 0 for count in counts):
            if self._counted:
                raise self._refused("does not report its tokens, so a budget of tokens or money cannot be kept")
            counts = (0, 0)
        return Answer(text, counts[0] or 0, counts[1] or 0, round(1000 * seconds))

    def _refused(self, what: str) -> ModelError:
        said = f"{self._shown} {what}"
        return ModelError((said.replace(self._key, "…") if self._key else said)[:MOST_ERROR_CHARS])


def retry_after(header: str | None) -> float | None:
    """Return the seconds that a server requests to wait, from a number or a date; None if there is neither."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return None
        seconds = ((date if date.tzinfo else date.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
