"""The file: nodes, tokens and history in SQLite. Calls block: the service makes them in one thread, commands directly.

Readers do not wait for the writer (WAL), and a killed process loses nothing that it has confirmed.
"""

import fcntl
import itertools
import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import quote

from fjm2.base.quantities import counted

from ..errors import StoreError
from .look_alikes import looks_of
from .measures import STEP_S, Point
from .nodes import Profile
from .tokens import Scope, Token

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value NUMERIC NOT NULL) WITHOUT ROWID;
INSERT INTO settings VALUES ('list_version', 0), ('saved_at', 0);
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL, node TEXT, digest BLOB NOT NULL,
    created_at REAL NOT NULL, revoked_at REAL, used_at REAL
) WITHOUT ROWID;
CREATE TABLE nodes (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, public_key TEXT NOT NULL UNIQUE, endpoints TEXT NOT NULL,
    groups TEXT NOT NULL, lan TEXT, version TEXT NOT NULL, token_id TEXT NOT NULL, address TEXT NOT NULL,
    registered_at REAL NOT NULL, last_seen REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE history (
    step_s INTEGER NOT NULL, node_id TEXT NOT NULL, at INTEGER NOT NULL, in_bps REAL NOT NULL, out_bps REAL NOT NULL,
    drops_per_s REAL NOT NULL, loss REAL, rtt_ms REAL, queue_bytes INTEGER NOT NULL,
    PRIMARY KEY (step_s, node_id, at)
) WITHOUT ROWID;
CREATE INDEX history_by_age ON history (step_s, at);
"""
_BUSY_S = 5.0
"""Longest wait for another process that writes. Every write takes milliseconds."""
_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
"""Codes of errors that no second try ends."""


_CHECK_BUSY_S = 0.2
"""Longest wait of a check for another process that writes. A busy file is no fault."""
_FREE_BYTES_MIN = 1 << 20
"""Free space below which the disk counts as full. Some small writes still succeed, where the log has pages to use
again, while others fail."""


class Tier(NamedTuple):
    """Part of the history with slots of one length: that length, and the time for which slots are kept, in seconds."""

    step_s: int
    kept_s: int


TIERS = (Tier(STEP_S, 3_600), Tier(60, 86_400), Tier(900, 7 * 86_400))
"""Tiers from fine to coarse. Each coarser tier is made from the tier before it."""


@dataclass(frozen=True, slots=True)
class StoredNode:
    """A node as it is stored in the file."""

    profile: Profile
    token_id: str
    address: str
    registered_at: float
    last_seen: float


class Seen(NamedTuple):
    """Time and address of a node's last request, with the id of the node."""

    last_seen: float
    address: str
    node_id: str


class Lock:
    """Lock that keeps a second service from using the same file."""

    def __init__(self, path: Path) -> None:
        # Links to the same file share one lock.
        path = path.resolve()
        self._path = path.with_name(path.name + ".lock")
        self._file: IO[bytes] | None = None

    def __enter__(self) -> None:
        try:
            self._file = self._path.open("wb")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.__exit__()
            raise StoreError(f"{self._path}: another fjm2admin runs with this file") from None
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}") from error

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


