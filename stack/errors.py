"""What can go wrong with programs, each one line for the person at the terminal.

StackError
├── MissingProgramError  not on PATH, not in the cache, not to be had from the distribution
├── ProgramDiedError     ended before or while it was needed
└── NotReadyError        runs, but did not answer in time
"""


class StackError(Exception):
    """A program could not be found, started or kept running; the message is one line."""


class MissingProgramError(StackError):
    """A program is neither installed nor to be had; the message says what to install."""


class ProgramDiedError(StackError):
    """A program ended by itself; the message names it, its status and its last words."""


class NotReadyError(StackError):
    """A program runs but did not become ready before its deadline."""
