"""`ringbuf keygen`: keys, and what goes where."""

import pytest
from commands import command

pytest.importorskip("zmq", reason="pyzmq is not installed")


@pytest.fixture
def keys(tmp_path):
    return command("keygen", "keys", cwd=tmp_path)


def written(folder):
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}


def test_keys_are_written_for_their_owner_alone(keys, tmp_path):
    assert keys.returncode == 0 and keys.stderr == ""
    files = written(tmp_path)
    assert set(files) == {
        f"keys/{n}" for n in ("server.secret", "server.public", "client.secret", "clients/client.public")
    }
    assert set(files.values()) == {0o600}


def test_it_says_what_was_written_and_what_goes_where(keys, tmp_path):
    listed = [line.split()[0] for line in keys.stdout.split("\n\n")[0].splitlines()]
    assert sorted(listed) == sorted(written(tmp_path))
    assert 'keys="FOLDER"' in keys.stdout and "keys/server.public and keys/client.secret" in keys.stdout
    assert "--keys keys" in keys.stdout and "chmod 600" in keys.stdout


def test_no_secret_is_shown(keys, tmp_path):
    texts = [
        line.split('"')[1]
        for path in (tmp_path / "keys").glob("*.secret")
        for line in path.read_text().splitlines()
        if '"' in line
    ]
    assert len(texts) == 4 and not any(text in keys.stdout for text in texts)


def test_nothing_is_overwritten(keys, tmp_path):
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    again = command("keygen", "keys", cwd=tmp_path)
    assert again.returncode == 1 and again.stderr.count("\n") == 1 and "keys already" in again.stderr
    assert before == {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}


def test_one_more_client_gets_keys(keys, tmp_path):
    done = command("keygen", "keys", "--client", "trainer-b", cwd=tmp_path)
    assert done.returncode == 0 and {"keys/trainer-b.secret", "keys/clients/trainer-b.public"} <= set(written(tmp_path))
    assert "keys/server.public and keys/trainer-b.secret into one folder, the latter as client.secret" in done.stdout


def test_a_client_of_a_wrong_name_is_wrong_usage(keys, tmp_path):
    done = command("keygen", "keys", "--client", "../up", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_a_failure(tmp_path):
    (tmp_path / "file").write_text("")
    done = command("keygen", "file/keys", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