class Store:
    """A connection to the SQLite file."""

    def __init__(self, path: Path, must_exist: bool = False) -> None:
        """Open the file. Make it if it is missing, unless it must exist. Raise StoreError if it cannot be opened."""
        self.path = path
        if must_exist and not path.exists():
            raise StoreError(f"{path}: no such file; fjm2admin run creates it, --data or FJM2ADMIN_DATA names another")
        with self._errors():
            # Only the owner may read the hashes of tokens. SQLite gives its other files the same mode.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            self._identity = _identity_of(os.fstat(descriptor))
            os.close(descriptor)
            self._connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._make_schema()

    def _make_schema(self) -> None:
        with self._changing():
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version > _SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path}: made by a newer fjm2admin (schema {version}; this one knows up to {_SCHEMA_VERSION})"
                )
            if version == 0:
                for statement in _SCHEMA.split(";\n"):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    def close(self) -> None:
        """Close the connection."""
        with self._errors():
            self._connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            reason = str(error.strerror if isinstance(error, OSError) else error)
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
                reason += "; put a copy in its place, or move it away to begin with an empty list and new tokens"
            raise StoreError(f"{self.path}: {reason}") from error

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Run a transaction: write all of its changes, or none."""
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise

    def check(self) -> None:
        """Read the file and its log as another process would, with nothing in memory.

        Raise StoreError if they cannot be read, if another file has taken the place of this one, or if the disk is
        nearly full.
        """
        with self._errors():
            if _identity_of(os.stat(self.path)) != self._identity:
                raise StoreError(f"{self.path}: is another file than the one that was opened: restart fjm2admin")
            # SQLite opens the file: to close a descriptor of ours would drop SQLite's locks in this process.
            uri = f"file:{quote(str(self.path.absolute()))}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=_CHECK_BUSY_S)) as connection:
                try:
                    for table in ("settings", "tokens", "nodes"):
                        connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchone()
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                        raise
            free = shutil.disk_usage(self.path.parent).free
            if free < _FREE_BYTES_MIN:
                raise StoreError(f"{self.path}: its disk has {counted(free, 'byte')} left: make room")

    def changes_by_others(self) -> int:
        """Return a number that changes when another process changes the file."""
        with self._errors():
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(version)

    def tokens(self) -> list[Token]:
        """Return all tokens, revoked ones included, oldest first."""
        with self._errors():
            rows = self._connection.execute("SELECT * FROM tokens ORDER BY created_at").fetchall()
        try:
            return [Token(row[0], row[1], Scope(row[2]), *row[3:]) for row in rows]
        except ValueError as error:
            raise StoreError(f"{self.path}: a token has a scope that this fjm2admin does not know: {error}") from error

    def add_token(self, token: Token) -> None:
        """Add a token. Raise StoreError if a live token has the same name."""
        with self._changing():
            rows = self._connection.execute("SELECT name FROM tokens WHERE revoked_at IS NULL ORDER BY name")
            taken = sorted((name for (name,) in rows if looks_of(name) & looks_of(token.name)), key=token.name.__ne__)
            if taken:
                alike = "" if taken[0] == token.name else f", which looks like {token.name!r}"
                raise StoreError(
                    f"there is a token named {taken[0]!r}{alike}: choose another name, or revoke that one first"
                )
            row = (token.id, token.name, token.scope.value, token.node, token.digest, token.created_at, None, None)
            self._connection.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def revoke_token(self, name: str, now: float) -> bool:
        """Revoke the live token with this name or id. Return False if there is none."""
        with self._changing():
            cursor = self._connection.execute(
                "UPDATE tokens SET revoked_at = ? WHERE revoked_at IS NULL AND (name = ? OR id = ?)", (now, name, name)
            )
        return cursor.rowcount > 0

    def nodes(self) -> list[StoredNode]:
        """Return all nodes, sorted by name."""
        with self._errors():
            rows = self._connection.execute("SELECT * FROM nodes ORDER BY name").fetchall()
        return [StoredNode(_profile(row), *row[7:]) for row in rows]

    def node_ids(self) -> set[str]:
        """Return the ids of all nodes."""
        with self._errors():
            return {row[0] for row in self._connection.execute("SELECT id FROM nodes")}

    def save_node(self, node: StoredNode) -> None:
        """Add a node, in place of any node with the same id, name or public key.

        Raise StoreError also if the next process would not find it: SQLite itself writes to a damaged file for a while.
        """
        self.check()
        profile = node.profile
        row = (
            profile.id,
            profile.name,
            profile.public_key,
            json.dumps(profile.endpoints),
            json.dumps(profile.groups),
            profile.lan,
            profile.version,
            node.token_id,
            node.address,
            node.registered_at,
            node.last_seen,
        )
        with self._changing():
            self._connection.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def remove_nodes(self, node_ids: Iterable[str]) -> int:
        """Remove nodes and their history. Return the number of nodes removed."""
        ids = [(node_id,) for node_id in node_ids]
        with self._changing():
            removed = self._connection.executemany("DELETE FROM nodes WHERE id = ?", ids).rowcount
            for tier in TIERS:
                self._connection.executemany(f"DELETE FROM history WHERE step_s = {tier.step_s} AND node_id = ?", ids)
        return removed

    def list_version(self) -> int:
        """Return the last stored version of the list."""
        return int(self._value("list_version"))

    def saved_at(self) -> float:
        """Return the wall-clock time at which the last batch was saved."""
        return self._value("saved_at")

    def _value(self, name: str) -> float:
        with self._errors():
            row: tuple[float] = self._connection.execute(
                "SELECT value FROM settings WHERE name = ?", (name,)
            ).fetchone()
        return row[0]

    def save_batch(
        self,
        seen: Iterable[Seen],
        points: Iterable[tuple[str, Point]],
        used: Iterable[tuple[float, str]],
        list_version: int,
        now: float,
    ) -> None:
        """Save a batch: last requests of nodes, slots of history, last uses of tokens, and the version of the list."""
        rows = [(STEP_S, node_id, *point) for node_id, point in points]
        with self._changing():
            execute = self._connection.executemany
            execute("UPDATE nodes SET last_seen = ?, address = ? WHERE id = ?", seen)
            execute("INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            execute("UPDATE tokens SET used_at = ? WHERE id = ?", used)
            settings = [(list_version, "list_version"), (now, "saved_at")]
            execute("UPDATE settings SET value = ? WHERE name = ?", settings)

    def history(self, node_id: str, tier: Tier, since: int) -> list[Point]:
        """Return a node's slots of history in a tier, from the time `since` on."""
        with self._errors():
            rows = self._connection.execute(
                "SELECT at, in_bps, out_bps, drops_per_s, loss, rtt_ms, queue_bytes FROM history"
                " WHERE step_s = ? AND node_id = ? AND at >= ? ORDER BY at",
                (tier.step_s, node_id, since),
            ).fetchall()
        return [Point(*row) for row in rows]

    def thin_out(self, now: float) -> None:
        """Make the coarser tiers from the finer ones, and delete slots that are older than their tier keeps."""
        with self._changing():
            # A clock that was set back leaves slots in the future, which would keep `_condense` from making new ones.
            self._connection.executemany(
                "DELETE FROM history WHERE step_s = ? AND at > ?", [(tier.step_s, int(now)) for tier in TIERS]
            )
            for fine, coarse in itertools.pairwise(TIERS):
                self._condense(fine, coarse)
            for tier in TIERS:
                self._connection.execute(
                    "DELETE FROM history WHERE step_s = ? AND at < ?", (tier.step_s, int(now) - tier.kept_s)
                )

    def _condense(self, fine: Tier, coarse: Tier) -> None:
        """Make coarse slots from fine ones, and make the latest ones again: they may have been made incomplete."""
        query = "SELECT coalesce(max(at), 0) FROM history WHERE step_s = ?"
        (last,) = self._connection.execute(query, (coarse.step_s,)).fetchone()
        since = last - coarse.step_s
        self._connection.execute(
            "INSERT OR REPLACE INTO history"
            " SELECT :coarse, node_id, at / :coarse * :coarse AS slot, avg(in_bps), avg(out_bps), avg(drops_per_s),"
            " max(loss), max(rtt_ms), max(queue_bytes)"
            " FROM history WHERE step_s = :fine AND at >= :since GROUP BY node_id, slot",
            {"fine": fine.step_s, "coarse": coarse.step_s, "since": since},
        )


def _identity_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _profile(row: tuple[Any, ...]) -> Profile:
    node_id, name, public_key, endpoints, groups, lan, version = row[:7]
    return Profile(node_id, name, public_key, tuple(json.loads(endpoints)), tuple(json.loads(groups)), lan, version)
