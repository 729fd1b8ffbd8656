"""Starts a program that dies with its parent: `launch.py PARENT PROGRAM [ARGUMENT ...]`.

The kernel sends SIGKILL when the parent is gone, even by kill -9. Setting that in the child after
fork but before exec is unsafe in Python with threads, so this tiny program does it and then becomes
the program. Standard library only, and nothing of ours: it runs with `python -I -S`.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(argv: list[str]) -> int:
    """Tie this process to its parent, then become the program."""
    parent, program = int(argv[1]), argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        print(f"prctl failed: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
    if os.getppid() != parent:  # it died before the kernel knew
        return 1
    try:
        os.execvp(program[0], program)  # noqa: S606 (no shell is the point)
    except OSError as error:
        print(f"cannot run {program[0]}: {error.strerror}", file=sys.stderr)
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv))
