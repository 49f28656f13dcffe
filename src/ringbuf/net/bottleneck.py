"""Who holds up everybody else, in one sentence, from shares of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Bottleneck", "ClientShare", "find"]

WORTH_NAMING = 0.1  # less of the time is no bottleneck


class ClientShare(NamedTuple):
    """A client, over a stretch of time.

    waited: the share of it in which it could have been sent a batch and there was none.
    lag: batches that it is behind, or has not done yet.
    inside: whether it is in a loop.
    """

    label: str
    waited: float
    lag: int = 0
    inside: bool = True
    local: bool = True


class Bottleneck(NamedTuple):
    """kind: "source", "client", "clients", "nobody" (no client asks), "start" (nothing to judge by yet) or "balanced"."""

    kind: str
    text: str


def find(
    *,
    mode: str,
    window_s: float,
    room: float,
    clients: Sequence[ClientShare],
    produced: int,
    doing: str = "",
    doing_s: float = 0.0,
) -> Bottleneck:
    """Name what the others wait for.

    window_s: how long the stretch was.
    room: the share of it in which the source waited for room.
    doing, doing_s: what the source's thread is at, as `Server.stats()` has it.
    """
    if produced == 0:
        if doing == "source":
            return Bottleneck("start", f"the source makes its first batch, since {duration(doing_s)}")
        return Bottleneck("start", "the source has not begun yet")
    if not clients:
        return Bottleneck("nobody", "nobody: no client is connected")
    asking = [client for client in clients if client.inside]
    if not asking:
        many = f"none of the {len(clients)} clients is" if len(clients) > 1 else "the client is not"
        return Bottleneck("nobody", f"nobody: {many} in a loop")
    if window_s <= 0:
        return Bottleneck("start", "not known yet: clients have just come")
    last = _stretch(window_s)
    if mode == "broadcast":  # who is the slowest waits least, and others wait for it as they would for the source
        waited = min(client.waited for client in asking)
    else:
        waited = sum(client.waited for client in asking) / len(asking)
    if max(waited, room) < WORTH_NAMING:
        return Bottleneck(
            "balanced", f"balanced: clients waited {percent(waited)} of {last}, the source {percent(room)} for room"
        )
    if mode == "split" and room >= WORTH_NAMING:  # there are batches, so who waits does so at the end of an epoch
        busiest, idlest = min(asking, key=lambda client: (client.waited, -client.lag)), max(client.waited for client in asking)
        if busiest.waited < WORTH_NAMING <= idlest:
            text = f"others waited {percent(idlest)} of {last}, at the end of an epoch, for what it has in hand"
            return Bottleneck("client", f"client {busiest.label}{_or_the_network(busiest)}: {text}")
    if waited >= room:
        who = "clients waited" if len(clients) > 1 else "the client waited"
        return Bottleneck("source", f"the source: {who} {percent(waited)} of {last}")
    waiting = f"the source waited for room {percent(room)} of {last}"
    if mode == "split" and len(asking) > 1:
        return Bottleneck("clients", f"the clients, all {len(asking)} of them: {waiting}")
    slowest = max(asking, key=lambda client: (client.lag, -client.waited))
    return Bottleneck("client", f"client {slowest.label}{_or_the_network(slowest)}: {waiting}")


def _or_the_network(client: ClientShare) -> str:
    return "" if client.local else ", or the network to it"


def percent(share: float) -> str:
    return f"{min(1.0, max(0.0, share)) * 100:.0f} %"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _stretch(seconds: float) -> str:
    return "the last minute" if 55 <= seconds <= 65 else f"the last {duration(seconds)}"
