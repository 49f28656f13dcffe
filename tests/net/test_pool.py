"""The server's own memory: slots for batches that were not made in shared memory."""

import threading

import numpy as np
from processes import DEADLINE_S, eventually

from ringbuf.net.parcel import Memory, Pool
from ringbuf.net.server import Account


def test_waiting_for_a_slot_is_not_counted_as_the_sources_time():
    account, waits = Account(), threading.Event()

    def no_slot():
        waits.set()
        return account.room_within_source()

    pool = Pool(Memory(), slots=2, stopped=lambda: False, waiting=no_slot)
    held = [pool.put(np.zeros(4)), pool.put(np.zeros(4))]
    done = threading.Event()

    def produce():
        with account.source:
            held.append(pool.put(np.ones(4)))
        done.set()

    thread = threading.Thread(target=produce)
    thread.start()
    assert waits.wait(DEADLINE_S)
    assert eventually(lambda: account.room.running_s is not None)
    assert account.source.running_s is None
    held.pop(0)
    assert done.wait(DEADLINE_S)
    thread.join()
    assert account.room.seconds > 0 and account.room.running_s is None and account.source.running_s is None
    held.clear()
    pool.close()
