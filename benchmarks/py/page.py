"""The page of a result: tables and pictures, and in words what each is of."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.py import plots, reach
from benchmarks.py.figures import digits, paired, spread, values

HEAD = """# Benchmarks

<!-- Written by `make bench` (python -m benchmarks.py); changes belong into benchmarks/py/page.py. -->

How fast batches get from worker processes to the process that uses them, against other loaders and ways to move bytes.
We wrote one of the peers and chose the workloads, so treat this with suspicion, and run `make bench` on a machine of yours.

- **Peers take turns**, each run in a fresh process. A figure is the median over the runs, with the least and the largest in
  brackets. Ratios are those of runs taken in the same round, which a machine that is slower at times hits less than the figures.
- **Everybody does the same work**: the same samples, batches in order, started by fork unless a row says otherwise, two
  batches ahead for each worker, workers kept from epoch to epoch where a peer can. The consumer notes values of each batch (of
  *small*, of one in 64), which are compared with the dataset afterwards; and every byte of some batches of one more epoch is.
- **Rates** are steady ones: from when every slot was used twice, to the last batch; where an epoch has few batches (seed, jpeg),
  those of whole later epochs. *Cold* is a whole first epoch with starting the workers, *later* one with the same workers;
  *first batch* is the wait for it in a cold epoch. CPU and minor page faults are for each batch: the consumer's in later epochs
  (its faults in all), the workers' in all with their start.
- **ideal** and **ideal_nt** are no loaders: workers that only copy the same samples into warm mapped slots, by memcpy and by
  stores that bypass the cache.
