"""Bot process of the soak and load tests: `-m benchmarks.soak.bot SPEED COMMAND`.

Its rate limiters run SPEED times as fast.
"""

import sys
from functools import partial
from unittest.mock import patch

from bot.cli.main import main as bot
from channels.discord import platform as discord
from channels.discord.client.api import DiscordApi
from channels.slack import platform as slack
from channels.slack.client.api import SlackApi


def main(speed: float, *arguments: str) -> None:
    """Run a command of the bot whose rate limiters run `speed` times as fast.

    Args:
        arguments: the command and its arguments, such as `run`; they replace those in `sys.argv`.
    """
    with (
        patch.object(slack, "SlackApi", partial(SlackApi, speed=speed)),
        patch.object(discord, "DiscordApi", partial(DiscordApi, speed=speed)),
    ):
        sys.argv[1:] = arguments
        bot()


if __name__ == "__main__":
    main(float(sys.argv[1]), *sys.argv[2:])
