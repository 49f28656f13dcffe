"""The status page in a browser, before a server with clients that work."""

import contextlib
import json
import os
import threading

import pytest
from browser import browser
from processes import eventually

import ringbuf

NAME = f"page-{os.getpid()}"
NASTY = "<img src=x onerror=\"document.title='taken over'\">"
SHOWN = """
    const rows = [...document.querySelectorAll("#clients tbody tr")];
    return {
        rows: rows.map(row => [...row.cells].map(cell => cell.textContent)),
        lines: [...document.querySelectorAll(".plot")].map(
            plot => [...plot.querySelectorAll("path.line")].map(path => path.getAttribute("d"))),
        legend: [...document.querySelectorAll(".legend span")].map(entry => entry.textContent),
        tiles: Object.fromEntries([...document.querySelectorAll("#tiles > div")].map(
            tile => [tile.children[0].textContent, tile.children[1].textContent])),
        bottleneck: document.querySelector("#bottleneck p").textContent,
        kind: document.querySelector("#bottleneck").dataset.kind,
        state: document.querySelector("#state").textContent,
        title: document.title,
        images: document.images.length,
        background: getComputedStyle(document.body).backgroundColor,
        widths: [document.documentElement.scrollWidth, window.innerWidth],
    };
"""


@contextlib.contextmanager
def working(server, *labels):
    """Clients that take batches for as long as the block lasts, or the server does."""
    enough = threading.Event()

    def work(label):
        with ringbuf.connect(server.name, label=label) as stream, contextlib.suppress(ringbuf.SessionLost):
            while not enough.is_set():
                for _ in stream:
                    if enough.is_set():
                        break

    threads = [threading.Thread(target=work, args=(label,)) for label in labels]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        enough.set()
        for thread in threads:
            thread.join()


def source(pace):
    def batches():
        while True:
            pace.wait(0.005)  # so that clients wait
            yield b"x" * 10000

    return batches


@pytest.mark.timeout(240)  # a browser starts
def test_the_page_shows_a_server_at_work(tmp_path):
    pace = threading.Event()
    with (
        ringbuf.Server(source(pace), NAME, mode="broadcast", http="127.0.0.1:0", epochs=3) as server,
        working(server, "trainer-a", NASTY),
        browser() as window,
    ):
        window.open(server.http_address + "/")

        def shown(condition):
            """What is shown once it meets a condition."""
            seen = []
            assert eventually(lambda: seen.append(window.run(SHOWN)) or condition(seen[-1]), 60), seen[-1]
            return seen[-1]

        page = shown(
            lambda page: len(page["rows"]) == 2 and all(d.count("L") > 2 for lines in page["lines"] for d in lines)
        )
        assert sorted(row[0] for row in page["rows"]) == sorted(["trainer-a", NASTY])
        assert all(row[1] == f"local, process {os.getpid()}" and row[-1].endswith(" %") for row in page["rows"])
        assert [len(lines) for lines in page["lines"]] == [1, 2, 2]
        assert {"trainer-a", NASTY, "waits for room", "makes batches"} == set(page["legend"])
        assert page["title"] == f"{NAME} - ringbuf" and page["images"] == 0 and page["state"] == "live"
        assert page["tiles"].keys() == {"epoch", "position", "batches/s", "bytes/s", "ready", "clients"}
        assert page["tiles"]["clients"] == "2" and page["tiles"]["epoch"] == "0"
        page = shown(lambda page: page["kind"] == "source")
        assert page["bottleneck"].startswith("the source: clients waited ")

        # Values under the pointer.
        place = window.run(
            "const r = document.querySelector('.plot svg').getBoundingClientRect(); return [r.right, r.y + r.height / 2]"
        )
        window.devtools("Input.dispatchMouseEvent", type="mouseMoved", x=place[0] - 15, y=place[1])
        tip = "return [...document.querySelectorAll('.tip')].filter(tip => !tip.hidden).map(tip => tip.textContent)"
        assert eventually(lambda: len(window.run(tip)) == 1)
        assert "batches/s" in window.run(tip)[0] and "sent: " in window.run(tip)[0]

        # What is not of the page itself does not run, and nobody else is asked.
        window.run(
            "const s = document.createElement('script'); s.textContent = 'window.foreign = 1'; document.body.append(s)"
        )
        assert window.run("return window.foreign ?? null") is None
        complaints = [entry["message"] for entry in window.log("browser")]
        assert len(complaints) == 1 and "Content Security Policy" in complaints[0]
        requests = window.requests()
        assert requests and all(url.startswith(server.http_address + "/") for url in requests)

        # On a phone, at night.
        light = page["background"]
        window.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        window.devtools("Emulation.setDeviceMetricsOverride", width=375, height=800, deviceScaleFactor=1, mobile=True)
        page = shown(lambda page: page["widths"][1] == 375)
        assert page["widths"][0] <= 375 and page["background"] != light
        window.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10000

        server.stop()
        page = shown(lambda page: page["state"] != "live")
        assert page["state"].startswith("no answer from the server since ")
        assert len(page["rows"]) == 2  # the last that is known stays


@pytest.mark.timeout(240)
def test_the_page_goes_on_with_a_server_that_was_started_anew():
    pace = threading.Event()
    state = "return [document.querySelector('#state').textContent, document.querySelector('#about').textContent, typeof samples]"
    with browser() as window:
        with ringbuf.Server(source(pace), NAME, http="127.0.0.1:0") as server:
            address = server.http_address
            window.open(address + "/")
            assert eventually(lambda: window.run("return samples.length") > 2, 60)
            assert "split" in window.run(state)[1]
            window.run("samples.forEach(sample => { sample.old = true; })")
        assert eventually(lambda: window.run(state)[0] != "live", 60)
        with ringbuf.Server(source(pace), NAME, mode="broadcast", http=address.removeprefix("http://")):
            assert eventually(lambda: "broadcast" in window.run(state)[1] and window.run(state)[0] == "live", 60)
            numbers = json.loads(window.run("return JSON.stringify(samples.map(sample => sample.number))"))
            assert numbers == sorted(set(numbers)) and not window.run("return samples.some(sample => sample.old)")
