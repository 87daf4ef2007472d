import pytest

from channels.commands.handlers import COMMAND_DESCRIPTIONS, PRIVATE_COMMANDS, parse_command
from channels.discord.interactions import commands as discord
from channels.discord.interactions.handler import DiscordIntakeHandler
from channels.slack.interactions import commands as slack


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("reset", ("reset", "")),
        (" RESET. ", ("reset", "")),
        ("/reset", ("reset", "")),
        ("!stop!", ("stop", "")),
        ("model", ("model", "")),
        ("model openai/gpt-4.1", ("model", "openai/gpt-4.1")),
        ("/Model gemini-3.5-flash.", ("model", "gemini-3.5-flash")),
    ],
)
def test_a_message_of_only_a_command_is_a_command(text: str, command: tuple[str, str]) -> None:
    assert parse_command(text) == command


@pytest.mark.parametrize(
    "text", ["", "reset the counter", "help me", "stop?", "model trains?", "model a b", "preset", "mute/listen"]
)
def test_a_message_that_mentions_a_command_is_a_question(text: str) -> None:
    assert parse_command(text) is None


@pytest.mark.parametrize("name", COMMAND_DESCRIPTIONS)
def test_each_command_is_parsed(name: str) -> None:
    assert parse_command(f"/{name}") == (name, "")
    assert parse_command(name) == (None if name in PRIVATE_COMMANDS else (name, ""))


def test_slack_and_discord_have_the_same_commands_in_the_same_order() -> None:
    assert all(written == f"/{name}" for written, name in slack.SLASH_COMMANDS.items())
    handler = object.__new__(DiscordIntakeHandler)  # the test does not call its methods
    in_discord = [command.name for command in discord.make_commands(handler) if command.name in COMMAND_DESCRIPTIONS]
    assert list(slack.SLASH_COMMANDS.values()) == [
        name for name in COMMAND_DESCRIPTIONS if name not in ("mute", "listen")
    ]
    assert in_discord == list(COMMAND_DESCRIPTIONS)
