"""A result for people."""

from __future__ import annotations

from typing import Any, NamedTuple

from ringbuf.cli.page import KEEP, Block, Column, Facts, Prose, Table
from ringbuf.cli.units import amount, nbytes

__all__ = ["Unit", "page", "unit_of"]

ABOUT = {"large": "large batches, {}, copied from memory", "small": "small batches, {}: what each costs besides its bytes"}

BUSY = 0.5  # of the cores


class Unit(NamedTuple):
    text: str
    size: float

    def figure(self, value: float) -> str:
        return amount(value / self.size)

    def median(self, figures: dict[str, Any]) -> str:
        return f"{self.figure(figures['median'])} {self.text}".rstrip()

    def range(self, figures: dict[str, Any]) -> str:
        return f"{self.figure(figures['min'])}-{self.figure(figures['max'])}"


TIMES, PERCENT, MICROSECONDS = Unit("", 1.0), Unit("%", 0.01), Unit("us", 1e-6)


def unit_of(value: float, text: str) -> Unit:
    """Such that few digits are needed: "k/s" for rates of thousands."""
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return Unit(prefix + text, size)
    return Unit(text, 1.0)


def page(result: dict[str, Any]) -> list[Block]:
    machine = result["machine"]
    blocks: list[Block] = [
        Prose(f"ringbuf {result['ringbuf']} on {machine['cores']} x {machine['processor']}", "strong"),
        Facts(
            [
                f"torch {result['torch']}" if result["torch"] else "",
                f"Python {machine['python']}",
                f"Linux {machine['kernel']}",
            ]
        ),
    ]
    blocks += [Prose(text, "warn") for text in (result["why_no_torch"], result["scaled_down"], _busy(machine)) if text]
    for name in ABOUT:
        cells = [cell for cell in result["loaders"] if cell["workload"] == name]
        blocks += [Prose(""), Prose(ABOUT[name].format(nbytes(cells[0]["batch_bytes"])), "strong"), _loaders(cells)]
        blocks += [Prose(text, "bad") for text in _failures(cells)]
    blocks += [Prose(""), Prose("two processes", "strong"), _two_processes(result), Prose("")]
    checked = result["checked"]
    arrived = f"{checked['batches']} batches and {checked['messages']} messages arrived, and were checked"
    blocks.append(Prose(f"all right: {arrived}", "good"))
    return blocks


def _busy(machine: dict[str, Any]) -> str:
    load, cores = machine["load_before"], machine["cores"]
    if load <= BUSY * cores:
        return ""
    return f"the load was {load:.1f} before this began, on {cores} cores: others were at work, and the figures say less"


def _loaders(cells: list[dict[str, Any]]) -> Table:
    columns = [
        Column("workers", KEEP, right=True),
        Column("RingLoader", KEEP, right=True),
        Column("min-max", 3, right=True),
        Column("torch", 6, right=True),
        Column("min-max", 2, right=True),
        Column("ratio", 7, right=True),
        Column("min-max", 4, right=True),
        Column("of copying", 5, right=True),
        Column("copying", 1, right=True),
    ]
    return Table(columns, [_row(cell) for cell in cells])


def _row(cell: dict[str, Any]) -> list[str | tuple[str, str]]:
    large = cell["workload"] == "large"

    def both(batches_per_s: dict[str, Any] | None) -> tuple[str, str]:
        if batches_per_s is None:
            return "", ""
        scale = cell["batch_bytes"] if large else 1
        rates = {key: batches_per_s[key] * scale for key in ("median", "min", "max")}
        unit = unit_of(rates["median"], "B/s" if large else "/s")
        return unit.median(rates), unit.range(rates)

    ours, torch, ratio, copied = (
        cell["ringbuf_batches_per_s"],
        cell["torch_batches_per_s"],
        cell["ratio"],
        cell["copying_bytes_per_s"],
    )
    median, span = both(ours)
    theirs, their_span = both(torch)
    return [
        str(cell["workers"]),
        (median, "strong"),
        span,
        "failed" if cell["torch_failed"] else theirs,
        their_span,
        (TIMES.median(ratio), "strong") if ratio else "",
        TIMES.range(ratio) if ratio else "",
        PERCENT.median(cell["of_copying"]) if copied else "",
        unit_of(copied["median"], "B/s").median(copied) if copied else "",
    ]


def _failures(cells: list[dict[str, Any]]) -> list[str]:
    return [f"torch's DataLoader failed: {text}" for text in dict.fromkeys(cell["torch_failed"] for cell in cells) if text]


def _two_processes(result: dict[str, Any]) -> Table:
    messages, wake = result["messages_per_s"], result["wake_s"]
    rate = unit_of(messages["median"], "/s")
    return Table(
        [Column("", KEEP), Column("median", KEEP, right=True), Column("min-max", 1, right=True)],
        [
            ["64 bytes, put and get", (rate.median(messages), "strong"), rate.range(messages)],
            ["a sleeper wakes after", (MICROSECONDS.median(wake), "strong"), MICROSECONDS.range(wake)],
        ],
    )
