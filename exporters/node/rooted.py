"""A file of another container, read through /proc/<pid>/root without leaving that root.

The kernel follows an absolute link below /proc/<pid>/root to *our* root: a container could so have
us read a file of the host for it. Links are therefore followed here, one name at a time.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Final

MAX_LINKS: Final = 16
_STEP: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def read(root: Path, path: PurePosixPath, limit: int) -> bytes:
    """Return a regular file's bytes, *path* being absolute below *root*.

    Raises:
        OSError: It isn't there, isn't a regular file, is larger than *limit*, or links in circles.
    """
    fd = _open(root, _resolve(root, path))
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "is no regular file")
        data = b""
        while len(data) <= limit and (more := os.read(fd, limit + 1 - len(data))):
            data += more
    finally:
        os.close(fd)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"is larger than {limit} bytes")
    return data


def _resolve(root: Path, path: PurePosixPath) -> list[str]:
    """Return the names below *root* that *path* comes to once every link is followed."""
    left = list(reversed(path.parts))
    names: list[str] = []
    links = 0
    while left:
        name = left.pop()
        if name == "/":
            names = []
        elif name == "..":
            names = names[:-1]
        else:
            try:
                target = root.joinpath(*names, name).readlink()
            except OSError:
                names.append(name)  # no link, or not there: opening it says so
                continue
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, "too many links")
            left.extend(reversed(target.parts))
    return names


def _open(root: Path, names: list[str]) -> int:
    """Open a file by names none of which may be a link any more."""
    fd = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    for name in names:
        try:
            inner = os.open(name, _STEP, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd
