"""Encrypted connections: nothing travels in the open, and whoever has no certificate of the run is told so at once."""

import contextlib
import datetime
import socket
import ssl
import sys
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from weft.errors import ClusterError, ConfigError
from weft.exchange import World, listener
from weft.exchange.encryption import Encryption, certificate_of
from weft.exchange.listener import PeerListener, connect, listening_at

SECRET, OTHER, ADDRESS = b"a secret of these tests", b"another secret of some run", b"where worker 0 is"
OF_SECRET, OF_OTHER = (Encryption.of("secret", secret) for secret in (SECRET, OTHER))


@contextlib.contextmanager
def listening(encryption):
    """A worker 0 that listens, and where."""
    door = listening_at("127.0.0.1")
    one = PeerListener(0, SECRET, door, ADDRESS, encryption)
    try:
        yield one, door.getsockname()
    finally:
        one.close()


def arrive(place, encryption, timeout=5.0):
    return connect(1, 0, 1, SECRET, ADDRESS, place, timeout, encryption)


def lets_in(one, place, encryption):
    """Does who listens let a worker of the run in?"""
    with arrive(place, encryption) as theirs, one.take(1, 1, 5.0) as mine:
        theirs.sendall(b"rows")
        mine.settimeout(5)
        return mine.recv(4) == b"rows"


