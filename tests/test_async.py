"""A ring in event loops: nobody blocks the loop, and a task that is cancelled neither loses a message nor keeps one."""

import asyncio
import gc
import os
import random
import signal
import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import DEADLINE_S, eventually, forked, process, script

import ringbuf
from ringbuf import BatchTooLarge, Closed, Empty, Full, RingBuffer


@pytest.fixture
def ring():
    with RingBuffer(slots=4, slot_bytes=4096) as ring:
        yield ring


def run(main):
    """Run main() in a loop of its own, with a deadline."""

    async def within():
        return await asyncio.wait_for(main(), DEADLINE_S)

    return asyncio.run(within())


async def turns(n=3):
    """Let the other tasks of the loop come as far as they can without help from outside."""
    for _ in range(n):
        await asyncio.sleep(0)


def watchers():
    return [thread for thread in threading.enumerate() if thread.name == "ringbuf watcher"]


def descriptors():
    return len(os.listdir("/proc/self/fd"))


# ---- waiting


def test_a_message_that_is_there_comes_without_a_thread_and_without_a_turn_of_the_loop(ring):
    async def main():
        ring.put({"x": np.arange(3)})
        step = ring.aget()
        with pytest.raises(StopIteration) as stopped:  # a coroutine that never awaited anything
            step.send(None)
        assert stopped.value.value["x"].tolist() == [0, 1, 2]

    run(main)
    assert not watchers()


def test_other_tasks_run_while_one_waits_and_all_waits_share_one_thread(ring):
    async def main():
        waiting = [asyncio.create_task(ring.aget()) for _ in range(20)]
        await turns(10)
        assert len(watchers()) == 1
        for i in range(20):
            await ring.aput(i)
            await turns()
        assert await asyncio.gather(*waiting) == list(range(20)), "who asked first gets first"
        assert len(watchers()) <= 2  # one for messages, one for free slots

    run(main)


def double(ring, answers):
    for i in ring:
        answers.put(2 * i)
    answers.finish()


def test_a_message_from_another_process_wakes_the_task(ring):
    async def main():
        for i in range(50):
            ring.put(i)
            assert await answers.aget() == 2 * i
        ring.finish()
        with pytest.raises(Closed):
            await answers.aget()

    with RingBuffer(slots=2, slot_bytes=64) as answers, process(double, ring, answers, method="spawn"):
        run(main)


def test_time_that_passes_is_empty_and_says_how_long(ring):
    async def main():
        with pytest.raises(Empty, match=r"within 0\.01 s"):
            await ring.aget(timeout=0.01)
        with pytest.raises(Empty, match="now"):
            await ring.aget(timeout=0)
        with pytest.raises(ValueError, match="timeout"):
            await ring.aget(timeout=-1)
        ring.put(1)
        assert await ring.aget(timeout=0.01) == 1

    run(main)


def test_each_task_gets_messages_of_its_tag_in_order(ring):
    async def main():
        tasks = {(tag, n): asyncio.create_task(ring.aget(tag=tag)) for n in range(2) for tag in (5, 6)}
        anything = asyncio.create_task(ring.aget(tag=7))
        await turns()
        for i, tag in enumerate([6, 5, 5, 6]):
            ring.put(i, tag=tag)
        assert [await tasks[key] for key in sorted(tasks)] == [1, 2, 0, 3]
        assert not anything.done()
        ring.finish()
        with pytest.raises(Closed):
            await anything

    run(main)


def test_who_asks_for_anything_does_not_keep_one_who_asks_for_a_tag_waiting(ring):
    async def main():
        anything, tagged = asyncio.create_task(ring.aget()), asyncio.create_task(ring.aget(tag=5))
        await turns()
        ring.put("seven", tag=7)
        ring.put("five", tag=5)
        assert await asyncio.gather(anything, tagged) == ["seven", "five"]

    run(main)


def test_every_reader_of_a_broadcast_waits_for_itself():
    async def main():
        with (
            RingBuffer(slots=4, slot_bytes=64, mode="broadcast", name=f"t.async.{os.getpid()}") as ring,
            ringbuf.attach(ring.name) as one,
            ringbuf.attach(ring.name) as two,
        ):
            tasks = [asyncio.create_task(reader.aget()) for reader in (one, two)]
            await turns()
            await ring.aput("to all")
            assert await asyncio.gather(*tasks) == ["to all"] * 2

    run(main)


# ---- the end


