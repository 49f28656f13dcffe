"""The short examples, run on small settings: each learns or shows what it says, is short, is listed, and ends with Ctrl-C."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
DEADLINE_S = 55
LONG = {"digits.py", "fashion.py"}  # they compare loaders, and have tests of their own


def run(name, *arguments):
    """What an example prints."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def losses(output):
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)", output)]


def percent(output, after):
    return float(re.search(rf"([\d.]+)% {after}", output)[1])


def test_the_image_example_learns_from_jpeg_files():
    output = run("images.py", "--epochs=3", "--pieces=360", "--workers=1")
    assert len(losses(output)) == 3 and losses(output)[-1] < losses(output)[0]
    assert len(re.findall(r"[\d.]+ batches/s, waited \d+% of the time", output)) == 3


def test_the_lightning_example_goes_on_in_the_middle_of_an_epoch():
    output = run("with_lightning.py", "--workers=1")
    assert "Of 1797 images 0 were seen twice and 0 not at all." in output
    assert percent(output, "of them are told right") > 70


def test_the_accelerate_example_keeps_the_ring():
    output = run("with_accelerate.py", "--epochs=3")
    assert "171 batches through the ring, 0 of them copied" in output
    assert percent(output, "right") > 90


def test_the_jax_example_copies_where_jax_would_alias():
    output = run("with_jax.py", "--epochs=3")
    assert re.search(r"^device_put\(np.array\(batch\)\) +is memory of its own$", output, re.MULTILINE)
    assert "the slot itself" in output, "JAX aliases no more: the example has lost its point"
    assert percent(output, "right; 0 batches found no slot") > 85


def test_the_server_example_serves_a_local_and_a_remote_trainer():
    output = run("served.py", "--epochs=1")
    found = re.findall(r"^epoch 0 by ([\w ]+): (\d+) batches, \d+/s, sum of indices (\d+)$", output, re.MULTILINE)
    assert sorted(found) == [(way, "100", str(sum(range(3200)))) for way in ("TCP", "shared memory")]
    assert "The server copied 0 batches" in output


def test_the_slow_example_is_diagnosed_and_follows_the_advice():
    output = run("slow_pipeline.py", "--seconds=0.6")
    assert "doctor: input-bound, highly" in output and "most of it waiting" in output
    workers = re.search(r"^doctor: num_workers=(\d+) instead of 1 would", output, re.MULTILINE)[1]
    (before,), (after,) = (re.findall(rf"^with {n} workers? it waits (\d+)% of the time$", output, re.M) for n in (1, workers))
    assert int(after) < int(before)


@pytest.mark.parametrize("full", ["overwrite", "block"])
def test_the_camera_example_drops_pictures_only_where_it_does_not_wait(full):
    output = run("camera.py", f"--full={full}", "--pictures=100")
    taken, seen, dropped = map(int, re.search(r"(\d+) taken, (\d+) seen, (\d+) dropped", output).groups())
    assert taken == 100 == seen + dropped
    assert (dropped > 0) == (full == "overwrite")


@pytest.mark.parametrize(("name", "first"), [("camera.py", "picture"), ("served.py", "epoch 0"), ("images.py", "epoch 0")])
def test_an_example_ends_with_ctrl_c_and_without_a_traceback(name, first):
    settings = {"images.py": ["--epochs=100", "--pieces=120"], "served.py": ["--epochs=1000"]}
    with subprocess.Popen(
        [sys.executable, EXAMPLES / name, *settings.get(name, [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as example:
        try:
            while not example.stdout.readline().startswith(first):
                assert example.poll() is None, example.stderr.read()
            # As a terminal does it: to the example and all that it has started.
            subprocess.run(["kill", f"-{signal.SIGINT.value}", "--", f"-{example.pid}"], check=True)
            _, said = example.communicate(timeout=DEADLINE_S)
        finally:
            example.kill()
    assert (example.returncode, said) == (130, "")


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in LONG))
def test_an_example_is_short_and_listed(name):
    assert len((EXAMPLES / name).read_text().splitlines()) <= 80
    assert f"`{name}`" in (EXAMPLES / "README.md").read_text()
