"""What is measured: tables of cells, each one run of one program with its own arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

SIDES = {"threads": 0, "processes": 1}
SHAPES = {"1p1c": (1, 1), "2p2c": (2, 2), "4p1c": (4, 1), "16p1c": (16, 1)}
CAPACITIES = 8, 16, 64, 256, 1024, 4096
RECOVERY = {
    "told": "rb_recover(), death known",
    "polling": "a claim that polls",
    "sleeping": "a claim that sleeps",
    "message": "a take that sleeps, redelivered",
}


class Column(NamedTuple):
    name: str
    workload: str
    arguments: dict[str, Any]
    figures: dict[str, str]  # of what the program prints: under its name there, what it is called here
    scale: float  # from the program's unit to the table's

    def names(self) -> dict[str, str]:
        """Each figure's heading."""
        return {figure: f"{self.name}, {called}" if called else self.name for figure, called in self.figures.items()}


class Table(NamedTuple):
    name: str
    title: str
    columns: list[Column]
    takes_part: Callable[[dict[str, Any]], bool] = lambda peer: True


def tables(ms: int) -> Iterator[Table]:
    """All of them; `ms` is how long each run measures."""
    for batch in (1, 16):
        for side in SIDES:
            title = f"Million messages/s, {side}, batches of {batch}, room for 64 batches"
            yield Table(f"throughput_{side}_{batch}", title, throughput(side, batch, ms))
    trips = both_sides("pingpong", ms, {"round_trip_ns": "median", "round_trip_p99_ns": "99 %"})
    yield Table("round_trip_spinning", "Round trip in µs, both sides spinning", trips, spins)
    yield Table("round_trip_sleeping", "Round trip in µs, both sides sleeping", trips, sleeps)
    wakes = both_sides("wake", ms, {"wake_ns": "median", "wake_p99_ns": "99 %"})
    yield Table("wake", "From a put to a sleeper's having it, in µs", wakes, sleeps)
    alone = "Put and get by one alone, in ns, by the queue's capacity; the queue is"
    yield Table("uncontended_empty", f"{alone} empty", [uncontended(n, 0, ms) for n in CAPACITIES])
    yield Table("uncontended_half_full", f"{alone} half full", [uncontended(n, n // 2, ms) for n in CAPACITIES])


def spins(peer: dict[str, Any]) -> bool:
    return peer["carries"] and not peer["sleeps"]


def sleeps(peer: dict[str, Any]) -> bool:
    return peer["sleeps"]


def throughput(side: str, batch: int, ms: int) -> list[Column]:
    def column(name: str, producers: int, consumers: int, **more: int) -> Column:
        arguments = {"processes": SIDES[side], "batch": batch, "ms": ms, "producers": producers, "consumers": consumers}
        return Column(name, "throughput", arguments | more, {"messages_per_s": ""}, 1e-6)

    shapes = [column(name, producers, consumers) for name, (producers, consumers) in SHAPES.items()]
    return [*shapes, column("1p1c, room 1024", 1, 1, capacity=1024)]


def both_sides(workload: str, ms: int, figures: dict[str, str]) -> list[Column]:
    return [Column(side, workload, {"processes": processes, "ms": ms}, figures, 1e-3) for side, processes in SIDES.items()]


def uncontended(capacity: int, fill: int, ms: int) -> Column:
    arguments = {"capacity": capacity, "fill": fill, "ms": max(1, ms // 4)}
    return Column(str(capacity), "uncontended", arguments, {"put_and_get_ns": ""}, 1.0)


def plays(table: Table, column: Column, peer: dict[str, Any]) -> bool:
    return table.takes_part(peer) and not (column.arguments.get("processes") and peer["threads_only"])
