"""Prefix of slash commands, on both platforms."""

import re
from functools import partial
from pathlib import Path
from typing import Any, get_args

import discord
import pytest
from discord import app_commands
from hypothesis import given
from hypothesis import strategies as st

from channels.commands.handlers import COMMAND_DESCRIPTIONS, PRIVATE_COMMANDS, parse_command
from channels.commands.syntax import MAX_PREFIX_CHARACTERS, SlashCommandName, validate_command_prefix
from channels.discord.interactions.commands import make_command_syntax, make_commands
from channels.discord.interactions.handler import DiscordIntakeHandler
from channels.i18n import messages as words
from channels.slack.interactions.commands import SLASH_COMMANDS
from channels.slack.manifest import manifest
from chatrig.discord import DiscordSimulator
from chatrig.models import ReceivedRequest
from chatrig.slack import SlackSimulator
from chatrig.slack.manifest_check import check_manifest
from tests.channels.discord.conftest import run_bot, run_discord
from tests.channels.platforms import Chat, list_texts, run_conversation, wait_for_texts
from tests.channels.wiring import MODELS

PREFIX = "parley-"
NAMES = get_args(SlashCommandName)

#: A slash command without the prefix.
UNPREFIXED = re.compile(rf"(?<![\w/])/(?:{'|'.join(NAMES)})\b")

#: A prefix by the rules of both platforms, of any length.
PREFIXES = st.text(st.characters(categories=["L", "N"], include_characters="-_'/ ")) | st.from_regex(
    r"[a-z0-9_-]{0,30}"
)


def answer(_: ReceivedRequest) -> str:
    return "heard"


def has_texts(chat: Chat, count: int) -> bool:
    return len(list_texts(chat)) == count


async def run_command(chat: Chat, command: str, argument: str = "") -> str:
    """Run a slash command as ada, wait for its private response, and return the text."""
    simulator = chat.simulator
    if isinstance(simulator, SlackSimulator):
        responses = await simulator.run_command("ada", "general", f"/{command}", argument)
        (response,) = await simulator.wait_for(lambda: responses)
        assert response.ephemeral_to == simulator.people["ada"].id
        return str(response.text)
    options = {"name": argument} if argument else {}
    (response,) = responses = await simulator.run_command("ada", "general", command, **options)
    await simulator.wait_for(lambda: not response.loading)
    assert response.ephemeral_to is simulator.people["ada"]
    return str(response.text)


def list_slash_commands(simulator: Any) -> set[str]:
    """Return the slash commands that the platform offers, without the slash."""
    if isinstance(simulator, SlackSimulator):
        return {command["command"].removeprefix("/") for command in simulator.commands}
    return {command["name"] for command in simulator.commands if command["type"] == 1}


async def test_each_command_has_the_prefix_and_no_text_lacks_it(simulator: Any, tmp_path: Path) -> None:
    is_slack = isinstance(simulator, SlackSimulator)
    if is_slack:
        simulator.install(manifest(prompts=(), command_prefix=PREFIX))
    names = [*SLASH_COMMANDS.values()] if is_slack else [*COMMAND_DESCRIPTIONS, "ask"]
    async with run_conversation(simulator, tmp_path, answer, command_prefix=PREFIX) as chat:
        assert list_slash_commands(simulator) == {f"{PREFIX}{name}" for name in names}
        await chat.say("one")
        await chat.bot.wait_for_turns(1)
        texts = {
            name: await run_command(chat, f"{PREFIX}{name}")
            for name in (*(name for name in names if name not in ("ask", "reset")), "reset")
        }
        assert texts["reset"] == words.RESET_DONE
        assert texts["stop"] == words.NOTHING_TO_STOP
        assert "Model: `" in texts["info"]
        assert "heard" not in texts["why"]
        assert all(f"`/{PREFIX}{name}" in texts["help"] for name in names)
        if not is_slack:
            await simulator.run_command("ada", "general", f"{PREFIX}ask", question="two")
            await wait_for_texts(chat, lambda found: found.count("heard") == 2)
        for count, text in enumerate(("/why", f"/{PREFIX}usage", f"!{PREFIX}help"), len(list_texts(chat)) + 1):
            await chat.say(text)
            await chat.simulator.wait_for(partial(has_texts, chat, count))
            texts[text] = list_texts(chat)[-1]
        assert texts["/why"] == words.WHY_PRIVATELY.format(command=f"/{PREFIX}why")
        assert texts[f"/{PREFIX}usage"] == words.USAGE_PRIVATELY.format(command=f"/{PREFIX}usage")
        assert texts[f"!{PREFIX}help"] == texts["help"]
        assert [text for text in texts.values() if UNPREFIXED.search(text)] == []


