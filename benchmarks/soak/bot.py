"""The bot with faster rate limit windows: `python -m benchmarks.soak.bot SPEED COMMAND`."""

import sys
from functools import partial
from unittest.mock import patch

from bot.cli.main import main as bot
from channels.discord import adapter as discord
from channels.discord.client.api import DiscordApi
from channels.slack import adapter as slack
from channels.slack.client.api import SlackApi


def main(speed: float, *asked: str) -> None:
    """Run a command of the bot with `speed` platform seconds in a real second for its rate limiters."""
    with (
        patch.object(slack, "SlackApi", partial(SlackApi, speed=speed)),
        patch.object(discord, "DiscordApi", partial(DiscordApi, speed=speed)),
    ):
        sys.argv[1:] = asked
        bot()


if __name__ == "__main__":
    main(float(sys.argv[1]), *sys.argv[2:])
