"""Tests of TLS with real certificate files, which are replaced while the service runs."""

import contextlib
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from running import Admin, Gateway, run, until
from test_admin_limits import is_open

Pair = tuple[Path, Path]
"""Paths of a certificate and its key."""


@pytest.fixture
def make_pair(tmp_path: Path, require_tool: Callable[[str], str]) -> Callable[[str], Pair]:
    """Return a function that creates a certificate for this host, with its key, and returns both paths."""
    openssl = require_tool("openssl")
    form = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -addext subjectAltName=IP:127.0.0.1"
    )

    def make(name: str) -> Pair:
        certificate, key = tmp_path / f"{name}.pem", tmp_path / f"{name}-key.pem"
        words = [openssl, *form.split(), "-subj", f"/CN={name}", "-keyout", key, "-out", certificate]
        subprocess.run(words, check=True, capture_output=True)
        return certificate, key

    return make


@pytest.fixture
def used(make_pair: Callable[[str], Pair], tmp_path: Path) -> Pair:
    """Return the paths in the service's settings. The files are copies of the certificate `first` and its key."""
    files = tmp_path / "used.pem", tmp_path / "used-key.pem"
    for source, target in zip(make_pair("first"), files, strict=True):
        shutil.copy(source, target)
    return files


def served_by(admin: Admin) -> str:
    """Return the certificate that the service presents on a new connection, in PEM."""
    return ssl.get_server_certificate(("127.0.0.1", admin.port), timeout=10)


def events(admin: Admin, name: str) -> int:
    return sum(f'"event": "{name}"' in line for line in admin.lines)


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


def test_it_serves_tls_and_nothing_else(start: Callable[..., Admin], used: Pair, tmp_path: Path) -> None:
    certificate, key = used
    admin = start(certificate=certificate, certificate_key=key)
    assert admin.url.startswith("https://")
    assert httpx.get(f"{admin.url}/healthz", verify=trusting(certificate)).status_code == 200
    with socket.create_connection(("127.0.0.1", admin.port), timeout=10) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in plain.recv(100)
    swapped = run(tmp_path / "other.sqlite", "run", "--check", certificate=key, certificate_key=certificate)
    assert swapped.returncode == 2
    assert "expected PEM files that match" in swapped.stderr


def test_a_renewed_certificate_is_loaded_without_a_restart(
    start: Callable[..., Admin], used: Pair, make_pair: Callable[[str], Pair]
) -> None:
    certificate, key = used
    admin = start(certificate=certificate, certificate_key=key, log_format="json")
    assert served_by(admin) == certificate.read_text()
    with httpx.Client(base_url=admin.url, verify=trusting(certificate)) as before:
        assert before.get("/healthz").status_code == 200
        new_certificate, new_key = make_pair("second")
        shutil.copy(new_key, key)
        # The new key does not match the certificate, so the service keeps the old pair.
        until(lambda: events(admin, "certificate_refused") == 1, 10, "the half-written pair is told of")
        assert served_by(admin) != new_certificate.read_text()
        shutil.copy(new_certificate, certificate)
        until(lambda: served_by(admin) == new_certificate.read_text(), 10, "the new certificate is served")
        assert httpx.get(f"{admin.url}/healthz", verify=trusting(new_certificate)).status_code == 200
        # An open connection continues.
        assert before.get("/healthz").status_code == 200
    assert events(admin, "certificate_loaded") == 1


def test_a_certificate_moved_into_place_is_loaded_on_the_signal(
    start: Callable[..., Admin], used: Pair, make_pair: Callable[[str], Pair]
) -> None:
    certificate, key = used
    admin = start(certificate=certificate, certificate_key=key, log_format="json")
    new_certificate, new_key = make_pair("second")
    new_text = new_certificate.read_text()
    new_key.rename(key)
    new_certificate.rename(certificate)
    admin.process.send_signal(signal.SIGHUP)
    assert until(lambda: events(admin, "certificate_loaded") >= 1, 5, "loaded") < 1.5
    assert served_by(admin) == new_text
    for file in used:
        file.unlink()
    admin.process.send_signal(signal.SIGHUP)
    until(lambda: events(admin, "certificate_refused") >= 1, 5, "refused")
    assert "No such file" in admin.lines[-1]
    assert served_by(admin) == new_text


def test_connections_count_before_the_tls_handshake(start: Callable[..., Admin], used: Pair) -> None:
    certificate, key = used
    admin = start(certificate=certificate, certificate_key=key, connections_per_address=5)
    silent = [socket.create_connection(("127.0.0.1", admin.port)) for _ in range(8)]
    assert [is_open(connection) for connection in silent] == [True] * 5 + [False] * 3
    for connection in silent:
        connection.close()
    with httpx.Client(base_url=admin.url, verify=trusting(certificate)) as client:
        until(lambda: answers(client), 5, "room again")
        silent = [socket.create_connection(("127.0.0.1", admin.port)) for _ in range(4)]
        # Connections without a handshake delay neither other connections nor the shutdown.
        assert client.get("/healthz").status_code == 200
        code, took_s = admin.stop()
        assert (code, took_s < 4) == (0, True)
    for connection in silent:
        connection.close()


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_data_that_comes_with_the_end_of_the_handshake_is_read(start: Callable[..., Admin], used: Pair) -> None:
    certificate, key = used
    admin = start(certificate=certificate, certificate_key=key)
    context = trusting(certificate)
    for _ in range(20):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        end = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with socket.create_connection(("127.0.0.1", admin.port), timeout=10) as connection:
            while True:
                try:
                    end.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    connection.sendall(outgoing.read())
                    incoming.write(connection.recv(65_536))
            end.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            connection.sendall(outgoing.read())
            while True:
                incoming.write(connection.recv(65_536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    assert b" 200 OK" in end.read(100)
                    break


def test_without_tls_the_signal_changes_nothing(admin: Admin) -> None:
    admin.process.send_signal(signal.SIGHUP)
    until(lambda: events(admin, "nothing_to_reload") == 1, 5, "told")
    with Gateway(admin.url, admin.token("paris")) as gateway:
        assert gateway.register().status_code == 200
