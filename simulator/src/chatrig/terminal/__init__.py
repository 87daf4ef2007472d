"""Terminal client of the local platforms: a screen, or line mode for pipes."""

import sys
from collections.abc import Sequence
from contextlib import aclosing
from io import TextIOWrapper

from chatrig.client.discord import DiscordPlatform
from chatrig.client.extension import SimulatorExtension
from chatrig.client.slack import SlackPlatform
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from chatrig.terminal.app import TerminalApp
from chatrig.terminal.lines import read_lines, run_lines

__all__ = ["run_terminal"]


async def run_terminal(
    slack: SlackSimulator,
    discord: DiscordSimulator,
    *,
    extension: SimulatorExtension | None = None,
    notices: Sequence[str],
) -> None:
    """Run the terminal client until the user quits (Ctrl-C, Ctrl-D, `/quit`).

    On a terminal this is a screen. If the input or an output is not a terminal (a pipe, CI), the client is in line
    mode. Then each line of the input is sent, and each change is printed as one line. At the end of the input, it
    returns once the replies are complete, or after the limits of `QuietTime`.

    Args:
        extension: further commands and notices, and the process of the bot; None for none.
        notices: lines to show above everything else.
    """
    platforms = SlackPlatform(slack), DiscordPlatform(discord)
    # Textual draws on the standard error, so that must be a terminal, too.
    if all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        await TerminalApp(*platforms, extension=extension, notices=notices).run_async()
        return
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a pipe's encoding may lack characters of an answer
    async with aclosing(read_lines(sys.stdin)) as lines:
        await run_lines(platforms, lines, sys.stdout, extension=extension, notices=notices)
