"""A headless Chromium driven through its debugging protocol, over a WebSocket of a few lines."""

import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    *("--disable-dev-shm-usage", "--force-color-profile=srgb", "--remote-debugging-port=0"),
)


class Browser:
    """One page of a fresh Chromium.

    Attributes:
      complaints: what the page wrote to its console as a warning or an error, and what it threw.
    """

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        assert CHROMIUM is not None
        self.complaints: list[str] = []
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        self._process = subprocess.Popen(
            [CHROMIUM, *_FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._socket = _Socket(self._address())
        self._number = 0
        for domain in ("Page", "Runtime", "Log"):
            self._send(f"{domain}.enable")
        self.resize(width, height)

    def go(self, url: str) -> None:
        """Goes to a page and waits for nothing."""
        self._send("Page.navigate", url=url)

    def open(self, url: str) -> None:
        """Goes to a page and waits until it has drawn itself."""
        self.go(url)
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def blank(self) -> None:
        """Leaves the page."""
        self.go("about:blank")

    def run(self, script: str) -> Any:
        """Returns what a JavaScript expression gives; promises are waited for."""
        answer = self._send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        """Waits until a JavaScript expression is true."""
        until = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < until, f"waited {seconds} s for {condition}; {self.complaints}"
            time.sleep(0.05)

    def press(self, key: str, code: int) -> None:
        """Presses a key, as Tab (9) or ArrowRight (39)."""
        for kind in ("rawKeyDown", "keyUp"):
            self._send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code)

    def resize(self, width: int, height: int = 900) -> None:
        """Sets the size of the view in CSS pixels."""
        self._send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """Sets the system's colors, "dark" or "light"."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._send("Emulation.setEmulatedMedia", features=[feature])

    def offline(self) -> None:
        """Lets the page reach no network any more."""
        self._send("Network.enable")
        limits = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        self._send("Network.emulateNetworkConditions", offline=True, **limits)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Writes what is seen, or the whole page, as a PNG."""
        answer = self._send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        """Ends Chromium."""
        self._socket.close()
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _address(self) -> str:
        """The page's WebSocket."""
        file = Path(self._profile, "DevToolsActivePort")
        until = time.monotonic() + 60
        while True:
            assert time.monotonic() < until, "Chromium did not start"
            try:
                port = file.read_text().split()[0]
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
                    return next(
                        page["webSocketDebuggerUrl"] for page in json.load(answer) if page["type"] == "page"
                    )
            except (OSError, IndexError):
                time.sleep(0.05)

    def _send(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.receive())
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self._note(message.get("method"), message.get("params", {}))

    def _note(self, event: str | None, what: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(what["exceptionDetails"])[:500])
        elif event == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(what["args"])[:500])
        elif event == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{what['entry']['text']} {what['entry'].get('url', '')}")


class _Socket:
    """The client's side of a WebSocket, for text."""

    def __init__(self, url: str) -> None:
        host, _, path = url.removeprefix("ws://").partition("/")
        name, _, port = host.partition(":")
        self._socket = socket.create_connection((name, int(port)), timeout=60)
        self._file = self._socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (f"GET /{path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade")
        lines = (*lines, f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", "")
        self._socket.sendall("\r\n".join(lines).encode())
        assert b" 101 " in self._file.readline()
        while self._file.readline().strip():
            pass

    def send(self, text: str) -> None:
        content, mask = text.encode(), os.urandom(4)
        size = len(content)
        if size < 126:
            head = struct.pack("!BB", 0x81, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x81, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x81, 0x80 | 127, size)
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(content))
        self._socket.sendall(head + mask + masked)

    def receive(self) -> str:
        parts = []
        while True:
            first, size = self._file.read(2)
            size &= 0x7F
            if size == 126:
                [size] = struct.unpack("!H", self._file.read(2))
            elif size == 127:
                [size] = struct.unpack("!Q", self._file.read(8))
            content = self._file.read(size)
            if first & 0x0F in (0, 1):  # text, or more of it
                parts.append(content)
                if first & 0x80:
                    return b"".join(parts).decode()

    def close(self) -> None:
        self._file.close()
        self._socket.close()
