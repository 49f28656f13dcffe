"""What `ringbuf doctor` concludes from measures: a table of cases, and what must hold whatever was measured."""

import math
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ringbuf.cli.diagnosis.forecast import MOST_WORKERS, forecast
from ringbuf.cli.diagnosis.measures import Maker, Measures
from ringbuf.cli.diagnosis.shares import FINE
from ringbuf.cli.diagnosis.verdict import HIGH, diagnose

KINDS = {"idle", "capacity", "input", "consumer", "balanced"}
KNOBS_OF_A_FASTER_LOADER = {"dispatch", "prefetch", "samples", "collate", "machine", "batch size"}


def measured(*, wait, workers=2, load=0.95, collate=0.05, task=0.0, slot=0.0, each=0.1, **more):
    """Ten seconds, in which the trainer waited for this share, and workers spent these shares of their time.

    each: seconds in which a worker makes a batch.
    """
    maker = Maker(
        id=0,
        batches=max(1, int(10 * (load + collate) / each)),
        load_s=10 * load,
        collate_s=10 * collate,
        wait_task_s=10 * task,
        wait_slot_s=10 * slot,
    )
    makers = tuple(replace(maker, id=number) for number in range(max(1, workers)))
    values = {
        "seconds": 10.0,
        "batches": sum(maker.batches for maker in makers),
        "wait_s": 10 * wait,
        "use_s": 10 * (1 - wait),
        "workers": workers,
        "makers": makers,
        "cores": 8.0,
        "slots": 2 * workers + 2,
    }
    return Measures(**{**values, **more})


def a_slow_worker():
    m = measured(wait=0.3, workers=3, load=0.4, task=0.55)
    return replace(m, makers=(*m.makers[:2], replace(m.makers[2], load_s=9.5, wait_task_s=0.0)))


