"""Keys: who is let in, who is not, and what the wire shows."""

import os
import shutil

import numpy as np
import pytest
import zmq
from processes import eventually

import ringbuf
from ringbuf.net import keys

SOURCE = [np.arange(9)]
MARKER = b"this is a secret of the server's, "


@pytest.fixture
def folder(tmp_path):
    keys.generate(tmp_path / "keys")
    return tmp_path / "keys"


@pytest.fixture
def client_folder(folder, tmp_path):
    """What a client's machine gets."""
    there = tmp_path / "client"
    there.mkdir(0o700)
    for name in ("server.public", "client.secret"):
        shutil.copy2(folder / name, there)
    return there


def test_generate_makes_private_files_and_overwrites_none(tmp_path):
    folder = tmp_path / "new" / "keys"
    old = os.umask(0)
    try:
        files = keys.generate(folder)
    finally:
        os.umask(old)
    assert [str(path.relative_to(folder)) for path in files] == [
        "server.secret",
        "server.public",
        "client.secret",
        "clients/client.public",
    ]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    assert {path.stat().st_mode & 0o777 for path in (folder, folder / "clients")} == {0o700}
    before = [path.read_bytes() for path in files]
    files[0].unlink()
    with pytest.raises(FileExistsError, match="there are keys already"):
        keys.generate(folder)
    assert [path.read_bytes() for path in files[1:]] == before[1:]


def test_more_clients_can_be_added(folder, tmp_path, serve, connect):
    secret, public = keys.add_client(folder, "second")
    assert (secret.name, public.name) == ("second.secret", "second.public")
    there = tmp_path / "second"
    there.mkdir()
    shutil.copy2(secret, there / "client.secret")
    shutil.copy2(folder / "server.public", there)
    server = serve(SOURCE, bind="tcp://127.0.0.1:0", keys=folder, epochs=1)
    assert len(list(connect(server.address, keys=there))) == 1
    with pytest.raises(FileExistsError, match="second"):
        keys.add_client(folder, "second")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o622])
@pytest.mark.parametrize(("name", "load"), [("server.secret", keys.load_server), ("client.secret", keys.load_client)])
def test_secrets_that_others_can_read_are_refused(folder, name, load, mode):
    path = folder / name
    path.chmod(mode)
    with pytest.raises(PermissionError, match=f"mode {mode:04o}.*chmod 600 {path}"):
        load(folder)


def test_an_allow_list_that_others_can_change_is_refused(folder):
    (folder / "clients").chmod(0o777)
    with pytest.raises(PermissionError, match=f"changed by others.*chmod 700 {folder / 'clients'}"):
        keys.load_server(folder)


@pytest.mark.parametrize("text", ["", "curve\n", 'public-key = "short"', f'public-key = "{"~" * 40}"', "\xff"])
def test_what_is_no_key_is_refused(folder, text):
    (folder / "server.public").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"server\.public"):
        keys.load_client(folder)


def test_missing_keys_are_named(folder):
    (folder / "client.secret").unlink()
    with pytest.raises(FileNotFoundError, match=r"client\.secret.*ringbuf keygen"):
        ringbuf.connect("tcp://127.0.0.1:1", keys=folder, timeout=1)
    (folder / "clients" / "client.public").unlink()
    with pytest.raises(ValueError, match="no client is allowed"):
        keys.load_server(folder)


@pytest.mark.parametrize("compress", [None, "zstd"])
def test_batches_with_keys_are_the_same(serve, connect, folder, client_folder, compress):
    server = serve([np.arange(1_000_000)] * 3, bind="tcp://0.0.0.0:0", keys=folder, epochs=1, compress=compress)
    stream = connect(server.address.replace("0.0.0.0", "127.0.0.1"), keys=client_folder)
    assert sum((batch == np.arange(1_000_000)).all() for batch in stream) == 3


def test_a_client_without_keys_is_told_so(serve, folder):
    server = serve(SOURCE, keys=folder)
    with pytest.raises(PermissionError, match=r"asks? for keys"):
        ringbuf.connect(server.address, timeout=10)
    assert eventually(lambda: server.stats()["refused"] >= 1) and not server.stats()["clients"]


def test_a_server_without_keys_is_not_trusted_by_a_client_with(serve, client_folder):
    server = serve(SOURCE)
    with pytest.raises(PermissionError, match=r"was (it )?started with"):
        ringbuf.connect(server.address, keys=client_folder, timeout=10)
    assert eventually(lambda: server.stats()["refused"] >= 1)


def test_a_client_that_is_not_in_the_list_is_told_so(serve, folder, client_folder):
    (folder / "clients" / "client.public").unlink()
    keys.add_client(folder, "other")
    server = serve(SOURCE, keys=folder)
    with pytest.raises(PermissionError, match="does not allow this client's key"):
        ringbuf.connect(server.address, keys=client_folder, timeout=10)
    assert eventually(lambda: server.stats()["refused"] >= 1) and not server.stats()["clients"]


def test_a_wrong_server_key_is_noticed(serve, folder, client_folder, tmp_path):
    keys.generate(tmp_path / "wrong")
    shutil.copy2(tmp_path / "wrong" / "server.public", client_folder)
    server = serve(SOURCE, keys=folder)
    with pytest.raises(PermissionError, match=r"is server\.public its key"):
        ringbuf.connect(server.address, keys=client_folder, timeout=20)
    assert eventually(lambda: server.stats()["refused"] >= 1)


@pytest.mark.parametrize("mechanism", ["null", "plain", "curve"])
def test_no_other_mechanism_gets_a_word_out_of_the_server(serve, folder, mechanism):
    server = serve(SOURCE, keys=folder)
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        if mechanism == "plain":
            dealer.plain_username, dealer.plain_password = b"admin", b"admin"
        elif mechanism == "curve":
            dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
            dealer.curve_serverkey = keys.load_client(folder).server
        dealer.connect(server.address)
        dealer.send(b"let me in")
        assert eventually(lambda: server.stats()["refused"] >= 1)
        assert not dealer.poll(50)


@pytest.mark.parametrize("with_keys", [True, False])
def test_with_keys_the_wire_shows_nothing(serve, connect, proxy, folder, client_folder, with_keys):
    batch = {"secret": np.frombuffer(MARKER * 2000, np.uint8), "text": MARKER.decode()}
    server = serve([batch] * 3, epochs=1, keys=folder if with_keys else None)
    between = proxy(server.address)
    stream = connect(between.address, keys=client_folder if with_keys else None, label="label-of-the-client")
    assert all(got["text"].encode() == MARKER for got in stream)
    shown = [bytes(marker) in between.seen for marker in (MARKER, b"label-of-the-client", b"rb-frame", b"rbuf")]
    assert shown == [not with_keys] * 4
    assert len(between.seen) > 3 * len(MARKER) * 2000


def test_sessions_with_keys_survive_cuts(serve, connect, proxy, folder, client_folder):
    server = serve(lambda: (np.full(100_000, index) for index in range(40)), epochs=1, keys=folder)
    between = proxy(server.address)
    got = []
    for batch in connect(between.address, keys=client_folder):
        got.append(int(batch[0]))
        if len(got) % 15 == 0:
            between.drop()
    assert got == list(range(40))