- **Threads** (SPDL) have no workers to account for: all they use is the consumer's. Ray's workers are not its children either.
- GB are 10⁹ bytes. A peer in *italics* did fewer batches, since it is slow; its whole epochs are not comparable and left out.
"""

PARTS = {
    "mem": "Bound by memory: what is compared is how often the bytes are moved, and whether pages are made anew for each batch.",
    "img": "The same with more bytes in a batch, and a second array in it.",
    "small": "Bound by what a batch costs besides its bytes: waiting, waking, and Python. With more processes than cores the "
    "kernel's scheduler has a large part in it, so figures vary.",
    "seed": "Bound by `__getitem__`: moving the batches takes little of the time, so all loaders are near to each other. *Into* "
    "writes samples where the batch has them (`__getitem_into__`).",
    "seed-pcg": "As above, with a generator that is faster, so that the loader matters more.",
    "jpeg": "Bound by decoding, as training on pictures mostly is: here no loader can gain much.",
    "ragged": "What a collate function of one's own returns takes a second copy with most loaders, ours included.",
}
TOUCHES = {
    "nothing": "The consumer reads nothing of a batch but what is checked",
    "page": "The consumer reads a byte of every page",
    "all": "The consumer reads every byte",
}
IN_BYTES = ("mem", "img")
OTHERS = "torch", "ideal"


def write(result: dict[str, Any], path: Path) -> None:
    """Write the page to `path` and its pictures into a folder of the same name beside it."""
    pictures = path.with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    for old in pictures.glob("*.png"):
        old.unlink()
    drawn = {name: f"{pictures.name}/{name}.png" for name in plots.draw(result, pictures)}
    path.write_text("\n".join(_lines(result, drawn)).rstrip() + "\n")


def summary(result: dict[str, Any]) -> str:
    """The aims as text, for a terminal."""
    lines = [f"{'':34}{'goal':>8}{'ratio':>8}{'min - max':>16}"]
    for row in reach.table(result):
        span = f"{row['min']:.2f} - {row['max']:.2f}"
        mark = "met" if row["met"] else "not met"
        lines.append(f"{row['what']:34}{row['goal']:>8}{row['median']:8.2f}{span:>16}  {mark}: {row['ours']} / {row['theirs']}")
    return "\n".join(lines + [f"{whose} failed: {why}" for whose, why in failures(result).items()])


def failures(result: dict[str, Any]) -> dict[str, str]:
    """Of all parts, by who failed."""
    found: dict[str, str] = {}
    for part in ("loaders", "messages", "scaling", "startup", "server", "c"):
        of_part = result.get(part, {}).get("failures", {})
        if isinstance(of_part, list):
            of_part = {f"{part} {number}": text for number, text in enumerate(of_part, 1)}
        found |= {f"{part}: {whose}": str(why) for whose, why in of_part.items()}
    return found


def _lines(result: dict[str, Any], drawn: dict[str, str]) -> list[str]:
    lines = [HEAD, *_machine(result)]
    rows = reach.table(result)
    if rows:
        lines += ["## What was aimed at", *_picture(drawn, "reach", "Each ratio against its goal"), *_reach(rows)]
    seen = set()
    for key, cell in result["loaders"]["cells"].items():
        if cell["peers"]:
            name = cell["workload"]["name"]
            lines += [] if name in seen else [f"## {name}", "", _about(name), ""]
            seen.add(name)
            lines += _cell(key, cell, drawn)
    if result.get("messages", {}).get("peers"):
        lines += _messages(result["messages"], drawn)
    if result.get("scaling", {}).get("curves"):
        lines += _scaling(result["scaling"]["curves"], drawn)
    if result.get("startup", {}).get("cases"):
        lines += _startup(result["startup"])
    if any(result.get("server", {}).get("runs", {}).values()):
        lines += _server(result["server"])
    if result.get("c", {}).get("tables"):
        lines += _c(result["c"])
    return lines + _rest(result)


def _machine(result: dict[str, Any]) -> list[str]:
    machine = result["machine"]
    return [
        f"This page: {result['date']}, {result['runs']} runs of each ({result['size']} set, {result['minutes']:.0f} minutes) on "
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, Linux {machine['kernel']}, "
        f"Python {machine['python']}; load {machine['load']:.1f} before, {result['load_afterwards']:.1f} afterwards.",
        "",
    ]


def _about(name: str) -> str:
    from benchmarks.py.workloads import KINDS

    return f"{' '.join((KINDS[name].__doc__ or '').split())} {PARTS[name]}"


def _picture(drawn: dict[str, str], name: str, text: str) -> list[str]:
    return ["", f"![{text}]({drawn[name]})", ""] if name in drawn else [""]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = list(head)
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def _reach(rows: list[dict[str, Any]]) -> list[str]:
    def shown(row: dict[str, Any]) -> list[str]:
        verdict = "met" if row["met"] else "**not met**"
        span = f"{row['min']:.2f} - {row['max']:.2f}"
        return [row["what"], f"{row['ours']} / {row['theirs']}", row["goal"], f"**{row['median']:.2f}**", span, verdict]

    return _table(("", "ratio of", "goal", "measured", "min - max", ""), map(shown, rows))


def _cell(key: str, cell: dict[str, Any], drawn: dict[str, str]) -> list[str]:
    workload = cell["workload"]
    title = (
        f"{TOUCHES[workload['touch']]}; {workload['workers']} workers, {workload['batches']:,} batches, "
        f"{workload['epochs']} epochs"
    )
    unit = "GB/s" if workload["name"] in IN_BYTES else "batches/s"
    head = ["peer", unit, *(f"x {other}" for other in OTHERS), "cold s", "later s", "first batch ms"]
    head += ["CPU µs", "workers' CPU µs", "faults", "workers' faults", "peak MB"]
    rows = [_row(cell, name) for name in cell["peers"]]
    if not any("memory" in entry for entry in cell["peers"].values()):
        head, rows = head[:-1], [row[:-1] for row in rows]
    return [f"**{title}**", *_picture(drawn, key.replace("/", "-"), title), *_table(head, rows)]


def _row(cell: dict[str, Any], name: str) -> list[str]:
    """A peer's line in the table of a cell."""
    workload, entry = cell["workload"], cell["peers"][name]
    scale = workload["batch_bytes"] / 1e9 if workload["name"] in IN_BYTES else 1
    fewer = entry["runs"][0]["batches"] != workload["batches"]
    label = f"*{entry['label']}*" if fewer else f"**{entry['label']}**" if name in reach.OURS else entry["label"]
    rates = values(cell, name, "rate")
    row = [label, _ranged([scale * rate for rate in rates])]
    for other in OTHERS:
        ratio = paired(rates, values(cell, other, "rate")) if other in cell["peers"] and other != name else None
        row.append(f"{ratio['median']:.2f}" if ratio else "")
    row += ["", ""] if fewer else [_ranged(values(cell, name, figure)) for figure in ("cold", "later")]
    row.append(_ranged([1e3 * seconds for seconds in values(cell, name, "first")]))
    row += [digits(1e6 * median(values(cell, name, figure))) for figure in ("cpu", "workers_cpu")]
    row += [digits(median(values(cell, name, figure))) for figure in ("faults", "workers_faults")]
    row.append(digits(values(cell, name, "memory")[0] / 1e6) if "memory" in entry else "")
    return row


