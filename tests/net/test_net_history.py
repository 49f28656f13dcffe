"""Samples of a server, and rates and shares from them; with a clock and pictures of our own."""

import pytest

from ringbuf.net.history import MOST_SAMPLES, History


class Scene:
    """A server that we tell what it did."""

    def __init__(self):
        self.now = 1000.0
        self.picture = {
            "mode": "split",
            "produced": 0,
            "produced_bytes": 0,
            "source_s": 0.0,
            "room_s": 0.0,
            "doing": "",
            "doing_s": 0.0,
            "clients": [],
        }
        self.asked = 0
        self.history = History(self.describe)

    def describe(self):
        self.asked += 1
        return {**self.picture, "clients": [dict(client) for client in self.picture["clients"]]}

    def client(self, number, **values):
        client = {"client": number, "label": f"c{number}", "sent": 0, "bytes": 0, "waited_s": 0.0, "lag": 0}
        client.update({"in_loop": True, "local": True, "connected_s": 100.0, **values})
        self.picture["clients"].append(client)
        return client

    def second(self):
        self.history.tick(self.now)
        self.now += 1.0


@pytest.fixture
def scene():
    return Scene()


def test_there_is_no_report_before_the_first_sample(scene):
    assert scene.history.report() is None and scene.history.picture is None


def test_a_sample_is_taken_once_a_second_however_often_it_ticks(scene):
    for tick in range(5000):
        scene.history.tick(1000 + tick / 1000)
    assert scene.asked == 5


def test_samples_are_bounded(scene):
    for _ in range(MOST_SAMPLES + 50):
        scene.second()
    assert len(scene.history.series()["numbers"]) == MOST_SAMPLES - 1
    assert scene.history.series()["numbers"][-1] == MOST_SAMPLES + 50


def test_rates_are_of_the_last_seconds(scene):
    client = scene.client(1)
    for second in range(30):
        scene.second()
        client["sent"] += 10 if second < 20 else 4
        client["bytes"] += 1000 if second < 20 else 400
        scene.picture["produced"] += 1
    report = scene.history.report()
    assert report["batches_per_s"] == pytest.approx(4) and report["bytes_per_s"] == pytest.approx(400)
    assert report["clients"][0]["batches_per_s"] == pytest.approx(4)


def test_shares_are_of_the_last_minute(scene):
    client = scene.client(1)
    scene.picture["produced"] = 1
    for second in range(200):
        scene.second()
        client["waited_s"] += 1.0 if second < 120 else 0.25
        scene.picture["room_s"] += 0.1
        scene.picture["source_s"] += 0.5
    report = scene.history.report()
    assert report["clients"][0]["waiting_share"] == pytest.approx(0.25)
    assert report["room_share"] == pytest.approx(0.1) and report["source_share"] == pytest.approx(0.5)
    assert report["bottleneck"] == {
        "kind": "source",
        "text": "the source: the client waited 25 % of the last minute",
    }


def test_a_client_that_came_late_is_judged_by_the_time_that_it_was_there(scene):
    for _ in range(60):
        scene.second()
    client = scene.client(7, connected_s=0.0)
    for _ in range(10):
        scene.second()
        client["connected_s"] += 1.0
        client["waited_s"] += 1.0
    scene.second()
    assert scene.history.report()["clients"][0]["waiting_share"] == 1.0


def test_the_time_before_a_client_came_is_nobodys_fault(scene):
    scene.picture["produced"] = 8
    for _ in range(50):  # it is full, and nobody is there
        scene.picture["room_s"] += 1.0
        scene.second()
    client = scene.client(1, connected_s=0.2)
    scene.second()
    assert scene.history.report()["bottleneck"]["kind"] == "start"
    for _ in range(10):
        client["connected_s"] += 1.0
        client["waited_s"] += 0.9
        scene.second()
    report = scene.history.report()
    assert report["room_share"] == 0.0
    assert report["bottleneck"]["text"] == "the source: the client waited 90 % of the last 10 s"


def test_one_sample_has_no_rates(scene):
    scene.client(1, sent=5, bytes=500)
    scene.second()
    report = scene.history.report()
    assert report["batches_per_s"] == 0 and report["clients"][0]["waiting_share"] == 0


def test_the_series_has_a_value_for_each_second_and_none_for_who_was_not_there(scene):
    first = scene.client(1)
    for _ in range(3):
        scene.second()
        first["waited_s"] += 0.5
    second = scene.client(2, connected_s=0.0)
    scene.second()
    second["waited_s"] += 1.0
    scene.second()
    series = scene.history.series()
    assert series["numbers"] == [2, 3, 4, 5] and series["age_s"] == [3, 2, 1, 0]
    assert series["waiting"] == {"1": [0.5, 0.5, 0.5, 0.0], "2": [None, None, 0.0, 1.0]}


def test_only_what_is_new_is_given_to_who_has_the_rest(scene):
    client = scene.client(1)
    for _ in range(10):
        scene.second()
        client["sent"] += 3
    assert scene.history.series(after=7)["numbers"] == [8, 9, 10]
    assert scene.history.series(after=7)["batches_per_s"] == [3, 3, 3]
    assert scene.history.series(after=10)["numbers"] == []
    assert scene.history.series(after=11)["numbers"] == []


def test_what_a_client_got_that_has_gone_does_not_count_backwards(scene):
    scene.client(1, sent=1000, bytes=10)
    other = scene.client(2)
    scene.second()
    del scene.picture["clients"][0]
    other["sent"] = 7
    scene.second()
    assert scene.history.series()["batches_per_s"] == [7] and scene.history.report()["batches_per_s"] == 7


def test_after_a_pause_no_samples_are_made_up(scene):
    scene.history.tick(1000.0)
    scene.history.tick(1100.0)
    scene.history.tick(1100.1)
    assert scene.asked == 2
    scene.history.tick(1101.1)
    assert scene.asked == 3
