"""A headless Chromium driven over a pipe by the DevTools protocol, with the standard library alone."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
_WAIT = 60.0  # seconds for a reply

# What a page of ours looks like: sizes of everything drawn, as [width, height, left, right].
SEEN = """(() => {
  const size = e => { const r = e.getBoundingClientRect(); return [r.width, r.height, r.left, r.right]; };
  const shown = e => getComputedStyle(e).display !== 'none' && e.getClientRects().length > 0;
  const all = s => [...document.querySelectorAll(s)].filter(shown);
  const fonts = [...document.querySelectorAll('body *')].filter(e => shown(e) && [...e.childNodes].some(
    n => n.nodeType === 3 && n.textContent.trim())).map(e => {
      const svg = e.closest('svg');
      const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
      return parseFloat(getComputedStyle(e).fontSize) * scale; });
  return {
    overflow: document.documentElement.scrollWidth - window.innerWidth,
    pieces: all('.piece').map(size), marks: all('.track .mark').map(size), tracks: all('.track').map(size),
    charts: all('svg.chart').map(size), lines: all('svg.chart polyline').map(size),
    points: all('svg.chart .line path').map(size), crossings: all('svg.chart .crossover .pole').length,
    here: all('svg.chart .here .pole').length, words: all('svg.chart text').map(size),
    rows: all('.bars .row').length, smallest: Math.min(...fonts), scripts: document.scripts.length,
    tables: all('.scroll').map(size), title: document.title };
})()"""


def find_chromium():
    """The first browser on the path, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """A browser with one tab; its profile lives in a folder of its own."""

    def __init__(self, program: str, profile: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()  # commands, replies
        commands, replies = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (ours[0], theirs[1]))
        flags = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-pipe"
        line = f'exec "$0" {flags} --hide-scrollbars --user-data-dir="$1" about:blank 3<&{commands} 4>&{replies}'
        self._process = subprocess.Popen(
            ["bash", "-c", line, program, str(profile)],
            pass_fds=(commands, replies),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (ours[0], theirs[1], commands, replies):
            os.close(end)
        self._to, self._from, self._rest, self._number = ours[1], theirs[0], b"", 0
        self.events = []
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Send a command, wait for its reply; what else arrives is kept in `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self._number:
                assert "error" not in reply, f"{method}: {reply['error']}"
                return reply["result"]
            self.events.append(reply)

    def open(self, address, width, height=900, scheme="light"):
        """Load a page at a width, in a colour scheme; returns when it is loaded."""
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def evaluate(self, expression):
        """The value of a JavaScript expression."""
        reply = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def screenshot(self, path):
        """The whole page as a PNG file."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def complaints(self):
        """What the console, the log and the network said was wrong since the page was opened."""
        found = []
        for event in self.events:
            method, told = event["method"], event.get("params", {})
            if (
                method == "Runtime.exceptionThrown"
                or method == "Network.loadingFailed"
                or (method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"))
                or (method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"))
            ):
                found.append(f"{method}: {json.dumps(told)[:500]}")
        return found

    def requests(self):
        """Every address that was asked for since the page was opened."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def close(self):
        """End the browser."""
        try:
            self._session = None
            self.call("Browser.close")
            self._process.wait(10)
        except (AssertionError, OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def _receive(self):
        end = time.monotonic() + _WAIT
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"Chromium said nothing for {_WAIT:.0f} s")
            piece = os.read(self._from, 1 << 20)
            if not piece:
                raise OSError("Chromium ended")
            self._rest += piece
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)
