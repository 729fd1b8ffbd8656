"""Places for connections: so many at once, and none kept by a client that says nothing.

When all places are taken, a new connection gets that of the oldest one whose request has not
arrived, whose client is hung up on. So slow or silent clients, however many, keep nobody out; what
is being answered is left alone, until the answers on their way are too many bytes: then the oldest
of them is given up for the newest. All that is given up is counted.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from sys import maxsize
from typing import Final

REASONS: Final = ("no_request", "displaced", "full", "unread", "crowded")
"""Why a connection was closed.

`no_request`: no whole request came in time, or its client left; `displaced`: it gave its place to a
newcomer before its request was there; `full`: all places were being answered; `unread`: its answer
was not read to the end in time; `crowded`: nor soon enough, where answers took too much memory.
"""


class Place:
    """One connection's place; `socket` is the plain one, or TLS on it."""

    __slots__ = ("evicted", "socket")

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.evicted = False

    def hang_up(self) -> None:
        """Wake whoever reads from it or writes to it; the socket is closed by them."""
        with contextlib.suppress(OSError):
            # Not the method of TLS: that is for the thread which uses it.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Places:
    """At most *count* places, whose answers are at most *most* bytes unless there is but one.

    Attributes:
        closed: Connections that were given up, by reason.
    """

    def __init__(self, count: int, most: int = maxsize) -> None:
        self.closed = Counter(dict.fromkeys(REASONS, 0))
        self._free = count
        self._most = most
        self._arriving: dict[Place, None] = {}  # the oldest first
        self._answers: dict[Place, int] = {}
        self._lock = threading.Lock()

    def enter(self, sock: socket.socket) -> Place | None:
        """Return a place for a connection; None if all others are being answered."""
        place = Place(sock)
        with self._lock:
            if self._free:
                self._free -= 1
            elif self._arriving:
                oldest = next(iter(self._arriving))
                del self._arriving[oldest]
                oldest.evicted = True
                oldest.hang_up()
                self.closed["displaced"] += 1
            else:
                self.closed["full"] += 1
                return None
            self._arriving[place] = None
        return place

    def arrived(self, place: Place) -> bool:
        """Hold its place for a request that is there; false if it has lost it."""
        with self._lock:
            self._arriving.pop(place, None)
            return not place.evicted

    @contextlib.contextmanager
    def answering(self, place: Place, size: int) -> Iterator[None]:
        """Hold an answer of *size* bytes while it is written; those in its way are given up."""
        with self._lock:
            self._answers[place] = size
            while len(self._answers) > 1 and sum(self._answers.values()) > self._most:
                oldest = next(iter(self._answers))
                del self._answers[oldest]
                oldest.hang_up()
                self.closed["crowded"] += 1
        yield
        with self._lock:
            self._answers.pop(place, None)

    def leave(self, place: Place) -> None:
        """Give a place back."""
        with self._lock:
            self.closed["no_request"] += place in self._arriving
            self.closed["unread"] += place in self._answers
            self._arriving.pop(place, None)
            self._answers.pop(place, None)
            self._free += not place.evicted
