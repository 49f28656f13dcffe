"""Why batches do not come sooner, in words, and what to do: the first of several reasons that holds."""

from __future__ import annotations

from typing import NamedTuple

from ringbuf.cli.diagnosis import shares
from ringbuf.cli.diagnosis.forecast import Forecast
from ringbuf.cli.diagnosis.measures import Measures
from ringbuf.cli.units import amount, duration, percent

__all__ = ["Advice", "Cause", "cause", "dying", "short_of_slots"]

OFTEN = 0.2  # of the workers' time, waiting for a slot
IDLE = 0.25  # of the workers' time, waiting for a task while the trainer waits for them
STUCK = 0.9  # of the stretch, at one batch
COPYING = 0.4  # of the workers' work
FIRST = 0.5  # of the waiting
QUICK_S = 2e-4  # the least that a batch may take before its samples are worth a look
PREFETCH = 4


class Advice(NamedTuple):
    """knob: what is to be turned, in a word. value: to what, where that is a number."""

    knob: str
    text: str
    value: int | None = None


class Cause(NamedTuple):
    cause: str
    text: str
    advice: Advice | None


def cause(m: Measures) -> Cause:
    """What it is that batches do not come sooner for."""
    if not m.batches:
        return _stalled(m)
    if m.workers and m.passes and m.first_wait_s >= FIRST * m.wait_s:
        return _at_the_beginning(m)
    if m.restarts:
        return Cause("restarts", *dying(m))
    if not m.workers:
        return _without_workers(m)
    if (shares.many_copies(m) and shares.idle(m) >= IDLE) or shares.share(m, "wait_slot_s") >= OFTEN:
        return short_of_slots(m)
    if m.batches and m.wait_s < QUICK_S * m.batches:
        advice = Advice("batch size", "larger batches: each one has costs of its own, whatever is in it")
        return Cause("overhead", f"a batch comes within {duration(m.wait_s / m.batches)}", advice)
    if shares.share(m, "wait_task_s") >= IDLE:
        return _unequal(m)
    if m.busy_s and sum(maker.collate_s for maker in m.makers) >= COPYING * m.busy_s:
        return _copying(m)
    if shares.others_compute(m):
        return _busy_machine(m)
    better = shares.more_workers(m)
    if better is not None:
        return _more_workers(m, better)
    needed = shares.needed(m)
    if needed is not None and needed <= m.workers and not shares.delayed(m):
        advice = Advice("prefetch", f"prefetch_factor={PREFETCH} or more evens it out, if it is less")
        return Cause("jitter", "on average the workers are quick enough, and some batches are late", advice)
    return _cheaper_samples(m)


def _at_the_beginning(m: Measures) -> Cause:
    passes = "the pass that began" if m.passes == 1 else f"the {m.passes} passes that began"
    text = f"most of the wait is for the first batch of {passes}"
    if m.persistent:
        return Cause("first", text, Advice("start", "look at what dataset and sampler do when a pass begins"))
    return Cause("first", text, Advice("start", "persistent_workers=True keeps the workers from pass to pass, if it is not set"))


def _stalled(m: Measures) -> Cause:
    text = f"no batch came in {duration(m.seconds)}"
    stuck = [str(maker.id) for maker in m.makers if not maker.batches and maker.busy_s >= STUCK * m.seconds]
    if m.workers and stuck:
        text += f", and worker{'s' if len(stuck) > 1 else ''} {', '.join(stuck)} had one in hand all the time"
    return Cause("stalled", text, Advice("look", "see in which call: py-spy dump --pid of that process, or faulthandler"))


def _without_workers(m: Measures) -> Cause:
    text = "there are no workers, so that it makes each batch itself"
    better = shares.more_workers(m)
    if better is None or better.workers < 1:
        return Cause("alone", text, None) if m.make_s is None else _cheaper_samples(m)
    return Cause("alone", text, Advice("workers", f"num_workers={better.workers} {_would(better, m)}", better.workers))


