"""Tests of key pairs, their text form and their files."""

import base64
import os
import stat
from pathlib import Path

import pytest

from fjm2d.errors import ConfigurationError, ConfigurationErrors, KeyFileError, KeyTextError
from fjm2d.keys import KeyPair, PublicKey


def test_a_key_pair_survives_saving_and_loading(tmp_path: Path) -> None:
    keys, path = KeyPair.generate(), tmp_path / "key"
    before = os.umask(0)
    try:
        keys.save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "whatever the umask"
    loaded = KeyPair.load(path)
    assert loaded.public == keys.public
    other = KeyPair.generate()
    assert loaded.exchange(other.public) == other.exchange(keys.public)


def test_a_key_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key"
    KeyPair.generate().save(path)
    before = path.read_bytes()
    with pytest.raises(KeyFileError, match="not overwritten"):
        KeyPair.generate().save(path)
    assert path.read_bytes() == before


def test_a_key_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KeyFileError):
        KeyPair.generate().save(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o610])
def test_a_key_file_that_others_can_access_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    KeyPair.generate().save(path)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=rf"{path}: mode 0{mode:o} .*chmod 600 {path}"):
        KeyPair.load(path)


@pytest.mark.parametrize("content", [b"", b"no key", base64.b64encode(bytes(31)), b"\xff" * 44, b"A" * 100_000])
def test_a_file_without_a_key_says_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match=r"holds no private key; make one with `fjm2d keygen`"):
        KeyPair.load(path)


def test_missing_files_and_directories_are_explained(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="no such file; make one"):
        KeyPair.load(tmp_path / "key")
    with pytest.raises(KeyFileError, match="is not a regular file"):
        KeyPair.load(tmp_path)
    with pytest.raises(KeyFileError, match="No such file"):
        KeyPair.generate().save(tmp_path / "no" / "key")


def test_public_keys_as_text() -> None:
    keys = KeyPair(b"\7" * 32)
    key = PublicKey.from_text(f" {keys.public.text}\n")
    assert key == keys.public
    assert hash(key) == hash(keys.public)
    assert key.id_text == f"{key.id:08x}"
    assert key.fingerprint.replace(" ", "").startswith(key.id_text)
    assert len(key.text) == 44


@pytest.mark.parametrize(
    "text", ["", "x", "é", base64.b64encode(bytes(31)).decode(), base64.b64encode(bytes(33)).decode(), "A" * 43]
)
def test_text_that_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(KeyTextError, match="expected 32 bytes in base64"):
        PublicKey.from_text(text)


@pytest.mark.parametrize("first", [0, 1])
def test_keys_that_give_everyone_the_same_secret_are_refused(first: int) -> None:
    with pytest.raises(KeyTextError, match="same secret"):
        PublicKey.from_text(base64.b64encode(bytes([first]) + bytes(31)).decode())


def test_errors_name_the_setting_to_change() -> None:
    errors = [ConfigurationError("/etc/fjm2d.toml", f"peers[{n}].rate", "'fast'", "a number") for n in range(2)]
    assert str(errors[0]) == "/etc/fjm2d.toml: peers[0].rate: 'fast'; allowed: a number"
    assert str(ConfigurationErrors(errors)).splitlines() == [str(error) for error in errors]
    assert (errors[0].file, errors[0].key, errors[0].allowed) == ("/etc/fjm2d.toml", "peers[0].rate", "a number")