async def test_words_and_slash_commands_in_a_message_work_with_a_prefix(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, answer, command_prefix=PREFIX) as chat:
        for count, text in enumerate(("reset", "/reset", f"/{PREFIX}reset", f"!{PREFIX.upper()}RESET"), 1):
            await chat.say("hello")
            await chat.bot.wait_for_turns(count)
            await chat.say(text)
            await wait_for_texts(chat, lambda found: found[-1:] == [words.RESET_DONE])
        await chat.say("/other-reset")  # perhaps a command of another bot
        await wait_for_texts(chat, lambda found: found[-1:] == ["heard"])


@pytest.mark.parametrize("prefix", ["", PREFIX])
async def test_commands_with_another_prefix_still_work(
    simulator: Any, tmp_path: Path, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    former = {"reset", "old-reset", "old-model", "old-help", "unknown"}
    async with run_conversation(simulator, tmp_path, answer, command_prefix=prefix) as chat:
        if isinstance(simulator, DiscordSimulator):
            await register_commands(chat, former)
            assert await simulator.autocomplete_option("ada", "general", "old-model", "name", "") == [*MODELS]
        await chat.say("one")
        await chat.bot.wait_for_turns(1)
        assert (await run_command(chat, "old-model", "other")).startswith("There is no model `other`")
        help_text = await run_command(chat, "old-help")
        assert f"`/{prefix}reset`" in help_text
        assert await run_command(chat, "unknown", "text") == help_text
        assert await run_command(chat, "old-reset") == words.RESET_DONE
        await chat.say("two")
        await chat.bot.wait_for_turns(2)
        assert await run_command(chat, "reset") == words.RESET_DONE
    assert f"sent {'/' if isinstance(simulator, SlackSimulator) else 'the command '}old-reset, not" in caplog.text


async def register_commands(chat: Chat, names: set[str]) -> None:
    """Replace the commands on Discord as a worker with other settings does."""
    tree = app_commands.CommandTree(discord.Client(intents=discord.Intents.none()))
    for name in names:

        @tree.command(name=name, description="A former command")
        async def command(interaction: discord.Interaction, name: str = "") -> None: ...

        @command.autocomplete("name")
        async def complete(interaction: discord.Interaction, typed: str) -> list[app_commands.Choice[str]]:
            return []

    commands = [command.to_dict(tree) for command in tree.get_commands()]
    http = chat.bot.platform.client.http
    await http.bulk_upsert_global_commands(chat.simulator.bot_id, payload=commands)


async def test_a_changed_prefix_replaces_the_commands_on_discord(tmp_path: Path) -> None:
    async with run_discord() as server:
        for prefix in ("", PREFIX, "", "other_"):
            async with run_bot(server, tmp_path, answer, command_prefix=prefix):
                assert list_slash_commands(server) == {f"{prefix}{name}" for name in (*COMMAND_DESCRIPTIONS, "ask")}


@given(PREFIXES)
def test_both_platforms_accept_each_valid_prefix(prefix: str) -> None:
    try:
        validate_command_prefix(prefix)
    except ValueError:
        return
    check_manifest(manifest(prompts=(), command_prefix=prefix))
    make_commands(object.__new__(DiscordIntakeHandler), prefix)  # discord.py checks the names
    for name in get_args(SlashCommandName):
        assert re.fullmatch(r"[-_\w]{1,31}", f"{prefix}{name}")
        assert f"{prefix}{name}" == f"{prefix}{name}".lower()


@pytest.mark.parametrize("prefix", ["parley-", "p", "my_bot2-", "팔리-", "bot", "", "x" * MAX_PREFIX_CHARACTERS])
def test_a_prefix_is_accepted(prefix: str) -> None:
    assert validate_command_prefix(prefix) == prefix


@pytest.mark.parametrize(
    "prefix", ["Parley-", "/parley-", "my bot", "o'", "a.", "a:", "É", "a\n", "x" * (MAX_PREFIX_CHARACTERS + 1)]
)
def test_a_prefix_that_a_platform_refuses_is_invalid(prefix: str) -> None:
    with pytest.raises(ValueError, match="it must have at most 20 characters: lowercase letters, digits, - and _"):
        validate_command_prefix(prefix)


@given(st.sampled_from(sorted(COMMAND_DESCRIPTIONS)), st.from_regex(r"[a-z0-9_-]{0,25}", fullmatch=True))
def test_a_prefixed_command_is_parsed_as_the_plain_one(name: Any, prefix: str) -> None:
    assert parse_command(f"/{prefix}{name}", prefix) == parse_command(f"/{name}", prefix) == (name, "")
    assert parse_command(name, prefix) == (None if name in PRIVATE_COMMANDS else (name, ""))
    assert make_command_syntax(prefix).find_name(f"{prefix}{name}") == name


def test_no_command_name_ends_with_another() -> None:
    assert [(name, end) for name in NAMES for end in NAMES if name != end and name.endswith(end)] == []


def test_no_message_names_a_slash_command_itself() -> None:
    catalogue: dict[str, str] = vars(words.messages_for("ko")._translations)["_catalog"]
    texts = [*vars(words).values(), *catalogue, *catalogue.values()]
    assert [text for text in texts if isinstance(text, str) and UNPREFIXED.search(text)] == []