def short_of_slots(m: Measures) -> Cause:
    waiting = percent(shares.share(m, "wait_slot_s"))
    if m.copies:
        what = f"{m.copies} of {m.batches} batches were copied, because the trainer held too many"
        wanted = m.slots + max(m.held, m.workers)
        advice = f"drop batches sooner, or slots={wanted} or more instead of {m.slots}"
        return Cause("kept", what, Advice("slots", advice, wanted))
    if m.held > 2:
        what = f"workers wait {waiting} of their time for a free slot: the trainer holds {m.held} of {m.slots}"
        wanted = m.slots + m.held
        return Cause("kept", what, Advice("slots", f"drop batches sooner, or slots={wanted} instead of {m.slots}", wanted))
    wanted = max(m.slots + m.workers, 2 * m.workers + 2)
    what = f"workers wait {waiting} of their time for a free slot, of {m.slots}"
    return Cause("slots", what, Advice("slots", f"slots={wanted}, or leave slots= out: it is enough by default", wanted))


def _unequal(m: Measures) -> Cause:
    idle = percent(shares.share(m, "wait_task_s"))
    slow = shares.slow_worker(m)
    if slow is not None:
        maker, each, others = slow
        cause = "slow worker"
        text = f"worker {maker.id} takes {duration(each)} for a batch, the others {duration(others)} and wait for it"
    elif m.workers > 1 and m.typical_s and m.slow_s and m.slow_s >= shares.SLOWER * m.typical_s:
        cause = "skewed"
        text = (
            f"samples take very different times (half of the batches up to {duration(m.typical_s)}, one of twenty over "
            f"{duration(m.slow_s)}), and workers are idle {idle} of their time until the slow ones are done"
        )
    else:
        cause, text = "gaps", f"and yet workers are idle {idle} of their time: they may not go further ahead"
    if m.pull or cause == "gaps":
        return Cause(cause, text, Advice("prefetch", f"prefetch_factor={PREFETCH} or more lets others go further ahead"))
    return Cause(cause, text, Advice("dispatch", 'dispatch="pull" lets whichever worker is idle make the next batch'))


def _copying(m: Measures) -> Cause:
    share = percent(sum(maker.collate_s for maker in m.makers) / m.busy_s)
    text = f"{share} of the work is collating and copying"
    if m.custom_collate:
        advice = "leave out collate_fn=: the default lays samples straight into the slot; or do in it what takes less"
    elif m.custom_collate is None:
        advice = "use the default collate_fn, or write samples in place: __getitem_into__ in the dataset"
    else:
        advice = "write samples in place: __getitem_into__ in the dataset"
    return Cause("collate", text, Advice("collate", advice))


def _more_workers(m: Measures, better: Forecast) -> Cause:
    text = f"a batch takes a worker {duration(shares.net_s(m))}"
    processor_s = shares.processor_s(m)
    if shares.known(m) and processor_s < 0.5 * shares.net_s(m):
        text += f", most of it waiting ({duration(processor_s)} on a processor)"
    if m.use_s and not m.alone and m.batches:
        text += f", the trainer {duration(m.use_s / m.batches)}"
    new = f"num_workers={better.workers} instead of {m.workers} {_would(better, m)}"
    return Cause("workers", text, Advice("workers", new, better.workers))


def _busy_machine(m: Measures) -> Cause:
    text = f"workers wait {percent(shares.delay(m))} of their work for a processor, which processes that are none of its have"
    return Cause("busy machine", text, Advice("machine", "see who computes here, with top, and measure again without them"))


def _cheaper_samples(m: Measures) -> Cause:
    who = "the trainer" if not m.workers else f"{m.workers} worker{'s' if m.workers > 1 else ''}"
    text = f"more workers would not help: {m.cores:g} processor{'s' if m.cores != 1 else ''} for {who}, and samples that compute"
    return Cause("processors", text, Advice("samples", "make samples cheaper: prepare once what is the same in each epoch"))


def _would(better: Forecast, m: Measures) -> str:
    if m.alone:
        return f"would give some {amount(better.batches_per_s)} batches/s"
    if better.wait_share < shares.FINE:
        return "would remove the wait"
    return f"would bring the wait to some {percent(better.wait_share)}; then the processors are full"


def dying(m: Measures) -> tuple[str, Advice]:
    what = f"{m.restarts} worker{'s' if m.restarts > 1 else ''} died and had to be replaced"
    return what, Advice("deaths", "find out what kills them: dmesg, and the memory limit of the container")
