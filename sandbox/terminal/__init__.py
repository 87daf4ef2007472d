"""A terminal in which one is a person of the sandbox: a screen, or lines where there is none."""

import sys
from collections.abc import Sequence
from io import TextIOWrapper

from sandbox.slack import SlackSandbox
from sandbox.terminal.app import Terminal
from sandbox.terminal.lines import read_lines, run_lines
from sandbox.terminal.slack import SlackPlatform

__all__ = ["run_terminal"]


async def run_terminal(slack: SlackSandbox, *, notices: Sequence[str]) -> None:
    """Let a person speak in the sandbox until he leaves (Ctrl-C, Ctrl-D, `/quit`).

    On a terminal this is a screen. Where the input or an output is none (a pipe, CI), each line of the
    input is said, each change is written as one line, and the end of the input waits for the replies.

    `notices` stand above everything else, one line each.
    """
    platform = SlackPlatform(slack)
    # A screen is drawn on the standard error, so that has to be a terminal as well.
    if all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        await Terminal(platform, notices).run_async()
    else:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an answer may hold what a plain pipe cannot
        await run_lines(platform, read_lines(sys.stdin), sys.stdout, notices=notices)