def test_async_for_ends_when_the_ring_is_finished_and_drained(ring):
    async def main():
        for i in range(3):
            ring.put(i)
        asyncio.get_running_loop().call_later(0.01, ring.finish)
        assert [i async for i in ring] == [0, 1, 2]

    run(main)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_close_is_an_error_for_everybody_who_waits(ring, elsewhere):
    async def main():
        async def iterate():
            async for _ in ring:
                pass

        tasks = [asyncio.create_task(coroutine) for coroutine in (ring.aget(), ring.aget(tag=3), iterate())]
        await turns()
        if elsewhere:
            await asyncio.to_thread(ring.close)
        else:
            ring.close()
        for task in tasks:
            with pytest.raises(Closed, match="closed"):
                await task

    run(main)
    assert not watchers()


def test_close_wakes_who_waits_for_a_slot(ring):
    async def main():
        for i in range(4):
            ring.put(i)
        tasks = [asyncio.create_task(ring.aput(4)), asyncio.create_task(ring.areserve().__aenter__())]
        await turns()
        ring.close()
        for task in tasks:
            with pytest.raises(Closed):
                await task

    run(main)


def test_a_handle_that_nobody_has_any_more_takes_its_thread_and_descriptors_along():
    before = descriptors()

    async def main():
        ring = RingBuffer(slots=1, slot_bytes=64)
        with pytest.raises(Empty):
            await ring.aget(timeout=0.001)
        assert len(watchers()) == 1
        del ring
        gc.collect()
        assert not watchers()
        await turns()
        assert descriptors() <= before + 3  # the loop's own

    run(main)
    assert descriptors() == before


# ---- cancelled


