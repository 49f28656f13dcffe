"""What processes use, as /proc has it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def pss_bytes(pids: Iterable[int]) -> int:
    """Proportional set sizes, added up: a page that n processes share counts a n-th for each. Who is gone has none."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        total += next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0) * 1024
    return total


def descendants(pid: int) -> list[int]:
    """`pid` and all that it started, or they; also in sessions of their own."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(name))
    found = [pid]
    for each in found:  # grows while we go
        found += children.get(each, [])
    return found
