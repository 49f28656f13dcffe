"""All that is measured, in turn, and what came of it, as JSON has it."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import AbstractContextManager, ExitStack
from types import ModuleType
from typing import Any

from ringbuf.cli.bench.copying import Copying
from ringbuf.cli.bench.epochs import Entrant
from ringbuf.cli.bench.figures import ratio, spread
from ringbuf.cli.bench.pair import pair
from ringbuf.cli.bench.plan import SMALL, Size, fit, under_way, worker_counts
from ringbuf.cli.bench.progress import Progress
from ringbuf.cli.bench.samples import Samples
from ringbuf.cli.bench.signals import Signals
from ringbuf.cli.outcome import Failed, one_line

__all__ = ["measure"]

NAMES = {"ringbuf": "RingLoader", "torch": "torch's DataLoader"}


def measure(size: Size, progress: Progress, signals: Signals) -> dict[str, Any]:
    """Measure for about `size.budget_s` seconds, and some more to start. Failed: what is ours does not work, or wrongly."""
    machine = _machine()
    progress.part("looking for torch")
    loaders, torch_version, why_not = _loaders()
    counts = worker_counts()
    large, scaled_down = fit(size.large, max(counts), torch=torch_version is not None)
    runs_of_a_round = len(counts) * (2 * len(loaders.LOADERS) + 1) + 2
    progress.runs = size.rounds * runs_of_a_round
    bench = _Bench(size.rounds, size.budget_s / progress.runs, loaders, progress, signals)
    cells = []
    for name, shape in (("large", large), ("small", SMALL)):
        samples = Samples(shape, loaders.form)
        cells += [bench.cell(name, samples, workers) for workers in counts]
        del samples
    return {
        "ringbuf": sys.modules["ringbuf"].__version__,
        "torch": torch_version,
        "why_no_torch": why_not,
        "size": size.name,
        "rounds": size.rounds,
        "scaled_down": scaled_down,
        "machine": machine,
        "loaders": cells,
        **bench.two_processes(),
        "checked": bench.checked,
    }


def _loaders() -> tuple[ModuleType, str | None, str]:
    """The loaders that can be had, torch's version, and why it has none."""
    try:
        from ringbuf.cli.bench import tensors
    except Exception as error:  # whatever an installation of torch may raise
        from ringbuf.cli.bench import arrays

        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            return arrays, None, "torch is not installed, so there is nothing to compare with"
        return arrays, None, f"torch cannot be imported, so there is nothing to compare with: {one_line(error)}"
    return tensors, tensors.version, ""


class _Bench:
    """Rounds of runs of `run_s` seconds each."""

    def __init__(self, rounds: int, run_s: float, loaders: ModuleType, progress: Progress, signals: Signals):
        self._rounds, self._run_s = rounds, run_s
        self._loaders, self._progress, self._signals = loaders, progress, signals
        self.checked = {"batches": 0, "messages": 0}

    def cell(self, name: str, samples: Samples, workers: int) -> dict[str, Any]:
        """One workload with so many workers: every loader, and copying if the batches are large, once in each round."""
        self._progress.part(f"{name} batches, {workers} worker{'' if workers == 1 else 's'}")
        copied: list[float] = []
        with ExitStack() as stack:
            entrants = []
            for who, opened in self._loaders.LOADERS.items():
                entrants.append(entrant := _Guarded(who))
                with self._signals.held():
                    entrant.start(opened, samples, workers, self._run_s, stack)
                entrant.warm_up()
            # Made when there are workers: they would share its pages, and each first copy would have the kernel copy them too.
            copying = Copying(samples, workers, self._run_s) if name == "large" else None
            for number in range(self._rounds):
                if copying is not None:
                    self._progress.run(f"round {number + 1} of {self._rounds}, copying")
                    copied.append(copying.rate())
                for entrant in entrants[:: -1 if number % 2 else 1]:  # who comes first may be lucky
                    self._progress.run(f"round {number + 1} of {self._rounds}, {NAMES[entrant.who]}")
                    entrant.run()
        self.checked["batches"] += sum(entrant.arrived for entrant in entrants)
        by_name = {entrant.who: entrant for entrant in entrants}
        ours, theirs = by_name["ringbuf"].rates, by_name.get("torch")
        compared = theirs is not None and not theirs.failed
        return {
            "workload": name,
            "workers": workers,
            "batch_bytes": samples.batch_bytes,
            "ringbuf_batches_per_s": spread(ours),
            "torch_batches_per_s": spread(theirs.rates) if compared else None,
            "torch_failed": theirs.failed if theirs is not None else "",
            "ratio": ratio(ours, theirs.rates) if compared else None,
            "copying": copying.way if copying is not None else None,
            "copying_bytes_per_s": spread(copied) if copied else None,
            "of_copying": ratio([rate * samples.batch_bytes for rate in ours], copied) if copied else None,
        }

    def two_processes(self) -> dict[str, Any]:
        """Messages and wake-ups."""
        self._progress.part("two processes")
        rates, wakes = [], []
        with ExitStack() as stack:
            with self._signals.held():
                both = stack.enter_context(pair(self._run_s))
            both.warm_up()
            for number in range(self._rounds):
                self._progress.run(f"round {number + 1} of {self._rounds}, 64 bytes by put and get")
                rates.append(both.rate())
                self._progress.run(f"round {number + 1} of {self._rounds}, waking up")
                wakes.append(both.wake_s())
        self.checked["messages"] = both.arrived
        return {"messages_per_s": spread(rates), "wake_s": spread(wakes)}


class _Guarded:
    """A loader at work. What ours raises fails the whole, what torch's raises is its own affair."""

    def __init__(self, who: str):
        self.who, self.rates, self.failed = who, [], ""
        self._entrant: Entrant | None = None

    def start(self, opened: Any, samples: Samples, workers: int, run_s: float, stack: ExitStack) -> None:
        def start() -> None:
            loader: AbstractContextManager[Any] = opened(samples, workers)
            self._entrant = Entrant(NAMES[self.who], stack.enter_context(loader), samples, run_s)
            self._entrant.start(2 * under_way(workers))  # so that every slot is used again

        self._try(start)

    def warm_up(self) -> None:
        self._try(lambda: self._entrant.check())
        self._try(lambda: self._entrant.warm_up())

    @property
    def arrived(self) -> int:
        return 0 if self._entrant is None else self._entrant.arrived

    def run(self) -> None:
        self._try(lambda: self.rates.append(self._entrant.rate()))

    def _try(self, work: Any) -> None:
        if self.failed:
            return
        try:
            work()
        except Exception as error:
            if self.who == "torch":
                self.failed = one_line(error)
            elif isinstance(error, Failed):
                raise
            else:
                raise Failed(f"{NAMES[self.who]} raised {type(error).__name__}: {one_line(error)}") from error


def _machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()