def _messages(part: dict[str, Any], drawn: dict[str, str]) -> list[str]:
    rows = []
    for entry in part["peers"].values():
        runs = entry["runs"]
        row = [entry["label"]]
        for name in ("1p1c", "2p1c"):
            rates = [run[name] / 1e3 for run in runs if run[name]]
            row.append(_ranged(rates) if rates else "-")
        row += [_ranged([1e6 * run[name] for run in runs]) for name in ("p50_s", "p99_s")]
        rows.append(row)
    head = ("peer", "1 producer, k messages/s", "2 producers, k messages/s", "round trip µs, median", "99 %")
    text = (
        "64 bytes between processes, from Python, one consumer. A peer that gathers messages (pyzmq, the pipe that is read as "
        "far as it is filled, *many*) has one wake-up for many of them. Round trips are by two channels, both sides waiting as "
        "the peer does."
    )
    return ["## Small messages", "", text, *_picture(drawn, "messages", "Messages of 64 bytes per second"), *_table(head, rows)]


def _scaling(curves: dict[str, Any], drawn: dict[str, str]) -> list[str]:
    text = (
        "RingLoader's cost of a batch of 8 KB over a pass (2 workers), its rate of 25 MB batches by workers, and a put and a get "
        "of 64 bytes in one process by slots."
    )
    lines = ["## Scaling", "", text, *_picture(drawn, "scaling", "Cost by batches, workers and slots")]
    for name in ("workers", "slots"):
        if curves.get(name):
            lines += _table(curves[name][0], ([digits(value) for value in point.values()] for point in curves[name]))
    return lines


def _startup(part: dict[str, Any]) -> list[str]:
    from benchmarks.py.startup_report import TIMES

    rows = []
    for case, entry in part["cases"].items():
        both = entry["loaders"]
        for figure, title in TIMES.items():
            if all(figure in both.get(loader, {}) for loader in ("ring", "torch")):
                ours, theirs = both["ring"][figure], both["torch"][figure]
                ratio = f"{ours['median'] / theirs['median']:.2f}"
                rows.append([f"{case}: {title}", _range(ours), _range(theirs), ratio])
    text = "Milliseconds; workers started by fork, samples cost nothing. What each is: `python -m benchmarks.py.startup --help`."
    return ["## Start and restart", "", text, "", *_table(("", "ringbuf", "torch", "ratio"), rows)]


def _server(part: dict[str, Any]) -> list[str]:
    rows = [
        [part["labels"][way], _ranged([run["rate"] for run in runs]), digits(1e3 * median([run["cpu"] for run in runs]))]
        for way, runs in part["runs"].items()
        if runs
    ]
    aims = [
        [row["what"], f"{row['ours']} / {row['theirs']}", row["goal"], _range(row), "met" if row["met"] else "**not met**"]
        for row in part["aims"]
    ]
    text = "Batches of 38 MB from a server to trainers; TCP over loopback. What each is: `python -m benchmarks.py.server --help`."
    lines = ["## A server", "", text, "", *_table(("", "GB/s", "who serves: CPU, ms a batch"), rows)]
    return lines + _table(("", "ratio of", "goal", "measured", ""), aims)


def _c(part: dict[str, Any]) -> list[str]:
    lines = ["## The ring in C", "", "Messages of 8 bytes, no Python; see benchmarks/README.md.", ""]
    for table in part["tables"].values():
        rows = []
        for name, cells in table["rows"].items():
            shown = (_range(cells[column]) if column in cells else "-" for column in table["columns"])
            rows.append([part["peers"][name]["label"], *shown])
        lines += [f"**{table['title']}**", "", *_table(("", *table["columns"]), rows)]
    if part.get("recovery"):
        rows = [[title, _range(figures)] for title, figures in part["recovery"].items()]
        lines += ["**The slot of a killed process, from kill() until another has it**", "", *_table(("", "ms"), rows)]
    return lines


def _rest(result: dict[str, Any]) -> list[str]:
    versions = result["loaders"]["versions"] | result.get("messages", {}).get("versions", {})
    lines = ["## Versions", "", ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) + ".", ""]
    skipped = result["loaders"]["skipped"] | result.get("messages", {}).get("skipped", {})
    lines += [f"- {peer} was skipped: {why}" for peer, why in skipped.items()]
    lines += [f"- {whose} failed: {why}" for whose, why in failures(result).items()]
    return lines


def _ranged(numbers: list[float]) -> str:
    return _range(spread(numbers))


def _range(figures: dict[str, float]) -> str:
    return f"{digits(figures['median'])} ({digits(figures['min'])} - {digits(figures['max'])})"

