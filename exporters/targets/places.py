"""Places for connections: so many at once, and none kept by a client that says nothing.

When all places are taken, a new connection gets that of the oldest one whose request has not
arrived, whose client is hung up on. So slow or silent clients, however many, keep nobody out; what
is being answered is left alone.
"""

from __future__ import annotations

import contextlib
import socket
import threading


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
    """At most *count* places."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._arriving: dict[Place, None] = {}  # the oldest first
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
            else:
                return None
            self._arriving[place] = None
        return place

    def arrived(self, place: Place) -> bool:
        """Hold its place for a request that is there; false if it has lost it."""
        with self._lock:
            self._arriving.pop(place, None)
            return not place.evicted

    def leave(self, place: Place) -> None:
        """Give a place back."""
        with self._lock:
            self._arriving.pop(place, None)
            self._free += not place.evicted
