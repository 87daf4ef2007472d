"""Terminal client of the local platforms: a screen, or line mode for pipes."""

import sys
from collections.abc import Sequence
from contextlib import aclosing
from io import TextIOWrapper

from chatrig.client.discord import DiscordPlatform
from chatrig.client.slack import SlackPlatform
from chatrig.discord import DiscordSimulator
from chatrig.managed_bot import ManagedBot
from chatrig.slack import SlackSimulator
from chatrig.terminal.app import TerminalApp
from chatrig.terminal.lines import read_lines, run_lines

__all__ = ["run_terminal"]


async def run_terminal(
    slack: SlackSimulator, discord: DiscordSimulator, *, bot: ManagedBot | None = None, notices: Sequence[str]
) -> None:
    """Run the terminal client until the user quits (Ctrl-C, Ctrl-D, `/quit`).

    On a terminal this is a screen. If the input or an output is not a terminal (a pipe, CI), the client is in line
    mode. Then each line of the input is sent, and each change is printed as one line. At the end of the input, it
    returns once the replies are complete, or after the limits of `QuietTime`.

    Args:
        bot: the bot's process, which the tour restarts; None for a bot without a tour.
        notices: lines to show above everything else.
    """
    platforms = SlackPlatform(slack), DiscordPlatform(discord)
    # Textual draws on the standard error, so that must be a terminal, too.
    if all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        await TerminalApp(*platforms, bot=bot, notices=notices).run_async()
        return
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a pipe's encoding may lack characters of an answer
    async with aclosing(read_lines(sys.stdin)) as lines:
        await run_lines(platforms, lines, sys.stdout, bot=bot, notices=notices)