def test_a_cancelled_task_passes_on_that_it_was_told(ring):
    """Of two who wait the first is told, and cancelled before it runs."""

    async def main():
        first, second = asyncio.create_task(ring.aget()), asyncio.create_task(ring.aget())
        await turns()
        ring.put("only")
        ring._waits_for(to_claim=False)._desk(asyncio.get_running_loop())._look()  # as when the bell has rung
        first.cancel()
        assert await second == "only"
        with pytest.raises(asyncio.CancelledError):
            await first

    run(main)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_cancellations_lose_and_keep_nothing(data):
    """Each message is got exactly once, by a task that lived, and every slot comes back."""
    messages = data.draw(st.integers(1, 30), "messages")
    seed = data.draw(st.integers(0, 2**32), "seed")
    tags = data.draw(st.integers(1, 3), "tags")
    chance = random.Random(seed)
    got = []

    async def take(ring, tag):
        got.append((await ring.aget(tag=tag)).item())  # no view is kept: the slot goes back

    async def main():
        with RingBuffer(slots=3, slot_bytes=64) as ring:
            producer = threading.Thread(target=lambda: [ring.put(np.array(i), tag=i % tags) for i in range(messages)])
            producer.start()
            tasks = set()
            while len(got) < messages:
                while len(tasks) < 5:
                    tag = chance.choice([None, *range(tags)])
                    tasks.add(asyncio.create_task(take(ring, tag)))
                await asyncio.sleep(0 if chance.random() < 0.7 else 0.0005)
                for task in chance.sample(sorted(tasks, key=id), chance.randrange(4)):
                    task.cancel()
                tasks = {task for task in tasks if not task.done()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            producer.join(DEADLINE_S)
            assert Counter(got) == Counter(range(messages))
            assert (ring.stats().free, ring.stats().consumed) == (3, messages)

    run(main)


def test_cancelled_puts_publish_nothing_and_leak_no_slot(ring):
    async def main():
        for i in range(4):
            ring.put(i)
        tasks = [asyncio.create_task(ring.aput("cancelled")) for _ in range(5)]
        tasks += [asyncio.create_task(ring.areserve().__aenter__()) for _ in range(5)]
        late = asyncio.create_task(ring.aput("late"))
        await turns()
        assert ring.get(timeout=0) == 0
        for task in tasks:
            task.cancel()
        await late
        assert [ring.get(timeout=0) for _ in range(4)] == [1, 2, 3, "late"]
        await asyncio.gather(*tasks, return_exceptions=True)
        assert ring.stats().free == 4

    run(main)


# ---- producers


def test_a_full_ring_makes_a_producing_task_wait_and_nobody_else(ring):
    async def main():
        with pytest.raises(BatchTooLarge):
            await ring.aput(np.zeros(5000))
        for i in range(4):
            await ring.aput(i)
        with pytest.raises(Full, match=r"within 0\.01 s"):
            await ring.aput(4, timeout=0.01)
        with pytest.raises(Full):
            await ring.aput(4, timeout=0)
        task = asyncio.create_task(ring.aput(4))
        await turns()
        assert not task.done()
        assert ring.get() == 0
        await task
        assert [ring.get() for _ in range(4)] == [1, 2, 3, 4]

    run(main)


def test_a_slot_is_reserved_in_an_event_loop(ring):
    async def main():
        for i in range(4):
            ring.put(i)
        asyncio.get_running_loop().call_later(0.01, ring.get)
        async with ring.areserve(tag=9) as slot:
            array = slot.empty(3, np.int64)
            array[...] = 7
            slot.value = {"x": array}
        assert (await ring.aget(tag=9))["x"].tolist() == [7, 7, 7]
        with pytest.raises(ZeroDivisionError):
            async with ring.areserve(timeout=1) as slot:
                slot.value = 1 / 0
        with pytest.raises(ValueError, match="timeout"):
            async with ring.areserve(timeout=float("nan")) as slot:
                pass

    run(main)
    assert ring.stats().published == 5


# ---- loops and processes


def test_several_loops_share_a_handle_and_its_one_thread(ring):
    got = []

    async def take():
        got.extend([i async for i in ring])

    threads = [threading.Thread(target=run, args=(take,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(300):
        ring.put(i, timeout=DEADLINE_S)
        if i % 50 == 0:
            assert eventually(lambda: not len(ring))
    assert len(watchers()) == 1
    ring.finish()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sorted(got) == list(range(300))


def test_a_loop_that_was_closed_while_tasks_waited_takes_nothing_along(ring):
    before = descriptors()
    loop = asyncio.new_event_loop()
    task = loop.create_task(ring.aget())
    loop.run_until_complete(turns())
    loop.close()
    ring.put("for the next one")

    async def main():
        assert await ring.aget() == "for the next one"
        with pytest.raises(Empty):
            await ring.aget(timeout=0.01)

    run(main)
    task._log_destroy_pending = False  # it is what this test is about
    del task, loop
    gc.collect()
    assert descriptors() == before
    ring.put("and again")
    assert run(ring.aget) == "and again"


def test_a_forked_child_waits_in_a_loop_of_its_own(ring):
    with RingBuffer(slots=2, slot_bytes=64) as answers:

        async def main():
            with pytest.raises(Empty):
                await ring.aget(timeout=0.01)  # so that there is a watcher at the fork
            loop = asyncio.get_running_loop()
            child = loop.run_in_executor(None, forked, lambda: run(in_child))
            ring.put("question")
            assert await answers.aget() == "question, answered"
            waiting = asyncio.create_task(ring.aget(tag=1))
            await turns()
            ring.put("still here", tag=1)
            assert await waiting == "still here"
            assert await child == 0

        async def in_child():
            await answers.aput(f"{await ring.aget(tag=0)}, answered")
            with pytest.raises(Empty):
                await ring.aget(timeout=0.01, tag=2)

        run(main)


def test_what_a_killed_consumer_held_is_redelivered_to_a_waiting_task(ring):
    def hold(ring):
        message = ring.get(timeout=DEADLINE_S)
        ring.put("held", tag=1)
        signal.pause()
        del message

    async def main():
        ring.put(np.arange(4))
        with process(hold, ring) as holder:
            assert await ring.aget(tag=1) == "held"
            task = asyncio.create_task(ring.aget())
            await turns()
            assert not task.done()
            holder.kill()
            assert (await task).tolist() == [0, 1, 2, 3]

    run(main)


def test_a_killed_producer_leaves_its_slot_to_a_waiting_task(ring):
    def claim_all(ring):
        claims = [ring._core.claim() for _ in range(3)]
        ring.put("claimed")
        signal.pause()
        del claims

    async def main():
        with process(claim_all, ring) as claimer:
            assert await ring.aget() == "claimed"
            ring.put(0)
            task = asyncio.create_task(ring.aput(1))
            await turns()
            assert not task.done()
            claimer.kill()
            await task
        assert ring.stats().lost == 3

    run(main)


def test_an_interpreter_that_exits_without_close_ends_quietly_and_leaves_no_name():
    name = f"t.async.exit.{os.getpid()}"
    ended = script(
        """if True:
        import asyncio, sys, ringbuf
        ring = ringbuf.RingBuffer(slots=1, slot_bytes=64, name=sys.argv[1])
        async def main():
            task = asyncio.create_task(ring.aget())
            await asyncio.sleep(0.01)
            task.cancel()
        asyncio.run(main())""",
        name,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert not os.path.exists(f"/dev/shm/ringbuf.{name}")
