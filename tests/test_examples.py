"""What people are told to run, run: the examples, small."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEADLINE_S = 55


def run(*command):
    """Standard output of `python COMMAND...` in the checkout; what went wrong is in the failure."""
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accuracies(output):
    return {
        int(workers): float(percent)
        for workers, percent in re.findall(r"^(\d+) workers: .* test accuracy ([\d.]+)%", output, re.MULTILINE)
    }


def test_the_example_learns_with_and_without_workers_and_says_how_they_compare():
    output = run("examples/digits.py", "--epochs=5", "--seed=3")
    assert accuracies(output).keys() == {0, 2}
    assert min(accuracies(output).values()) > 90
    assert re.search(r"With 2 workers the same training runs \d+\.\d\d times as fast", output)


def test_the_examples_batches_reach_the_trainer_without_a_copy():
    output = run("examples/digits.py", "--epochs=2", "--workers=1", "--no-compare")
    assert accuracies(output).keys() == {1}
    account = output.partition("The loader's account")[2]
    assert re.search(r"^\s*batches\b\D*42$", account, re.MULTILINE), account
    assert re.search(r"^\s*copies\b\D*0$", account, re.MULTILINE), account


SAME = """if True:
    import sys, numpy as np
    sys.path.insert(0, "examples")
    import gymnasium, rl

    if __name__ == "__main__":
        actions = np.random.default_rng(0).integers(0, 2, (120, 3))
        theirs = gymnasium.vector.AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3)
        ours = rl.Environments("CartPole-v1", 3, seed=5, method="fork")
        kept, ended = [], 0
        want, got = theirs.reset(seed=5)[0], ours.reset()["observation"]
        assert (want == got).all()
        for chosen in actions:
            *want, _ = theirs.step(chosen)
            got = ours.step(chosen)
            for array, name in zip(want, ("observation", "reward", "terminated", "truncated")):
                assert (array == got[name]).all() and array.dtype == got[name].dtype, name
            ended += got["terminated"].sum()
            kept = [*kept[-1:], (got["observation"], want[0].copy())]
            assert all((ours == theirs).all() for ours, theirs in kept)
        del got, kept
        ours.close()
        theirs.close()
        print(ended, "episodes ended")
"""


def test_environments_in_one_batch_do_what_gymnasiums_own_do(tmp_path):
    script = tmp_path / "same.py"
    script.write_text(SAME)
    assert re.fullmatch(r"\d\d episodes ended\n", run(str(script)))


def test_the_environments_run_under_a_policy():
    assert re.search(r"3 environments made \d+ steps/s, and \d+ episodes", run("examples/rl.py", "3", "300"))
