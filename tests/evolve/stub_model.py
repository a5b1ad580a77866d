"""A server on loopback with the chat completions API that answers from a script."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from weft.evolve.levers import Change, predicted_together

PROMPT_TOKENS, COMPLETION_TOKENS = 1000, 10
"""Tokens of the first answer; every later answer has one more."""


@dataclass(frozen=True)
class Refusal:
    """An HTTP error, or a body that is not an answer."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = '{"error": {"message": "not now"}}'


@dataclass
class StubModel:
    """`script` is answered in order; `asked` has the requests."""

    script: list[str | Refusal]
    usage: bool = True
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    answered: int = 0

    def prompts(self) -> list[str]:
        """Return the last message of every request."""
        return [request["messages"][-1]["content"] for request in self.asked]

    def answer(self, request: dict[str, Any], key: str) -> Refusal:
        self.asked.append(request)
        self.keys.append(key)
        if not self.script:
            return Refusal(400, body='{"error": {"message": "the script is at its end"}}')
        line = self.script.pop(0)
        if isinstance(line, Refusal):
            return line
        body: dict[str, Any] = {
            "id": "stub",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": line}}],
        }
        if self.usage:
            prompt, completion = PROMPT_TOKENS + self.answered, COMPLETION_TOKENS + self.answered
            body["usage"] = {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            }
        self.answered += 1
        return Refusal(200, body=json.dumps(body))


@contextmanager
def served(script: Sequence[str | Refusal], *, usage: bool = True) -> Iterator[StubModel]:
    """Run the server until the end of the block."""
    stub = StubModel(list(script), usage)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            found = self.path == "/v1/chat/completions"
            reply = stub.answer(request, self.headers["authorization"]) if found else Refusal(404)
            self.send_response(reply.status)
            body = reply.body.encode()
            for name, value in {"content-type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reply_text(source: str, changes: Sequence[Change], hypothesis: str = "fewer instructions") -> str:
    """Return a reply of a model that follows its instructions."""
    described = {
        "levers": [{"name": each.lever, "before": each.before, "after": each.after} for each in changes],
        "hypothesis": hypothesis,
        "predicted": [
            {"counter": effect.counter, "direction": effect.direction, "why": effect.why}
            for effect in predicted_together(changes)
        ],
    }
    return f"I change two levers.\n```cuda\n{source}```\nand\n```json\n{json.dumps(described)}\n```\n"
