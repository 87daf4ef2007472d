import asyncio
import gc
import warnings
from pathlib import Path
from typing import Any

import pytest

from channels import words
from channels.discord import channel as channel_module
from channels.discord import gateway as gateway_module
from core.errors import StoreError
from core.inbox import Accepted, Inbox
from core.turns import Turns
from sandbox.discord import DiscordSandbox
from sandbox.models import Pause, Say
from tests.channels.discord.conftest import PATCH, POST, Bot, discord_of, running, until

GET_CHANNEL = "GET /channels/{channel}"
REACT = "PUT /channels/{channel}/messages/{message}/reactions/{emoji}/@me"


def echo(asked: Any) -> str:
    return f"heard: {asked.text}"


async def nothing_was_heard(bot: Bot) -> bool:
    """Whether of all that was said until now nothing is meant for the bot: a message after it is answered first."""
    before = len(await bot.inbox_rows())
    last = await bot.server.say("linus", bot.server.open_dm("linus"), "last")
    await bot.says(last, "heard: last")
    return len(await bot.inbox_rows()) == before + 1


# Who is answered, and where


async def test_a_mention_is_answered_with_a_reply_and_told_with_names_in_place_of_ids(
    server: DiscordSandbox, tmp_path: Path
) -> None:
    async with running(server, tmp_path, echo) as bot:
        grace, random = server.people["grace"].id, server.channels["random"].id
        question = await bot.ask("ada", "general", f"ask <@{grace}> in <#{random}>")
        (answer,) = await bot.says(question, "heard: Ada Lovelace: ask @Grace Hopper in #random")
        (row,) = await bot.settled(1)
        assert (row.state, row.chunks) == ("done", [answer.id])
        assert answer.versions[0].text == words.PLACEHOLDER
        assert await bot.sessions() == [f"discord:{server.guild_id}:{question.channel.id}"]


async def test_the_bots_role_calls_it_too(server: DiscordSandbox, tmp_path: Path) -> None:
    async with running(server, tmp_path, echo) as bot:
        question = await server.say("ada", "general", f"<@&{server.bot_role_id}> hello")
        await bot.says(question, "heard: Ada Lovelace: hello")


async def test_a_reply_to_the_bot_that_calls_it_is_answered_in_the_same_session(
    server: DiscordSandbox, tmp_path: Path
) -> None:
    async with running(server, tmp_path, echo) as bot:
        (answer,) = await bot.says(await bot.ask("ada", "general", "one"), "heard: Ada Lovelace: one")
        reply = await server.say("grace", "general", "two", reply_to=answer)
        await bot.says(reply, "heard: Grace Hopper: two")
        assert bot.said_to_model() == ["Ada Lovelace: one", "Grace Hopper: two"]


async def test_a_direct_message_needs_no_mention_and_no_name(server: DiscordSandbox, tmp_path: Path) -> None:
    async with running(server, tmp_path, echo) as bot:
        place = server.open_dm("ada")
        question = await server.say("ada", place, "hello")
        await bot.says(question, "heard: hello")
        assert await bot.sessions() == [f"discord:dm:{place.id}"]


async def test_channels_threads_and_posts_remember_each_their_own(server: DiscordSandbox, tmp_path: Path) -> None:
    async with running(server, tmp_path, echo) as bot:
        root = await bot.ask("ada", "general", "in the channel")
        await bot.says(root, "heard: Ada Lovelace: in the channel")
        thread = await server.start_thread("ada", root, "a thread")
        post = await server.start_post("ada", "ideas", "a post", f"{bot.mention} in the post")
        await bot.says(server.messages(post)[0], "heard: Ada Lovelace: in the post")
        assert bot.said_to_model() == ["Ada Lovelace: in the post"]
        await bot.says(await bot.ask("ada", thread, "in the thread"), "heard: Ada Lovelace: in the thread")
        assert bot.said_to_model() == ["Ada Lovelace: in the thread"]
        await bot.says(await bot.ask("ada", "random", "elsewhere"), "heard: Ada Lovelace: elsewhere")
        assert bot.said_to_model() == ["Ada Lovelace: elsewhere"]
        general, random, ideas = (server.channels[name].id for name in ("general", "random", "ideas"))
        assert [session.removeprefix(f"discord:{server.guild_id}:") for session in await bot.sessions()] == [
            general,
            f"{ideas}:{post.id}",
            f"{general}:{thread.id}",
            random,
        ]


