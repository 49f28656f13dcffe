"""Few descriptors.

Of torch's own suite: TestDataLoader's descriptor limit.
"""

import multiprocessing
import os
import resource

from processes import succeeds

from conformance.data import Numbers
from conformance.expect import either


def keep_all(Loader, spare, results):
    """In a process of its own: keep every batch, with room for so many more descriptors."""
    used = set(map(int, os.listdir("/proc/self/fd")))
    most = [number for number in range(len(used) + spare + max(used)) if number not in used][spare]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    kept = []
    try:
        for batch in Loader(Numbers(200), num_workers=1, multiprocessing_context="fork"):
            kept.append(batch)
        results.send([batch.item() for batch in kept] == list(range(200)))
    except RuntimeError as error:
        results.send(str(error))


def test_two_hundred_kept_batches_where_there_are_forty_descriptors(Loader):
    """torch needs one for each, and says so; ours needs none."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=keep_all, args=(Loader, 40, sender))
    child.start()
    assert succeeds(child)
    outcome = receiver.recv()
    if either(Loader, torch=True, ringbuf=False):
        assert "Too many open files" in outcome and "ulimit -n" in outcome and "set_sharing_strategy" in outcome
    else:
        assert outcome is True