CASES = {
    # what was measured: kind, level, cause, knob, value of the advice, words
    "workers": (
        measured(wait=0.38, processor_s=19.0),
        ("input", "bad", "workers", "workers", 4),
        ["the trainer waited 38 % of the time", "95 % in the dataset, 5 % collating", "=4 instead of 2 would remove the wait"],
    ),
    "workers that wait for a disk, on two processors": (
        measured(wait=0.8, processor_s=0.5, cores=2.0),
        ("input", "bad", "workers", "workers", 11),
        ["most of it waiting", "would remove the wait"],
    ),
    "workers, as far as processors go": (
        measured(wait=0.8, workers=1, processor_s=9.5, cores=2.0),
        ("input", "bad", "workers", "workers", 3),
        ["would bring the wait to some 58 %; then the processors are full"],
    ),
    "no processor for more": (
        measured(wait=0.5, processor_s=20.0, cores=2.0),
        ("input", "bad", "processors", "samples", None),
        ["more workers would not help: 2 processors for 2 workers"],
    ),
    "moderately": (
        measured(wait=0.19, processor_s=19.0),
        ("input", "warning", "workers", "workers", 3),
        ["moderately: the trainer waited 19 %"],
    ),
    "no workers": (
        measured(wait=0.5, workers=0),
        ("input", "bad", "alone", "workers", 3),
        ["there are no workers", "num_workers=3 would remove the wait"],
    ),
    "a slow worker": (
        a_slow_worker(),
        ("input", "bad", "slow worker", "dispatch", None),
        ["worker 2 takes", "and wait for it", 'dispatch="pull"'],
    ),
    "skewed samples": (
        measured(wait=0.3, load=0.4, task=0.55, typical_s=0.02, slow_s=0.2),
        ("input", "bad", "skewed", "dispatch", None),
        ["half of the batches up to 20.0 ms, one of twenty over 200 ms"],
    ),
    "skewed samples, pulled": (
        measured(wait=0.3, load=0.4, task=0.55, typical_s=0.02, slow_s=0.2, pull=True),
        ("input", "bad", "skewed", "prefetch", None),
        ["prefetch_factor=4"],
    ),
    "collating": (
        measured(wait=0.3, load=0.3, collate=0.7, custom_collate=True),
        ("input", "bad", "collate", "collate", None),
        ["70 % of the work is collating", "leave out collate_fn="],
    ),
    "collating by default": (
        measured(wait=0.3, load=0.3, collate=0.7, custom_collate=False),
        ("input", "bad", "collate", "collate", None),
        ["__getitem_into__"],
    ),
    "slots too few": (
        measured(wait=0.3, load=0.4, slot=0.55, slots=3, held=1),
        ("input", "bad", "slots", "slots", 6),
        ["workers wait 55 % of their time for a free slot, of 3"],
    ),
    "batches are kept": (
        measured(wait=0.3, load=0.4, slot=0.55, slots=6, held=5),
        ("input", "bad", "kept", "slots", 11),
        ["the trainer holds 5 of 6", "drop batches sooner, or slots=11"],
    ),
    "batches are copied": (
        measured(wait=0.3, load=0.4, task=0.55, slots=6, held=4, copies=60),
        ("input", "bad", "kept", "slots", 10),
        ["60 of 90 batches were copied"],
    ),
    "first batches": (
        measured(wait=0.3, passes=4, first_wait_s=2.0, persistent=False),
        ("input", "bad", "first", "start", None),
        ["most of the wait is for the first batch of the 4 passes that began", "persistent_workers=True"],
    ),
    "workers that die": (
        measured(wait=0.3, restarts=3),
        ("input", "bad", "restarts", "deaths", None),
        ["3 workers died and had to be replaced", "dmesg"],
    ),
    "other processes": (
        measured(wait=0.5, processor_s=6.0, delay_s=13.0, trainer_processor_s=0.1, cores=2.0),
        ("input", "bad", "busy machine", "machine", None),
        ["workers wait 65 % of their work for a processor"],
    ),
    "nothing comes": (
        measured(wait=1.0, batches=0, load=1.0, collate=0.0, makers=(Maker(0, 0, 9.9, 0, 0, 0), Maker(1, 2, 1, 0, 9, 0))),
        ("input", "bad", "stalled", "look", None),
        ["no batch came in 10.0 s, and worker 0 had one in hand all the time"],
    ),
    "tiny batches": (
        measured(wait=0.3, load=0.1, task=0.85, batches=100_000),
        ("input", "bad", "overhead", "batch size", None),
        ["a batch comes within 30.0 us"],
    ),
    "some are late": (measured(wait=0.07, each=0.05), ("input", "warning", "workers", "workers", 3), []),
    "some are late, of enough workers": (
        measured(wait=0.07, load=0.75, task=0.2, batches=200, makers=(Maker(0, 150, 7.5, 0.5, 2, 0),) * 2),
        ("input", "warning", "jitter", "prefetch", None),
        ["on average the workers are quick enough"],
    ),
    "a slow trainer": (
        measured(wait=0.01, workers=4, load=0.1, task=0.85),
        ("consumer", "ok", None, "workers", 1),
        ["consumer-bound: the trainer waited 1 % of the time, and its workers 85 % of theirs"],
    ),
    "both keep pace": (measured(wait=0.04, task=0.05, load=0.9), ("balanced", "ok", None, None, None), ["waited 4 %"]),
    "a trainer that loads": (measured(wait=0.04, workers=0), ("consumer", "ok", None, None, None), ["not input-bound"]),
    "no pass": (measured(wait=0, use_s=0.0), ("idle", "ok", None, "patience", None), ["no pass was under way"]),
    "nobody works": (
        measured(wait=0.9, alone=True, processor_s=19.0, cores=64.0),
        ("capacity", "ok", "workers", "workers", 68),
        ["at most 20.0 batches/s: enough for a training step of 50.0 ms or more"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_slow_is_named_and_what_to_do(case):
    measures, (kind, level, cause, knob, value), words = CASES[case]
    main = diagnose(measures).main
    advice = main.advice
    found = (main.kind, main.level, main.cause, advice and advice.knob, advice and advice.value)
    assert found == (kind, level, cause, knob, value), main
    text = main.text + (f" | {advice.text}" if advice else "")
    assert [word for word in words if word not in text] == [], text


SHARED = {"workers": 4, "cores": 2.0}


@pytest.mark.parametrize(
    ("more", "kind", "words"),
    [
        ({"errors": 2}, "errors", "2 samples failed"),
        ({"restarts": 1}, "restarts", "1 worker died"),
        ({"copies": 30}, "kept", "30 of 40 batches were copied"),
        ({"first_batch_s": 9.0}, "first", "the first batch took 9.00 s"),
        ({**SHARED, "processor_s": 40.0, "delay_s": 0.0, "load": 0.5, "task": 0.45}, "threads", "1.8 processors busy"),
        ({**SHARED, "processor_s": 20.0, "delay_s": 20.0, "load": 0.95}, "crowded", "num_workers=2 would do as much"),
    ],
)
def test_what_else_is_wrong_is_told_besides(more, kind, words):
    m = measured(**{"wait": 0.01, "load": 0.15, "task": 0.8, **more})
    diagnosis = diagnose(m)
    (finding,) = [finding for finding in diagnosis.also if finding.kind == kind]
    assert words in f"{finding.text} | {finding.advice.text}"
    assert finding.level == "warning" and not diagnosis.healthy


def test_a_knob_is_turned_once():
    """Fewer workers than share two processors would do here for two reasons, and to two different numbers."""
    m = measured(wait=0.01, workers=6, load=0.3, task=0.65, cores=2.0, processor_s=15.0, delay_s=5.0)
    diagnosis = diagnose(m)
    assert (diagnosis.main.advice.knob, diagnosis.also) == ("workers", ())


def test_few_batches_are_said_to_be():
    assert "these are 3 batches only" in diagnose(measured(wait=0.5, batches=3)).remark
    assert "only" not in diagnose(measured(wait=0.5, each=0.1)).remark


def test_the_assumption_is_stated():
    assert "a batch needs 100 ms of the 8 processors" in diagnose(measured(wait=0.5, processor_s=20.0)).remark
    assert "a batch needs one of the 8 processors" in diagnose(measured(wait=0.5)).remark


# ---- whatever was measured

times = st.integers(0, 20 * 10**9).map(lambda ns: ns / 1e9)
makers = st.builds(
    Maker,
    id=st.integers(0, 9),
    batches=st.integers(0, 10**6),
    load_s=times,
    collate_s=times,
    wait_task_s=times,
    wait_slot_s=times,
)
anything = st.builds(
    Measures,
    seconds=st.floats(0.1, 20),
    batches=st.one_of(st.just(0), st.integers(0, 10**6)),
    wait_s=times,
    use_s=times,
    workers=st.integers(0, 40),
    makers=st.lists(makers, max_size=5).map(tuple),
    cores=st.one_of(st.floats(0.1, 300), st.sampled_from([1.0, 2.0])),
    passes=st.integers(0, 50),
    first_wait_s=times,
    state=st.sampled_from(["waiting", "using", "idle"]),
    copies=st.integers(0, 10**6),
    held=st.integers(0, 100),
    slots=st.integers(0, 100),
    restarts=st.integers(0, 3),
    errors=st.integers(0, 3),
    processor_s=st.none() | times,
    delay_s=st.none() | times,
    trainer_processor_s=st.none() | times,
    typical_s=st.none() | times,
    slow_s=st.none() | times,
    alone=st.booleans(),
    first_batch_s=st.none() | times,
    custom_collate=st.none() | st.booleans(),
    pull=st.none() | st.booleans(),
    persistent=st.none() | st.booleans(),
)


@st.composite
def plausible(draw):
    """What may well be measured: workers that are alike, and that all the time is spent on something."""
    workers = draw(st.integers(0, 12))
    load, collate, task, slot = (draw(st.integers(0, 20)) for _ in range(4))
    total = max(1, load + collate + task + slot)
    work_s = 10 * max(1, workers) * (load + collate) / total
    on_processor = draw(st.floats(0, 1))
    return measured(
        wait=draw(st.sampled_from([0.0, 0.01, 0.04, 0.05, 0.1, 0.2, 0.5, 0.9, 1.0])),
        workers=workers,
        load=load / total,
        collate=collate / total,
        task=task / total,
        slot=slot / total,
        each=draw(st.sampled_from([0.0001, 0.01, 1.0])),
        cores=draw(st.sampled_from([1.0, 2.0, 16.0])),
        alone=draw(st.booleans()),
        processor_s=work_s * on_processor,
        delay_s=work_s * (1 - on_processor) * draw(st.floats(0, 1)),
        trainer_processor_s=draw(st.floats(0, 10)),
        **draw(st.fixed_dictionaries({}, optional={"copies": st.just(50), "held": st.just(6), "errors": st.just(1)})),
    )


@settings(max_examples=600, deadline=None, phases=[Phase.generate])
@given(anything | plausible())
def test_a_diagnosis_never_contradicts_itself(m):
    diagnosis = diagnose(m)
    main, findings = diagnosis.main, [diagnosis.main, *diagnosis.also]
    knobs = [finding.advice.knob for finding in findings if finding.advice]
    assert main.kind in KINDS
    assert len(knobs) == len(set(knobs))
    assert len({finding.kind for finding in findings}) == len(findings)
    assert diagnosis.healthy == all(finding.level == "ok" for finding in findings)
    for finding in findings:
        text = finding.text + (finding.advice.text if finding.advice else "")
        assert text.isprintable() and "nan" not in text.split() and "inf" not in text.split()

    share = m.wait_share
    assert (main.kind == "idle") == (share is None)
    if main.kind == "input":
        assert share >= FINE and (main.level == "bad") == (share > HIGH)
    elif main.kind in ("consumer", "balanced"):
        assert share < FINE and not KNOBS_OF_A_FASTER_LOADER & set(knobs)
    elif main.kind == "capacity":
        assert m.alone and m.batches
    if main.advice and main.advice.knob == "workers":
        assert 1 <= main.advice.value <= MOST_WORKERS
        assert (main.advice.value < m.workers) == (main.kind == "consumer")
        assert diagnosis.remark or main.kind == "consumer"


positive = st.floats(1e-6, 10)


@settings(max_examples=400, deadline=None, phases=[Phase.generate])
@given(
    make=positive,
    part=st.floats(0, 1),
    trainer=st.floats(0, 1),
    use=st.floats(0, 10),
    cores=st.floats(0.1, 256),
    workers=st.integers(0, 64),
)
def test_a_forecast_keeps_within_processors_and_is_enough_where_it_says_so(make, part, trainer, use, cores, workers):
    costs = {"make_s": make, "processor_s": make * part, "trainer_s": trainer, "use_s": use, "cores": cores}
    better = forecast(**costs, workers=workers)
    if better is None:
        return
    assert workers < better.workers <= MOST_WORKERS
    assert better.batches_per_s * (make * part + trainer) <= cores * (1 + 1e-9)
    assert better.batches_per_s <= better.workers / make * (1 + 1e-9)
    assert 0 <= better.wait_share <= 1 and math.isfinite(better.batches_per_s)
    if use and better.wait_share == 0:
        assert better.batches_per_s == pytest.approx(1 / use)
    assert forecast(**costs, workers=better.workers) is None  # who follows it is not told to go on
