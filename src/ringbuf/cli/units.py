"""Numbers as people read them: few digits, and a unit."""

from __future__ import annotations

__all__ = ["age", "amount", "duration", "nbytes", "percent", "rate"]


def amount(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == 0 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def nbytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{amount(value)} {unit}"
        value /= 1000
    return f"{amount(value)} TB"


def rate(value: float | None) -> str:
    """So many in a second; "-" where that is not known yet."""
    return "-" if value is None else f"{amount(value)}/s"


def age(seconds: float) -> str:
    for unit, length, longest in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < longest * length:
            return f"{max(0.0, seconds) / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def duration(seconds: float) -> str:
    """Of something that may be short."""
    for unit, length in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * length:
            return f"{amount(seconds / length)} {unit}"
    return f"{amount(seconds)} s" if seconds < 100 else age(seconds)


def percent(share: float | None) -> str:
    return "-" if share is None else f"{min(1.0, max(0.0, share)) * 100:.0f} %"