async def test_in_a_thread_where_the_bot_speaks_it_follows_without_a_mention_and_nowhere_else(
    server: DiscordSandbox, tmp_path: Path
) -> None:
    async with running(server, tmp_path, echo) as bot:
        root = await bot.ask("ada", "general", "one")
        await bot.says(root, "heard: Ada Lovelace: one")
        await server.say("ada", "general", "not for the bot")
        silent = await server.start_thread("ada", root, "silent")
        await server.say("ada", silent, "not for the bot either")
        assert await nothing_was_heard(bot)
        followed = await server.start_post("ada", "ideas", "a post", f"{bot.mention} two")
        await bot.says(server.messages(followed)[0], "heard: Ada Lovelace: two")
        await bot.says(await server.say("grace", followed, "three"), "heard: Grace Hopper: three")


async def test_without_the_message_content_intent_only_what_calls_the_bot_is_heard(
    server: DiscordSandbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.privileged_intents.clear()
    async with running(server, tmp_path, echo) as bot:
        assert "the message content intent is off: in threads I hear only what mentions me" in caplog.text
        post = await server.start_post("ada", "ideas", "a post", f"{bot.mention} one")
        await bot.says(server.messages(post)[0], "heard: Ada Lovelace: one")
        await server.say("ada", post, "two")
        assert await nothing_was_heard(bot)
        await bot.says(await bot.ask("ada", post, "three"), "heard: Ada Lovelace: three")


async def test_what_nobody_said_to_the_bot_starts_nothing(server: DiscordSandbox, tmp_path: Path) -> None:
    async with running(server, tmp_path, echo) as bot:
        said = await server.say("ada", "general", "not for the bot, @everyone")
        await server.edit("ada", said, f"{bot.mention} edited in")
        await server.pin("ada", said)
        await server.join("edsger")
        await server.bot_says("robot", "general", f"{bot.mention} beep")
        await server.bot_says("hook", "general", f"{bot.mention} beep", webhook=True)
        await server.start_thread("ada", await server.say("ada", "general", "a root"), "a thread")
        await server.delete("ada", said)
        assert await nothing_was_heard(bot)


async def test_a_thread_that_is_opened_again_by_a_message_is_known_by_its_place(
    server: DiscordSandbox, tmp_path: Path
) -> None:
    async with running(server, tmp_path, echo) as bot:
        post = await server.start_post("ada", "ideas", "a post", f"{bot.mention} one")
        await bot.says(server.messages(post)[0], "heard: Ada Lovelace: one")
        await server.archive(post)
        server.faults.fail(GET_CHANNEL, status=503)
        await bot.says(await server.say("ada", post, "two"), "heard: Ada Lovelace: two")
        assert len(set(await bot.sessions())) == 1
        assert len(bot.calls(GET_CHANNEL)) == 2  # the bot's own words there are not looked up


async def test_a_thread_that_cannot_be_looked_up_is_told_in_the_log(
    server: DiscordSandbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(server, tmp_path, echo) as bot:
        post = await server.start_post("ada", "ideas", "a post", "one")
        await server.archive(post)
        server.faults.fail(GET_CHANNEL, status=403, code=50001)
        await bot.ask("ada", post, "two")
        await until(lambda: "a message is lost, as it cannot be seen where it was said" in caplog.text)
        assert await nothing_was_heard(bot)


async def test_only_the_servers_that_are_named_are_served(server: DiscordSandbox, tmp_path: Path) -> None:
    async with running(server, tmp_path, echo, guilds=frozenset({1})) as bot:
        await bot.ask("ada", "general", "hello")
        assert await nothing_was_heard(bot)
        (seen,) = await server.command("ada", "general", "/reset")
        await server.wait_for(lambda: seen.text == words.NOT_HERE)
    async with running(server, tmp_path, echo, guilds=frozenset({int(server.guild_id)})) as bot:
        await bot.says(await bot.ask("ada", "general", "hello"), "heard: Ada Lovelace: hello")


async def test_files_and_bare_mentions_are_told_as_what_they_are(server: DiscordSandbox, tmp_path: Path) -> None:
    async with running(server, tmp_path, echo) as bot:
        file = await server.say("ada", server.open_dm("ada"), "look", files={"plan.pdf": b"%PDF"})
        await bot.says(file, "heard: look\n[Ada Lovelace sent files that you cannot open: plan.pdf]")
        bare = await server.say("ada", "general", bot.mention)
        await bot.says(bare, "heard: Ada Lovelace: [Ada Lovelace called you without saying anything]")


# In order, and once


async def test_messages_in_quick_succession_are_answered_in_order_and_who_waits_sees_it(
    server: DiscordSandbox, tmp_path: Path
) -> None:
    go_on = asyncio.Event()
    async with running(server, tmp_path, [Pause(go_on), Say("one!")], "two!") as bot:
        first = await bot.ask("ada", "general", "one")
        await server.wait_for(lambda: bot.texts(first))
        second = await bot.ask("grace", "general", "two")
        await server.wait_for(lambda: second.reactions.get("👀") == [server.bot_id])
        assert not first.reactions
        go_on.set()
        await bot.says(first, "one!")
        await bot.says(second, "two!")
        await server.wait_for(lambda: not second.reactions)


async def test_a_receipt_that_cannot_be_given_holds_nothing_up(server: DiscordSandbox, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    server.faults.fail(REACT, status=403, code=50013)
    async with running(server, tmp_path, [Pause(go_on), Say("one!")], "two!") as bot:
        await bot.ask("ada", "general", "one")
        await server.wait_for(lambda: bot.calls(POST))
        second = await bot.ask("grace", "general", "two")
        await server.wait_for(lambda: bot.calls(REACT))
        go_on.set()
        await bot.says(second, "two!")


async def test_a_wish_to_start_over_is_done_and_confirmed_each_time(server: DiscordSandbox, tmp_path: Path) -> None:
    async with running(server, tmp_path, echo) as bot:
        for _ in range(2):
            await bot.says(await bot.ask("ada", "general", "one"), "heard: Ada Lovelace: one")
            assert bot.said_to_model() == ["Ada Lovelace: one"]
            await bot.settled(1)
            await bot.says(await bot.ask("ada", "general", "Reset!"), words.RESET_DONE)


async def test_a_reset_stops_what_runs_and_drops_what_waits(server: DiscordSandbox, tmp_path: Path) -> None:
    async with running(server, tmp_path, [Say("Once upon a time"), Pause(60)], "anew!") as bot:
        first = await bot.ask("ada", "general", "tell a story")
        await bot.says(first, "Once upon a time")
        second = await bot.ask("ada", "general", "and another")
        await server.wait_for(lambda: second.reactions)
        reset = await bot.ask("ada", "general", "reset")
        await bot.says(reset, words.RESET_DONE)
        await bot.says(first, f"Once upon a time\n\n{words.RESET_STOPPED}")
        await server.wait_for(lambda: not second.reactions)
        (row,) = await bot.settled(1)
        assert (row.state, row.text) == ("cancelled", None)
        assert [r.outcome for r in await bot.inbox_rows()] == ["cancelled", "reset", "reset"]
        await bot.model.wait_for_disconnects()
        await bot.says(await bot.ask("ada", "general", "hello"), "anew!")
        assert bot.texts(second) == []


# A database that fails


def failing_inbox(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    accept, left = Inbox.accept, times

    async def failing(self: Inbox, inbound: Any) -> Accepted:
        nonlocal left
        left -= 1
        if left >= 0:
            raise StoreError("out of reach")
        return await accept(self, inbound)

    monkeypatch.setattr(channel_module, "PAUSES", (0.01, 0.01))
    monkeypatch.setattr(Inbox, "accept", failing)


async def test_what_the_database_does_not_take_is_kept_again(
    server: DiscordSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_inbox(monkeypatch, 2)
    async with running(server, tmp_path, echo) as bot:
        await bot.says(await bot.ask("ada", "general", "hello"), "heard: Ada Lovelace: hello")
        assert len(await bot.settled(1)) == 1


async def test_who_calls_in_vain_is_told(
    server: DiscordSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing_inbox(monkeypatch, 3)
    async with running(server, tmp_path, echo) as bot:
        await bot.says(await bot.ask("ada", "general", "hello"), words.sorry(StoreError.public))
        assert "a message is lost: StoreError: out of reach" in caplog.text
        await bot.says(await bot.ask("ada", "general", "hello again"), "heard: Ada Lovelace: hello again")


async def test_talk_among_others_is_not_answered_with_an_apology(
    server: DiscordSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(self: Inbox, session_id: str) -> bool:
        raise StoreError("out of reach")

    monkeypatch.setattr(channel_module, "PAUSES", (0.01,))
    monkeypatch.setattr(Inbox, "is_session", failing)
    async with running(server, tmp_path, echo) as bot:
        thread = await server.start_thread("ada", await server.say("ada", "general", "a root"), "a thread")
        await server.say("ada", thread, "among us")
        await until(lambda: "a message is lost" in caplog.text)
        assert await nothing_was_heard(bot)
        assert bot.own(thread) == []


async def test_a_stop_cuts_the_waiting_for_the_database_short(
    server: DiscordSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing_inbox(monkeypatch, 3)
    monkeypatch.setattr(channel_module, "PAUSES", (60.0, 60.0))
    async with running(server, tmp_path, echo) as bot:
        question = await bot.ask("ada", "general", "hello")
        await until(lambda: "a message cannot be kept" in caplog.text)
        async with asyncio.timeout(5):
            await bot.channel.stop()
        assert bot.texts(question) == [words.sorry(StoreError.public)]


# The end


async def test_after_a_stop_nothing_is_heard_and_what_was_begun_is_said_to_its_end(
    server: DiscordSandbox, tmp_path: Path
) -> None:
    go_on = asyncio.Event()
    async with running(server, tmp_path, [Say("half, "), Pause(go_on), Say("and half.")]) as bot:
        question = await bot.ask("ada", "general", "one")
        await bot.says(question, "half,")
        await bot.channel.stop()
        assert server.connected == 0
        unheard = await bot.ask("ada", "general", "two")
        go_on.set()
        await bot.worker.stop(5)
        assert bot.texts(question) == ["half, and half."]
        assert bot.texts(unheard) == []
        assert len(await bot.inbox_rows()) == 1


async def test_what_cannot_end_in_time_says_so(server: DiscordSandbox, tmp_path: Path) -> None:
    async with running(server, tmp_path, [Say("half"), Pause(60)], grace=0.1) as bot:
        question = await bot.ask("ada", "general", "one")
        await bot.says(question, "half")
    assert bot.texts(question) == [f"half\n\n{words.INTERRUPTED}"]


async def test_what_a_process_has_left_is_told_by_the_next_one_in_the_same_message(
    server: DiscordSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(server, tmp_path, [Say("half"), Pause(60)], grace=0.1) as bot:
        question = await bot.ask("ada", "general", "one")
        await bot.says(question, "half")

        async def torn(*_: Any, **__: Any) -> None:
            raise StoreError("the process is gone")

        monkeypatch.setattr(bot.turns, "_execute", torn)
    async with running(server, tmp_path, "never asked") as bot:
        await bot.settled(1)
        assert bot.texts(question) == [f"half\n\n{words.INTERRUPTED}"] or bot.texts(question) == [words.INTERRUPTED]
        assert len(bot.own("general")) == 1


async def test_a_stop_leaves_no_task_and_no_open_connection(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        async with discord_of() as server:
            async with running(server, tmp_path, echo) as bot:
                await bot.says(await bot.ask("ada", "general", "hello"), "heard: Ada Lovelace: hello")
                await server.drop_sockets()
                await server.wait_connected()
            gc.collect()
        await until(lambda: asyncio.all_tasks() == before, seconds=1)


async def test_a_stop_is_seen_by_discord_as_one(server: DiscordSandbox, tmp_path: Path) -> None:
    async with running(server, tmp_path, echo):
        (session,) = server.sessions
    assert session.close_code == 1000


async def test_a_stop_does_not_wait_for_a_discord_that_says_nothing(
    server: DiscordSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "CLOSE_TIMEOUT", 0.1)
    async with running(server, tmp_path, echo, connect=False) as bot:
        server.faults.delay("GET /gateway/bot", 30)
        starting = asyncio.create_task(bot.channel.start())
        await server.wait_for(lambda: bot.calls("GET /gateway/bot"))
        async with asyncio.timeout(2):
            await bot.channel.stop()
        starting.cancel()
        await asyncio.wait([starting])


# A platform that is slow


async def test_the_model_is_never_held_up(
    server: DiscordSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, kept = "word " * 300, list[str]()
    answered = Turns.answered

    async def keep(self: Turns, turn_id: str, text: str, usage: Any) -> None:
        await answered(self, turn_id, text, usage)
        kept.append(text)

    monkeypatch.setattr(Turns, "answered", keep)
    async with running(server, tmp_path, [Say(story, pieces=300, pace=0.001)]) as bot:
        server.faults.delay(PATCH, 2)
        question = await bot.ask("ada", "general", "a long one")
        await server.wait_for(lambda: bot.calls(PATCH))
        await until(lambda: kept, seconds=1.5)
        assert [call.status for call in bot.calls(PATCH)] == [0]
        await bot.says(question, story.strip())


@pytest.mark.parametrize("end", ["reset", "stop"])
async def test_an_edit_in_flight_is_never_cancelled(server: DiscordSandbox, tmp_path: Path, end: str) -> None:
    async with running(server, tmp_path, [Say("half"), Pause(60)], grace=0) as bot:
        server.faults.delay(PATCH, 0.5)
        question = await bot.ask("ada", "general", "a long one")
        await server.wait_for(lambda: bot.calls(PATCH))
        if end == "reset":
            await bot.ask("ada", "general", "reset")
            await bot.says(question, f"half\n\n{words.RESET_STOPPED}")
    (answer,) = bot.answers(question)
    last = words.RESET_STOPPED if end == "reset" else words.INTERRUPTED
    assert [version.text for version in answer.versions] == [words.PLACEHOLDER, "half", f"half\n\n{last}"]
