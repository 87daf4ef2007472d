"""Backfill of Discord messages that were posted while the bot was disconnected."""

import asyncio
from pathlib import Path
from time import monotonic

import pytest
from tenacity.wait import wait_fixed

from channels.discord.client import gateway
from channels.discord.client.api import GLOBAL_WINDOW
from channels.discord.client.auth import log_in
from channels.discord.session_ids import snowflake_time
from channels.intake import backfill
from channels.settings import BackfillLimits
from chatrig.discord import DiscordSimulator, GuildChannel
from chatrig.discord.api.limits import GLOBALLY_UNLIMITED_ROUTES
from core.inbox.watermarks import ActivePlace
from tests.channels.discord.conftest import HISTORY, WiredDiscordBot, create_settings, run_bot, run_discord, wait_until
from tests.channels.wiring import echo

GUILD = "GET /guilds/{guild}"
CHANNEL = "GET /channels/{channel}"


@pytest.fixture(autouse=True)
def short_retry_waits(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(backfill, "FETCH_WAIT", wait_fixed(0.05))
    monkeypatch.setattr(backfill, "STORE_WAIT", wait_fixed(0.05))
    caplog.set_level("INFO", "channels")


def list_answered_texts(bot: WiredDiscordBot, place: GuildChannel | str) -> list[str]:
    """Return the texts that the bot's replies in a place quote, in order.

    One reply may answer several messages.
    """
    return [text for m in bot.list_bot_messages(place) for text in m.text.removeprefix("heard: ").split("\n\n")]


async def wait_for_backfill(bot: WiredDiscordBot, caplog: pytest.LogCaptureFixture) -> None:
    """Wait until the log reports the backfill, and all its messages are answered."""
    await wait_until(lambda: "discord: backfill of" in caplog.text)
    await bot.wait_for_messages(0)


async def test_missed_messages_of_threads_posts_and_direct_messages_are_answered(
    server: DiscordSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_bot(server, tmp_path, echo) as bot:
        root = await bot.mention_bot("ada", "general", "one")
        direct = server.open_dm("ada")
        await server.post_message("ada", direct, "hello")
        post = await server.start_forum_post("ada", "ideas", "a post", f"{bot.mention} what if")
        talk = await server.start_thread("grace", await server.post_message("grace", "general", "a root"), "a talk")
        followed = await server.start_thread("ada", root, "a thread")
        await bot.wait_for_replies(await bot.mention_bot("ada", followed, "one"), "heard: Ada Lovelace: one")
        await bot.wait_for_messages(4)

    await server.post_message("linus", talk, "nor this")
    await server.post_message("linus", "general", f"<@&{server.bot_role_id}> two")
    await server.post_message("ada", followed, "on")
    await server.archive_thread(followed)
    await server.post_message("ada", post, "and if")
    await bot.mention_bot("grace", talk, "you")
    await server.post_message("ada", direct, "back?", files={"plan.pdf": b"%PDF"})
    await server.post_as_other_bot("robot", "general", f"{bot.mention} beep")
    await server.post_as_other_bot("hook", "general", f"{bot.mention} beep", webhook=True)

    caplog.clear()
    async with run_bot(server, tmp_path, echo) as bot:
        await wait_for_backfill(bot, caplog)
        assert list_answered_texts(bot, "general") == ["Ada Lovelace: one", "Linus Pauling: two"]
        assert list_answered_texts(bot, followed) == ["Ada Lovelace: one", "Ada Lovelace: on"]
        assert list_answered_texts(bot, post) == ["Ada Lovelace: what if", "Ada Lovelace: and if"]
        assert list_answered_texts(bot, talk) == ["Grace Hopper: you"]
        assert list_answered_texts(bot, direct) == [
            "hello",
            "back?\n[Ada Lovelace sent a file that you cannot open: plan.pdf (4 bytes): I do not recognize its type]",
        ]
        assert len(await bot.list_inbox_messages()) == 9


async def test_a_backfill_of_forty_channels_stays_within_the_global_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "MAX_CONCURRENT_TASKS", 40)  # Discord answers no slower than the simulator
    async with run_discord() as server:
        places = [server.add_channel(f"place-{number}") for number in range(40)]
        async with run_bot(server, tmp_path, echo) as bot:
            for place in places:
                await bot.mention_bot("ada", place, "one")
            await bot.wait_for_messages(40)
            await bot.wait_for_turns(40)
        for place in places:
            await bot.mention_bot("ada", place, "two")
        began = len(server.calls)
        await wait_until(
            lambda: monotonic() > server.calls[-1].received_at + GLOBAL_WINDOW.seconds
        )  # a process takes longer to start
        async with run_bot(server, tmp_path, echo) as bot:
            await wait_for_backfill(bot, caplog)
            await bot.wait_for_messages(80)
            await bot.wait_for_turns(40)
        counted = [
            call.received_at for call in server.calls[began:] if not call.route.startswith(GLOBALLY_UNLIMITED_ROUTES)
        ]
        assert not [call.route for call in server.calls if call.status == 429]
        assert max(sum(at <= later < at + 1 for later in counted) for at in counted) <= GLOBAL_WINDOW.calls


async def test_the_backfill_skips_unserved_and_hidden_places(
    server: DiscordSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = server.add_channel("hidden")
    async with run_bot(server, tmp_path, echo) as bot:
        for place in ("hidden", "random"):
            await bot.wait_for_replies(await bot.mention_bot("ada", place, "one"), "heard: Ada Lovelace: one")
        await bot.wait_for_messages(2)
    question = await bot.mention_bot("ada", "random", "two")
    hidden.members = {server.people["ada"].id}
    caplog.clear()
    async with run_bot(server, tmp_path, echo, guilds=frozenset({1})) as bot:
        await wait_for_backfill(bot, caplog)
        assert bot.list_calls(HISTORY) == bot.list_calls(GUILD) == []
    caplog.clear()
    async with run_bot(server, tmp_path, echo) as bot:
        await wait_for_backfill(bot, caplog)
        await bot.wait_for_replies(question, "heard: Ada Lovelace: two")
        assert "the history of a place is not readable: channel: 50001" in caplog.text


async def test_the_backfill_reads_several_pages(
    server: DiscordSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_bot(server, tmp_path, echo) as bot:
        await bot.wait_for_replies(await server.post_message("ada", server.open_dm("ada"), "hello"), "heard: hello")
        await bot.wait_for_messages(1)
    for number in range(102):
        await server.post_message("ada", server.open_dm("ada"), str(number))
    caplog.clear()
    async with run_bot(server, tmp_path, echo, backfill_limits=BackfillLimits(messages=3)) as bot:
        await wait_for_backfill(bot, caplog)
        assert list_answered_texts(bot, server.open_dm("ada")) == ["hello", "99", "100", "101"]


@pytest.mark.parametrize("way", ["invalidated", "not resumed", "given up"])
async def test_messages_between_two_gateway_sessions_are_answered_once(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_discord(speed=20) as server, run_bot(server, tmp_path, echo) as bot:
        direct = server.open_dm("ada")
        await bot.wait_for_replies(await server.post_message("ada", direct, "hello"), "heard: hello")
        match way:
            case "invalidated":
                await server.invalidate_sessions()
            case "not resumed":
                server.faults.refuse_resumes(1)
                await server.drop_sockets()
            case _:
                await server.freeze_sockets()
        question = await server.post_message("ada", direct, "are you there?")
        if way == "given up":
            monkeypatch.setattr(gateway, "CLOSE_TIMEOUT_SECONDS", 0.1)
            await bot.adapter.reconnect()
        await bot.wait_for_replies(question, "heard: are you there?")
        assert len(server.sessions) == 2
        assert len(await bot.list_inbox_messages()) == 2


async def test_a_failed_backfill_is_repeated_and_moves_no_watermark(
    server: DiscordSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "WATERMARK_SECONDS", 0.02)
    async with run_bot(server, tmp_path, echo) as bot:
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one")
        await bot.wait_for_messages(1)
    question = await bot.mention_bot("ada", "general", "two")
    server.faults.fail(GUILD, 1000, status=401)
    async with run_bot(server, tmp_path, echo) as bot:
        await wait_until(lambda: "a gap is not fetched yet" in caplog.text and len(bot.list_calls(GUILD)) >= 2)
        heard_at = await bot.watermarks.get_watermark("discord")
        assert heard_at is not None
        assert heard_at < snowflake_time(int(question.id))
        server.faults.clear()
        server.faults.rate_limit(HISTORY, 0.2)
        await bot.wait_for_replies(question, "heard: Ada Lovelace: two")


async def test_the_backfill_fetches_a_server_once_for_all_its_places(server: DiscordSimulator, tmp_path: Path) -> None:
    """Check that five channels of a server need one call for the server.

    Discord's rate limit of this call is low.
    """
    async with run_bot(server, tmp_path, echo, connect=False) as bot:
        await log_in(bot.platform.client, create_settings(server))
        rooms = [server.add_channel(f"room-{number}") for number in range(5)]
        since = min([snowflake_time(int((await bot.mention_bot("ada", room, room.name)).id)) for room in rooms]) - 1

        look = bot.adapter._create_fetch(since)

        async def fetch(room: GuildChannel) -> list[str]:
            place = ActivePlace(f"discord:{server.guild_id}:{room.id}", since)
            return [call.inbound.text for call in await look(place)]

        assert await asyncio.gather(*map(fetch, rooms)) == [[room.name] for room in rooms]
        assert await fetch(rooms[0]) == [rooms[0].name]
        assert len(bot.list_calls(GUILD)) == 1


async def test_the_backfill_makes_no_call_for_a_silent_channel(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo, connect=False) as bot:
        await log_in(bot.platform.client, create_settings(server))
        rooms = [server.add_channel(f"room-{number}") for number in range(20)]
        before = await bot.mention_bot("ada", rooms[0], "before")
        await asyncio.sleep(0.01)  # Discord counts milliseconds
        message = await bot.mention_bot("ada", rooms[7], "said")
        since = (snowflake_time(int(before.id)) + snowflake_time(int(message.id))) / 2
        look = bot.adapter._create_fetch(since)
        places = [ActivePlace(f"discord:{server.guild_id}:{room.id}", since) for room in rooms]
        assert [call.inbound.text for place in places for call in await look(place)] == ["said"]
        assert len(bot.list_calls(CHANNEL)) == len(bot.list_calls(HISTORY)) == 1
