"""A diagnosis on a page, and in JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from ringbuf.cli.diagnosis.machine import Check
from ringbuf.cli.diagnosis.measures import Measures
from ringbuf.cli.diagnosis.verdict import Diagnosis, Finding
from ringbuf.cli.page import GAP, KEEP, Block, Column, Glyphs, Line, Prose, Table
from ringbuf.cli.units import duration, percent

__all__ = ["as_json", "page"]

STYLES = {"ok": "good", "warning": "warn", "bad": "bad"}
NARROWEST = 12  # columns of a text, whatever stands before it
MOST_WORKERS = 16


class Listed(NamedTuple):
    """Texts behind labels, each (label, style of the label, text), broken where the line ends."""

    rows: Sequence[tuple[str, str, str]]

    def lines(self, columns: int | None, glyphs: Glyphs) -> list[Line]:
        width = max(len(label) for label, _, _ in self.rows)
        lines: list[Line] = []
        for label, style, text in self.rows:
            room = None if columns is None else max(NARROWEST, columns - width - len(GAP))
            parts = [text] if room is None else _broken(text, room)
            lines.append([(label.ljust(width) + GAP, style), (parts[0], "")])
            lines += [[(" " * (width + len(GAP)), ""), (part, "")] for part in parts[1:]]
        return lines


def _broken(text: str, room: int) -> list[str]:
    """In lines of so many columns, none of which begins with a percent sign."""
    lines = textwrap.wrap(text.replace(" %", "\xa0%"), room, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines] or [""]


def page(title: str | None, measures: Measures | None, diagnosis: Diagnosis | None, machine: Sequence[Check]) -> list[Block]:
    blocks: list[Block] = []
    if title is not None:
        blocks.append(Prose(title, "strong"))
    if measures is not None and diagnosis is not None:
        rows = [row for finding in (diagnosis.main, *diagnosis.also) for row in _rows(finding)]
        rows += [("note", "dim", diagnosis.remark)] if diagnosis.remark else []
        blocks += [Listed(rows), Prose("")]
        if measures.workers and any(maker.busy_s + maker.wait_s for maker in measures.makers):
            blocks += [_workers(measures), Prose("")]
    checked: list[tuple[str, str, str]] = []
    for check in machine:
        level = "ok" if check.ok else "warning"
        checked.append((level, STYLES[level], f"{check.name}: {check.text}"))
        checked += [("  do", "strong", check.advice)] if check.advice else []
    return [*blocks, Listed(checked)]


def _rows(finding: Finding) -> list[tuple[str, str, str]]:
    rows = [(finding.level, STYLES[finding.level], finding.text)]
    if finding.advice is not None:
        rows.append(("  do", "strong", finding.advice.text))
    return rows


def _workers(m: Measures) -> Table:
    columns = (
        Column("worker", KEEP, right=True),
        Column("batches", 3, right=True),
        Column("a batch", 4, right=True),
        Column("dataset", 9, right=True),
        Column("collating", 8, right=True),
        Column("no task", 7, right=True),
        Column("no slot", 6, right=True),
    )
    rows = []
    for maker in m.makers[:MOST_WORKERS]:
        total = maker.busy_s + maker.wait_s
        each = duration(maker.busy_s / maker.batches) if maker.batches else "-"
        times = (maker.load_s, maker.collate_s, maker.wait_task_s, maker.wait_slot_s)
        shares = [percent(time / total) if total else "-" for time in times]
        rows.append([str(maker.id), str(maker.batches), each, *shares])
    return Table(columns, rows)


def as_json(
    about: dict[str, Any] | None, measures: Measures | None, diagnosis: Diagnosis | None, machine: Sequence[Check]
) -> dict[str, Any]:
    healthy = all(check.ok for check in machine) and (diagnosis is None or diagnosis.healthy)
    return {
        "healthy": healthy,
        "loader": about,
        "finding": None if diagnosis is None else _finding(diagnosis.main),
        "also": [] if diagnosis is None else [_finding(finding) for finding in diagnosis.also],
        "note": None if diagnosis is None else diagnosis.remark,
        "measures": None if measures is None else {**asdict(measures), "wait_share": measures.wait_share},
        "machine": [check._asdict() for check in machine],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {**finding._asdict(), "advice": None if finding.advice is None else finding.advice._asdict()}
