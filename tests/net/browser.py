"""A headless Chromium, driven through chromedriver: what it shows, what it complains of, and whom it asks."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import urllib.request

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = "the status page is looked at in Chromium, which is not here: apt-get install chromium chromium-driver"
DEADLINE_S = 60


class Browser:
    """One window. What is asked of it is WebDriver's JSON over HTTP."""

    def __init__(self, driver_url, options):
        self._driver = driver_url
        self._session = ""
        self._session = "/session/" + self._post("/session", options)["sessionId"]

    def open(self, url):
        self._post("/url", {"url": url})

    def run(self, script, *arguments):
        """What a script returns in the page."""
        return self._post("/execute/sync", {"script": script, "args": arguments})

    def devtools(self, command, **parameters):
        return self._post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self, kind):
        """New entries of a log: "browser" is the console, "performance" what DevTools tells."""
        return self._post("/se/log", {"type": kind})

    def requests(self):
        """URLs that were asked for since this was called last."""
        told = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [e["params"]["request"]["url"] for e in told if e["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.devtools("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def close(self):
        self._ask("DELETE", "", None)

    def _post(self, path, body):
        return self._ask("POST", path, body)

    def _ask(self, method, path, body):
        request = urllib.request.Request(
            self._driver + self._session + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.load(answer)["value"]


@contextlib.contextmanager
def browser(width=1200, height=900):
    """A browser, for as long as the block lasts. Skips the test where there is none."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip(MISSING)
    with subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as driver:
        try:
            url = next(
                f"http://127.0.0.1:{line.split()[-1].rstrip('.')}"
                for line in driver.stdout
                if "successfully on port" in line
            )
            # Without a sandbox, which root may not have: it shows our own page alone.
            arguments = [
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                f"--window-size={width},{height}",
            ]
            options = {
                "browserName": "chrome",
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
                "goog:chromeOptions": {"binary": CHROMIUM, "args": arguments},
            }
            window = Browser(url, {"capabilities": {"alwaysMatch": options}})
            try:
                yield window
            finally:
                window.close()
        finally:
            driver.terminate()
