"""The ledger: what was found and what was said about it, in SQLite; survives kill -9.

What is about to be notified is written first, so a service that is killed between the two says the
same again (Alertmanager takes it for the same alert) and loses nothing. When the disk fails, the
service goes on from memory and says so.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from catalog.plain import plain
from detectors.service.incident import Incident
from detectors.service.track import KEPT, Tracked

log = logging.getLogger("leadline.service")

T = TypeVar("T")

SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS findings (
  id TEXT PRIMARY KEY, state TEXT NOT NULL, as_of REAL NOT NULL, data TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS incidents (
  id TEXT PRIMARY KEY, state TEXT NOT NULL, opened REAL NOT NULL, data TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS history (
  at REAL NOT NULL, incident TEXT NOT NULL, finding TEXT NOT NULL, what TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS history_of ON history (incident, at);
"""


class LedgerError(Exception):
    """The ledger can't be opened; one line with the remedy."""


@dataclass(frozen=True)
class Event:
    """One line of an incident's history."""

    at: float
    incident: str
    finding: str
    what: str


class Ledger:
    """Findings, incidents and their history in one SQLite file."""

    def __init__(self, folder: Path) -> None:
        """Open or create the ledger in *folder*.

        Raises:
            LedgerError: It can't be opened or is of another version.
        """
        self.path = folder / "ledger.sqlite3"
        self.error = ""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # One writer thread; readers get snapshots from memory.
            self._db = sqlite3.connect(self.path, timeout=5.0, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from None
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
            self._check_version()
        except (sqlite3.Error, LedgerError) as error:
            self.close()
            raise error if isinstance(error, LedgerError) else self._unusable(error) from None

    def _unusable(self, error: Exception) -> LedgerError:
        return LedgerError(
            f"ledger {self.path}: {error}; is the folder writable and the disk not full? "
            "choose another with --state DIR"
        )

    def _check_version(self) -> None:
        row = self._db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
        if row is None:
            with self._db:
                self._db.execute("INSERT INTO meta VALUES ('schema', ?)", (str(SCHEMA_VERSION),))
        elif row[0] != str(SCHEMA_VERSION):
            raise LedgerError(
                f"ledger {self.path}: written by another version (schema {row[0]}, this one reads "
                f"{SCHEMA_VERSION}); choose another folder with --state DIR"
            )

    def findings(self) -> dict[str, Tracked]:
        """Return every finding that is kept, by id; a row that can't be read is left out."""
        return dict(self._read("findings", Tracked.from_dict))

    def incidents(self) -> list[Incident]:
        """Return every incident that is kept; a row that can't be read is left out."""
        return [incident for _, incident in self._read("incidents", Incident.from_dict)]

    def _read(self, table: str, made: Callable[[dict[str, Any]], T]) -> Iterator[tuple[str, T]]:
        """Yield what a table holds, by id.

        Raises:
            LedgerError: The file is damaged.
        """
        try:
            rows = self._db.execute(f"SELECT id, data FROM {table}").fetchall()  # noqa: S608 - ours
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        for key, data in rows:
            try:
                one = made(json.loads(data))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                reason = plain(f"{type(error).__name__}: {error}")[:200]
                log.warning(
                    "ledger %s: %s: row %.80r can't be read and is left out (%s)",
                    self.path, table, key, reason,
                )  # fmt: skip
                continue
            yield key, one

    def events(self) -> list[Event]:
        """Return the kept history, oldest first."""
        try:
            rows = self._db.execute("SELECT at, incident, finding, what FROM history ORDER BY at")
            return [Event(*row) for row in rows.fetchall()]
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def save(
        self, tracked: Iterable[Tracked], incidents: Iterable[Incident], events: Iterable[Event],
        now: float,
    ) -> bool:  # fmt: skip
        """Write all in one transaction; return whether it is on disk.

        A failure is logged when it begins and kept in `error` until a write succeeds again.
        """
        found = [
            (t.finding.id, t.finding.state, t.finding.as_of, json.dumps(t.to_dict()))
            for t in tracked
        ]
        opened = [(i.id, i.state, i.opened, json.dumps(i.to_dict())) for i in incidents]
        try:
            with self._db:
                self._db.executemany("INSERT OR REPLACE INTO findings VALUES (?, ?, ?, ?)", found)
                self._db.executemany("INSERT OR REPLACE INTO incidents VALUES (?, ?, ?, ?)", opened)
                self._db.executemany(
                    "INSERT INTO history VALUES (?, ?, ?, ?)",
                    [(e.at, e.incident, e.finding, e.what) for e in events],
                )
                self._prune(now)
        except sqlite3.Error as error:
            if not self.error:
                log.error("ledger %s: %s; going on from memory", self.path, error)
            self.error = str(error)
            return False
        if self.error:
            log.warning("ledger %s: writes succeed again", self.path)
        self.error = ""
        return True

    def _prune(self, now: float) -> None:
        old = now - KEPT
        self._db.execute("DELETE FROM findings WHERE state = 'ended' AND as_of < ?", (old,))
        self._db.execute("DELETE FROM incidents WHERE state = 'ended' AND opened < ?", (old,))
        self._db.execute("DELETE FROM history WHERE at < ?", (old,))

    def close(self) -> None:
        """Close the file."""
        self._db.close()
