"""Several workers on one PostgreSQL database, and two on one SQLite file."""

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path

from chatrig.discord import DiscordSimulator
from chatrig.models import ReceivedRequest, ScriptedResponse
from chatrig.slack import SlackSimulator
from tests.acceptance.conftest import AcceptanceBot, MakeProgram, StartBot
from tests.acceptance.platforms import BotConversation, Platform
from tests.acceptance.test_restarts import begin_answers, start_conversations


async def start_two_workers(
    start: StartBot, folder: Path, settings: Mapping[str, str]
) -> tuple[AcceptanceBot, AcceptanceBot, dict[Platform, BotConversation]]:
    """Start a worker with a growing reply on each platform, and then a second worker.

    Args:
        folder: the parent of the second worker's folder.

    Returns:
        Both workers, and the conversation on each platform.
    """
    one = await start(**settings)
    conversations = await begin_answers(one)
    (folder / "other").mkdir()
    other = await start(folder=folder / "other", **settings)
    other.answer = check_history
    return one, other, conversations


async def check_takeover(one: AcceptanceBot, conversations: Mapping[Platform, BotConversation]) -> None:
    """Check that another worker finished each conversation's reply as one message."""

    async def check_reply(platform: Platform) -> None:
        await one.wait_for_reply(platform, conversations[platform], lambda text: text == "The whole answer.")
        assert len(conversations[platform].replies()) == 1

    await one.run_on_all_platforms(check_reply)


async def test_another_worker_resumes_the_turns_of_a_killed_worker_within_its_lease(
    start: StartBot, postgres: str, slack: SlackSimulator, discord: DiscordSimulator, tmp_path: Path
) -> None:
    settings = {"DATABASE_URL": postgres, "LEASE_SECONDS": "2"}
    one, _other, conversations = await start_two_workers(start, tmp_path, settings)
    (tmp_path / "third").mkdir()
    third = await start(folder=tmp_path / "third", **settings)
    third.answer = check_history
    assert (slack.connection_count, discord.connection_count) == (3, 1)
    await one.program.stop(signal.SIGKILL)
    async with asyncio.timeout(30):
        await check_takeover(one, conversations)
    await slack.wait_for(lambda: slack.connection_count == 2)


async def test_a_second_worker_takes_over_discord_and_the_spending_of_a_dead_worker(
    start: StartBot, postgres: str, discord: DiscordSimulator, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    prices = tmp_path / "prices.toml"
    prices.write_text('"openai/scripted" = { input = 1000, output = 1000 }')
    settings = {"DATABASE_URL": postgres, "LEASE_SECONDS": "2"}
    settings |= {"PRICES_FILE": str(prices), "DAILY_SPENDING_LIMIT_PER_USER_USD": "0.01"}  # less than one answer costs
    one = await start(**settings)
    one.answer = lambda _request: "Here."
    conversations = start_conversations(one)

    async def spend(platform: Platform) -> None:
        await one.ask(platform, conversations[platform], "hello?", "Here.")

    await one.run_on_all_platforms(spend)
    other = await start(folder=tmp_path / "other", **settings)
    other.answer = lambda _request: "The other one says it."
    assert discord.connection_count == 1
    assert "another worker connects to the gateway" in other.program.log
    await one.program.stop(signal.SIGKILL)
    await one.platforms[0].wait_for(lambda: one.platforms[0].simulator.connection_count == 1)
    await discord.wait_for(lambda: not discord.connection_count)

    async def check_limit_and_reply(platform: Platform) -> None:
        await conversations[platform].say("anybody there?")
        await one.wait_for_reply(
            platform, conversations[platform], lambda text: "daily spending limit ($0.0100)" in text
        )
        await one.ask(platform, conversations[platform], "and for me?", "The other one says it.", user="grace")

    async with asyncio.timeout(30):
        await one.run_on_all_platforms(check_limit_and_reply)


async def test_a_stopped_worker_hands_its_turns_over_at_once(start: StartBot, postgres: str, tmp_path: Path) -> None:
    settings = {"DATABASE_URL": postgres, "SHUTDOWN_TIMEOUT_SECONDS": "1"}
    one, _other, conversations = await start_two_workers(start, tmp_path, settings)
    assert await one.program.stop(signal.SIGTERM) == 0
    await check_takeover(one, conversations)


def check_history(request: ReceivedRequest) -> ScriptedResponse:
    """Answer "The whole answer." if the model request has the question alone.

    Otherwise the answer shows the wrong history.
    """
    questions = [text for role, text in request.messages if role == "user"]
    return "The whole answer." if len(request.messages) == len(questions) == 1 else f"What? {request.messages}"


async def test_a_second_process_on_a_sqlite_file_names_the_owner_and_stops(
    start: StartBot, program: MakeProgram, tmp_path: Path
) -> None:
    bot = await start()
    platform = bot.platforms[0]
    settings = {**platform.settings, "MODEL": "openai/scripted", "OPENAI_BASE_URL": "http://localhost:1"}
    for command in ("run", "migrate"):
        second = program(settings)
        second.log_file = tmp_path / f"{command}.log"
        code, output = await second.run_command(command)
        assert code == 1
        assert f"parley.db is in use by process {bot.program.pid}: stop that one first" in output
        assert "DATABASE_URL" in output
    bot.answer = lambda _request: "Still here."
    await bot.ask(platform, platform.start_conversation(), "hello?", "Still here.")


async def test_discord_shards_of_a_dead_worker_move_to_the_other_worker(
    start: StartBot, postgres: str, discord: DiscordSimulator, tmp_path: Path
) -> None:
    discord.recommend_shards(2, max_concurrency=2)
    settings = {"DATABASE_URL": postgres, "LEASE_SECONDS": "2"}
    one = await start(**settings)
    (tmp_path / "other").mkdir()
    other = await start(folder=tmp_path / "other", **settings)
    one.answer = other.answer = lambda _request: "Here."
    await discord.wait_for(lambda: len(discord.sessions) == 3 and discord.connection_count == 2, timeout=30)
    assert "this worker connects the shards 0, 1 of 2" in one.program.log
    number = (int(discord.guild_id) >> 22) % 2
    hears = next(bot for bot in (one, other) if f"this worker connects the shards {number} of 2" in bot.program.log)
    platform = next(platform for platform in one.platforms if platform.name == "discord")
    conversation = platform.start_conversation()
    await one.ask(platform, conversation, "hello?", "Here.")
    await platform.wait_for(lambda: "Regenerate" in conversation.button_labels())
    await hears.program.stop(signal.SIGKILL)
    await platform.wait_for(lambda: discord.connection_count == 1)
    await conversation.say("anybody there?")
    await platform.wait_for(lambda: [reply.text for reply in conversation.replies()] == ["Here.", "Here."], timeout=30)