def made(issuer=None, password=None):
    """A key and its certificate, by an authority or by itself; and both as PEM."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a host" if issuer else "an authority")])
    by, of = issuer or (key, name)
    wanted = x509.CertificateBuilder().subject_name(name).issuer_name(of).public_key(key.public_key())
    wanted = wanted.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(1))
    wanted = wanted.not_valid_after(now + datetime.timedelta(1))
    wanted = wanted.add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    kept = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, kept)
    public = wanted.sign(by, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return (key, name), private, public


def test_the_secrets_certificate_is_the_same_everywhere():
    assert certificate_of(SECRET) == certificate_of(SECRET) != certificate_of(OTHER)
    assert SECRET not in certificate_of(SECRET)


def test_workers_of_one_secret_let_each_other_in():
    with listening(OF_SECRET) as (one, place):
        assert lets_in(one, place, Encryption.of("secret", SECRET))


def test_certificates_of_one_authority_let_each_other_in(tmp_path, capfd):
    authority, _, trusted = made()
    stranger, _, _ = made()
    mine, theirs, others = tmp_path / "mine.pem", tmp_path / "theirs.pem", tmp_path / "others.pem"
    for file, issuer in ((mine, authority), (theirs, authority), (others, stranger)):
        file.write_bytes(b"".join([*made(issuer)[1:], trusted]))
    with listening(Encryption.of(str(mine), None)) as (one, place):
        assert lets_in(one, place, Encryption.of(str(theirs), None))
        with pytest.raises(ClusterError, match="could not agree on encryption"):
            arrive(place, Encryption.of(str(others), None))
        assert one.take(1, 1, 0.01) is None
    assert "worker 0 turned away a connection from 127.0.0.1: no encryption was agreed on: " in capfd.readouterr().err


def test_another_certificate_is_refused_in_a_sentence(capfd):
    with listening(OF_SECRET) as (one, place):
        with pytest.raises(
            ClusterError, match=r"worker 1 and what listens at .* could not agree on encryption \(.*self.signed"
        ):
            arrive(place, OF_OTHER)
        assert one.take(1, 1, 0.01) is None
        assert lets_in(one, place, OF_SECRET)
    told = capfd.readouterr().err.splitlines()
    assert len(told) == 1 and "no encryption was agreed on: " in told[0]


def test_no_certificate_is_refused(capfd):
    naive = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    naive.check_hostname, naive.verify_mode = False, ssl.CERT_NONE
    with listening(OF_SECRET) as (one, place):
        with pytest.raises(ssl.SSLError, match="certificate required"), socket.create_connection(place, 5) as plain:
            naive.wrap_socket(plain).recv(1)
        assert lets_in(one, place, OF_SECRET)
    assert "no encryption was agreed on: peer did not return a certificate" in capfd.readouterr().err


def test_older_tls_is_refused(capfd):
    with listening(OF_SECRET) as (_, place), socket.create_connection(place, 5) as plain:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode, old.maximum_version = False, ssl.CERT_NONE, ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError):
            old.wrap_socket(plain)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n" * 9, bytes(listener._HELLO.size)])
def test_what_is_not_tls_is_turned_away_at_once(said, capfd):
    with listening(OF_SECRET) as (one, place):
        with socket.create_connection(place, 3) as stranger:
            stranger.sendall(said)
            with contextlib.suppress(ConnectionError):
                while stranger.recv(100):
                    pass
        assert lets_in(one, place, OF_SECRET)
    assert "turned away a connection from 127.0.0.1: no encryption was agreed on: " in capfd.readouterr().err


@pytest.mark.parametrize(("mine", "theirs"), [(OF_SECRET, None), (None, OF_SECRET)])
def test_one_that_encrypts_and_one_that_does_not_part(mine, theirs, monkeypatch, capfd):
    monkeypatch.setattr(listener, "_PATIENCE", 0.3)
    with listening(mine) as (one, place):
        with pytest.raises(ClusterError, match=r"could not (prove to each other|agree on encryption)"):
            arrive(place, theirs)
        assert lets_in(one, place, mine)
    assert "worker 0 turned away a connection from 127.0.0.1: it " in capfd.readouterr().err


def test_silent_strangers_hold_up_nobody(monkeypatch):
    monkeypatch.setattr(listener, "_PATIENCE", 0.3)
    with listening(OF_SECRET) as (one, place), contextlib.ExitStack() as opened:
        strangers = [opened.enter_context(socket.create_connection(place, 5)) for _ in range(20)]
        strangers[0].sendall(b"\x16\x03\x01")  # TLS that stops in its first bytes
        assert lets_in(one, place, OF_SECRET)
        for stranger in strangers:
            with contextlib.suppress(ConnectionError):
                assert not stranger.recv(1)


@pytest.mark.parametrize("encryption", [None, OF_SECRET])
def test_what_travels_can_not_be_read(encryption):
    seen, rows = [], b"rows that nobody else should see" * 50

    def overhear(from_, to):
        with contextlib.suppress(OSError):
            while more := from_.recv(1 << 16):
                seen.append(more)
                to.sendall(more)
            to.shutdown(socket.SHUT_WR)

    with listening(encryption) as (one, place), socket.create_server(("127.0.0.1", 0)) as door:

        def between():
            with door.accept()[0] as theirs, socket.create_connection(place) as ours:
                back = threading.Thread(target=overhear, args=(ours, theirs))
                back.start()
                overhear(theirs, ours)
                back.join()

        listens = threading.Thread(target=between)
        listens.start()
        with arrive(door.getsockname(), encryption) as theirs, one.take(1, 1, 5.0) as mine:
            theirs.sendall(rows)
            mine.settimeout(5)
            got = b""
            while len(got) < len(rows):
                got += mine.recv(len(rows))
        listens.join()
    assert got == rows
    assert (rows[:100] in b"".join(seen)) == (encryption is None)


def test_files_that_will_not_do_are_refused(tmp_path):
    (_, private, public), locked = made(), made(password=b"a password")
    bad = {"key": private, "certificate": public, "garbage": b"garbage", "locked": locked[1] + locked[2]}
    bad["of another"] = private + made()[2]
    for name, text in bad.items():
        (tmp_path / name).write_bytes(text)
    for name in (*bad, "missing"):
        with pytest.raises(ConfigError, match=r"tls = '.*' is no certificate that can be used \(.*\): name a PEM file"):
            Encryption.of(str(tmp_path / name), None)


def test_a_secret_that_would_travel_in_the_open_is_refused(monkeypatch):
    assert Encryption.of(None, None) is None
    with pytest.raises(ConfigError, match=r"needs a secret that does not travel in the open: .* WEFT_SECRET_FILE"):
        Encryption.of("secret", None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match=r"needs the package cryptography: pip install 'weft-gnn\[tls\]'"):
        Encryption.of("secret", SECRET)


def test_rows_that_go_in_the_open_are_refused(monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_PORT": "1", "WEFT_SECRET": SECRET.decode()}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"go by torch.distributed in the open \(cpu:gloo\): set device"):
        World.join(5.0, tls="secret", transport="gloo")
