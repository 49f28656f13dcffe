"""Every command: help, wrong usage in one line, exit codes, output that nobody reads."""

import os
import subprocess
import sys

import pytest
from commands import command, write_sources

import ringbuf
from ringbuf.cli import COMMANDS, main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    write_sources(folder)
    return folder


@pytest.fixture
def refused(folder, monkeypatch, capsys):
    """refused(*arguments, code=2) runs a command, here, and returns the one line that it says."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def run(*arguments, code=2):
        assert main(arguments) == code
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and err.endswith("\n"), err
        return err.rstrip()

    yield run
    for name in set(sys.modules) - before:
        if not name.startswith("ringbuf"):
            del sys.modules[name]


def test_a_process_ends_with_that_line_and_that_code(folder):
    done = command("serve", "sources:batch", "--name", "x", cwd=folder)
    line = "ringbuf serve: module 'sources' has no 'batch'; did you mean 'batches'?\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_and_the_exit_codes(name, folder):
    done = command(name, "--help", cwd=folder)
    assert done.returncode == 0 and done.stderr == ""
    assert f"examples:\n  ringbuf {name} " in done.stdout and "exit codes: 0 done" in done.stdout


def test_help_lists_the_commands(folder):
    done = command("--help", cwd=folder)
    assert done.returncode == 0 and all(f"\n    {name} " in done.stdout for name in COMMANDS)


def test_the_version(folder):
    assert command("--version", cwd=folder).stdout == f"ringbuf {ringbuf.__version__}\n"


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "COMMAND"),
        (["frob"], "invalid choice: 'frob'"),
        (["serve"], "MODULE:OBJECT"),
        (["keygen"], "DIR"),
        (["serve", "sources:batches", "--frob"], "--frob"),
    ],
)
def test_wrong_usage_is_one_line_that_names_the_help(arguments, words, refused):
    line = refused(*arguments)
    assert words in line and "--help`" in line


@pytest.mark.parametrize(
    "option, words",
    [
        ("--mode=both", "invalid choice: 'both'"),
        ("--epochs=0", "'0' is not a whole number from 1 on"),
        ("--epochs=x", "'x' is not a whole number"),
        ("--workers=-1", "'-1' is not a whole number from 0 on"),
        ("--ahead=1.5", "'1.5' is not a whole number"),
        ("--ahead=2000", "ahead must be 1 to 1024, got 2000"),
        ("--clients=0", "'0' is not a whole number"),
        ("--lag=soon", "'soon' is neither block, nor seconds such as 30s, nor a number of batches such as 5"),
        ("--lag=0s", "'0s' is neither"),
        ("--lag=-3", "'-3' is neither"),
        ("--lag=5", "mode='split'"),
        ("--compress=gzip", "invalid choice: 'gzip'"),
        ("--http=0.0.0.0:80", "open to other machines"),
        ("--http=here", "HOST:PORT"),
        ("--name=a/b", "name must be"),
        ("--name=", "name must be"),
    ],
)
def test_a_wrong_option_is_one_line(option, words, refused):
    assert words in refused("serve", "sources:batches", "--name", "cli-usage", option)


@pytest.mark.parametrize(
    "target, words",
    [
        ("sources", "'sources' is not MODULE:OBJECT"),
        (":batches", "is not MODULE:OBJECT"),
        ("sources:", "is not MODULE:OBJECT"),
        ("sources:a b", "is not MODULE:OBJECT"),
        ("sources.py:batches", "there is no module 'sources.py'"),
        ("nowhere.data:batches", "there is no module 'nowhere.data'"),
        ("package.nowhere:batches", "there is no module 'package.nowhere'"),
        ("sources:batch", "module 'sources' has no 'batch'; did you mean 'batches'?"),
        ("package.data:Box.batch", "has no 'Box.batch'"),
        ("raising:x", "importing 'raising' raised KeyError: 'the\\nkey'"),
        ("leaving:x", "importing 'leaving' raised SystemExit: 0"),
        ("wrong:x", "importing 'wrong' raised SyntaxError"),
        ("lacking:x", "importing 'lacking' raised ModuleNotFoundError: No module named 'not_installed_anywhere'"),
        ("sources:number", "sources:number is neither callable nor an iterable of batches, but int 3"),
        ("sources:nothing", "but NoneType None"),
        ("sources:text", "but str 'abc'"),
        (
            "sources:returns_nothing",
            "sources:returns_nothing() should return an iterable of batches, and returned NoneType",
        ),
        ("sources:returns_text", "and returned str 'abc'"),
        ("sources:needs", "sources:needs() raised TypeError: needs() missing 1 required positional argument"),
        ("sources:raises", "sources:raises() raised RuntimeError: no such disk at all"),
        ("sources:leaves", "sources:leaves() raised SystemExit: 7"),
    ],
)
def test_a_source_that_is_none_is_named_in_one_line(target, words, refused):
    assert words in refused("serve", target, "--name", "cli-usage")


def test_where_it_was_raised_is_told(refused):
    assert "sources.py:" in refused("serve", "sources:raises", "--name", "cli-usage")
    assert "raising.py:2)" in refused("serve", "raising:x", "--name", "cli-usage")
    line = refused("serve", "sources:make_wrongly", "--name", "cli-usage")
    assert "batch_size" in line and "sources.py:" in line  # where we were called, and not where in ours it was found


def test_workers_that_nobody_takes_are_refused(refused):
    line = refused("serve", "sources:batches", "--name", "cli-usage", "--workers", "2")
    assert "--workers 2: sources:batches is no RingLoader, and no callable with a parameter `workers`" in line


def test_a_server_needs_a_name_or_an_address(refused):
    assert "--name is missing" in refused("serve", "sources:batches")


def test_a_name_that_is_taken_is_a_failure(refused):
    with ringbuf.Server([1], f"cli-taken-{os.getpid()}") as server:
        assert "a server with this name is running" in refused(
            "serve", "sources:batches", "--name", server.name, code=1
        )


def test_a_port_that_is_taken_is_a_failure(refused):
    with ringbuf.Server([1], f"cli-port-{os.getpid()}", http="127.0.0.1:0") as server:
        where = server.http_address.removeprefix("http://")
        assert f"the status page cannot be at {where}" in refused(
            "serve", "sources:batches", "--name", "cli-usage", "--http", where, code=1
        )


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["--version"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_reads_is_no_error(arguments, unbuffered, folder):
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = command(*arguments, cwd=folder, capture_output=False, stdout=write, stderr=subprocess.PIPE, env=environment)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_output_that_cannot_be_written_is_told(folder):
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with open("/dev/full", "w") as full:
        done = command(
            "--version", cwd=folder, capture_output=False, stdout=full, stderr=subprocess.PIPE, env=environment
        )
    assert done.returncode == 1 and "could not be written: No space left" in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_descriptors_are_no_error(closed, folder):
    line = f"{sys.executable} -m ringbuf serve sources:batch --name x {closed}"
    done = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, timeout=50)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_the_installed_command_is_this_one():
    from importlib.metadata import entry_points

    found = [entry for entry in entry_points(group="console_scripts") if entry.name == "ringbuf"]
    assert [entry.load() for entry in found] == [main]
