"""A driver of headless Chromium for tests of web pages. It uses Chromium's debugging protocol."""

import base64
import json
import subprocess
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

START_S = 30.0
ANSWER_S = 20.0


class PageLeftError(Exception):
    """Error: the page was left while it evaluated an expression."""


class Browser:
    """One browser tab. It collects the page's error messages and the addresses that the page requests."""

    def __init__(self, chromium: str) -> None:
        self._chromium = chromium
        self.complaints: list[str] = []
        self.requested: list[str] = []
        """Addresses that the page requested."""
        self._number = 0

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        profile = Path(self._stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        self._process = subprocess.Popen(
            [
                self._chromium,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._stack.callback(self._end, self._process)
        try:
            self._socket = self._stack.enter_context(self._connection(profile / "DevToolsActivePort"))
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def _connection(self, port_file: Path) -> AbstractContextManager[ClientConnection]:
        deadline = time.monotonic() + START_S
        while not (port_file.exists() and port_file.read_text().count("\n")):
            assert self._process.poll() is None, "chromium has ended"
            assert time.monotonic() < deadline, "chromium does not start"
            time.sleep(0.05)
        port, path = port_file.read_text().split("\n")[:2]
        return connect(f"ws://127.0.0.1:{port}{path}", max_size=1 << 26, ping_interval=None, proxy=None)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command to the tab, and return the tab's answer."""
        return self._call(method, self._session, **parameters)

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        while True:
            answer = json.loads(self._socket.recv(ANSWER_S))
            if answer.get("id") == self._number:
                if "navigated or closed" in answer.get("error", {}).get("message", ""):
                    raise PageLeftError(answer)
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(parameters["exceptionDetails"]))
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.complaints.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requested.append(parameters["request"]["url"])

    def open(self, url: str, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """Evaluate a JavaScript expression in the page, and return its value."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str, timeout_s: float = 10.0) -> float:
        """Wait until a JavaScript expression is true in the page. Return the number of seconds waited."""
        began_at = time.monotonic()
        while not self._is_true(expression):
            if time.monotonic() - began_at >= timeout_s:
                shown = self.value("document.body?.innerText")
                raise AssertionError(f"not within {timeout_s} s: {expression}\n{shown}")
            time.sleep(0.05)
        return time.monotonic() - began_at

    def _is_true(self, expression: str) -> bool:
        """Return True if a JavaScript expression is true. Return False while another page is being loaded."""
        try:
            return bool(self.value(expression))
        except PageLeftError:
            return False

    def text(self, selector: str) -> str:
        """Return the visible text of the element that a CSS selector names."""
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def screenshot(self, path: Path, whole: bool = True) -> None:
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))
