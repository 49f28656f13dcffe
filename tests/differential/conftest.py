"""How much hypothesis tries: a repeatable few by default, thousands at random with --thorough."""

import gc
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

TIMES_THOROUGH = int(os.environ.get("RINGBUF_TIMES_THOROUGH", "50"))


def pytest_collection_modifyitems(config, items):
    for item in items:
        if "differential" in item.path.parts:
            item.add_marker(pytest.mark.timeout(6 * 3600 if config.getoption("--thorough") else 300))


@pytest.fixture
def quick_collections():
    """Garbage collections that look at what the test made alone, not at all of torch."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def check(thorough, figures, quick_collections):
    """check(strategy, function, examples=20): call the function with so many things that the strategy thinks up."""

    def run(strategy: SearchStrategy, function: Callable[[Any], Any], *, examples: int) -> None:
        tried = 0

        def counted(case):
            nonlocal tried
            tried += 1
            function(case)

        phases = [Phase.explicit, Phase.generate] + ([Phase.shrink] if thorough else [])
        settings(
            max_examples=examples * (TIMES_THOROUGH if thorough else 1),
            derandomize=not thorough,
            database=None,
            deadline=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )(given(strategy)(counted))()
        if thorough:
            figures(cases=tried)

    return run
