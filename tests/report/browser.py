"""Debian's Chromium without a window, controlled over a pipe with the DevTools protocol: no port, no network."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BINARY = "chromium"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage", "--mute-audio",
    "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60
"""Time limit of an answer, in seconds, on a busy machine."""
LOCAL = ("file:", "data:", "about:", "blob:")


class Browser:
    """One page at a time. Its complaints and requests are recorded."""

    def __init__(self, pipe_in: int, pipe_out: int) -> None:
        self._in, self._out = pipe_in, pipe_out
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and return its answer; record events that come before it."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._keep(answer)

    def _read(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            assert time.monotonic() < until, "Chromium does not answer"
            data = os.read(self._out, 1 << 20)
            assert data, "Chromium has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _keep(self, event: dict[str, Any]) -> None:
        method, details = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(details["exceptionDetails"].get("exception", {}).get("description", details)))
        elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(details["args"]))
        elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.complaints.append(details["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True

    def open(self, path: Path, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Load a file at a width, in a colour scheme."""
        self.resize(width, height)
        self.scheme(scheme)
        self._loaded = False
        self.send("Page.navigate", url=path.as_uri())
        while not self._loaded:
            self._keep(self._read())
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def resize(self, width: int, height: int) -> None:
        """Resize the window."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def scheme(self, name: str, *, media: str = "screen") -> None:
        """Set the preferred colour scheme, light or dark; `media` may be print."""
        self.send(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[
                {"name": "prefers-color-scheme", "value": name},
                {"name": "prefers-reduced-motion", "value": "reduce"},
            ],
        )

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression, awaited."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key."""
        codes = {
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
            "Tab": 9,
            "Enter": 13,
            "Home": 36,
            "End": 35,
            "PageDown": 34,
            "PageUp": 33,
            " ": 32,
        }
        code = codes.get(key, ord(key[0].upper()))
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "windowsVirtualKeyCode": code}
            self.send("Input.dispatchKeyEvent", **event, **({"text": text} if text and kind == "keyDown" else {}))

    def click(self, selector: str) -> None:
        """Click on the middle of an element, after scrolling to it."""
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect(); "
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path, selector: str = "", *, margin: int = 0) -> None:
        """Save the whole page, or one element with a margin at its sides and below."""
        script = "[0, 0, document.documentElement.clientWidth, document.documentElement.scrollHeight]"
        if selector:
            script = (
                f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); "
                "return [b.x + scrollX, b.y + scrollY, b.width, b.height]; })()"
            )
        x, y, width, height = self.evaluate(script)
        clip = {"x": x - margin, "y": y, "width": width + 2 * margin, "height": height + margin, "scale": 1}
        shot = self.send("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    @property
    def outside(self) -> list[str]:
        """Return the requests that would leave the machine."""
        return [url for url in self.requests if not url.startswith(LOCAL)]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a browser with an empty profile; end and remove it afterwards."""
    binary = shutil.which(BINARY)
    assert binary is not None, "this test opens pages in Debian's Chromium: apt-get install -y chromium"
    to_read, to_write = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The protocol requires descriptors 3 and 4.
        command = ["bash", "-c", f'exec "$@" 3<&{to_read[0]} 4>&{to_write[1]}', "bash", binary, *FLAGS]
        process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_read[0], to_write[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
        )
        os.close(to_read[0])
        os.close(to_write[1])
        try:
            yield Browser(to_read[1], to_write[0])
        finally:
            os.close(to_read[1])  # a browser whose pipe is closed ends
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(to_write[0])
