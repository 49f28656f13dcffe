"""Who holds up everybody else, named from shares of time."""

import pytest

from ringbuf.net.bottleneck import ClientShare, find


def named(*clients, mode="split", room=0.0, window_s=60, produced=100, **others):
    return find(mode=mode, window_s=window_s, room=room, clients=clients, produced=produced, **others)


def test_the_source_is_named_when_clients_wait():
    found = named(ClientShare("a", 0.70), ClientShare("b", 0.56), room=0.02)
    assert found == ("source", "the source: clients waited 63 % of the last minute")


def test_one_client_is_not_called_clients():
    assert named(ClientShare("a", 0.5)).text == "the source: the client waited 50 % of the last minute"


def test_the_only_client_is_named_when_the_source_waits_for_room():
    found = named(ClientShare("trainer-b", 0.03), room=0.8)
    assert found == ("client", "client trainer-b: the source waited for room 80 % of the last minute")


def test_in_split_all_clients_are_slow_together():
    found = named(ClientShare("a", 0.0), ClientShare("b", 0.0), room=0.8)
    assert found.kind == "clients" and found.text.startswith("the clients, all 2 of them: the source waited")


def test_in_split_who_keeps_others_waiting_at_the_end_of_an_epoch_is_named():
    clients = ClientShare("quick", 0.72, lag=0), ClientShare("slow", 0.02, lag=2), ClientShare("also quick", 0.6)
    found = named(*clients, room=0.46)
    assert found.kind == "client"
    assert found.text == "client slow: others waited 72 % of the last minute, at the end of an epoch, for what it has in hand"
    assert named(*clients, room=0.05).kind == "source"  # it has no batches either


def test_in_broadcast_the_client_that_is_behind_is_named_although_others_wait_for_it():
    clients = ClientShare("quick", 0.9, lag=0), ClientShare("slow", 0.0, lag=9)
    assert named(*clients, mode="broadcast", room=0.6).text.startswith("client slow: ")


def test_in_broadcast_the_source_is_named_when_even_the_slowest_client_waits():
    clients = ClientShare("quick", 0.9), ClientShare("slow", 0.5)
    assert named(*clients, mode="broadcast", room=0.1).text == "the source: clients waited 50 % of the last minute"


def test_for_a_remote_client_the_network_may_be_it():
    found = named(ClientShare("far", 0.0, local=False), room=0.5)
    assert found.text.startswith("client far, or the network to it: ")


def test_nobody_is_named_when_neither_waits_much():
    found = named(ClientShare("a", 0.04), room=0.05)
    assert found == ("balanced", "balanced: clients waited 4 % of the last minute, the source 5 % for room")


def test_clients_outside_of_a_loop_do_not_count():
    found = named(ClientShare("a", 0.0, inside=False), ClientShare("b", 0.6), ClientShare("c", 0.0, inside=False))
    assert found.text == "the source: clients waited 60 % of the last minute"


@pytest.mark.parametrize(
    "clients, text",
    [
        ([], "nobody: no client is connected"),
        ([ClientShare("a", 0.0, inside=False)], "nobody: the client is not in a loop"),
        ([ClientShare("a", 0.0, inside=False)] * 3, "nobody: none of the 3 clients is in a loop"),
    ],
)
def test_when_nobody_asks_nobody_is_named(clients, text):
    assert named(*clients, room=1.0) == ("nobody", text)


def test_before_the_first_batch_the_source_is_at_it():
    found = named(ClientShare("a", 1.0), produced=0, doing="source", doing_s=12.4)
    assert found == ("start", "the source makes its first batch, since 12 s")
    assert named(produced=0, doing="").kind == "start"


def test_without_time_to_judge_by_nobody_is_named():
    assert named(ClientShare("a", 0.0), window_s=0).kind == "start"


@pytest.mark.parametrize("window_s, words", [(60.4, "minute"), (12, "12 s"), (300, "5 min"), (7300, "2.0 h")])
def test_the_stretch_is_told(window_s, words):
    assert named(ClientShare("a", 0.5), window_s=window_s).text.endswith(f"of the last {words}")
