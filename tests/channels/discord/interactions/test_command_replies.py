"""Responses to slash and message commands on Discord, most of them ephemeral."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from channels.discord.client import responses
from channels.i18n import messages as words
from channels.i18n.messages import ENGLISH
from channels.intake.handler import IntakeHandler
from channels.rate_limits.limiter import Window
from chatrig.discord import DiscordMessage, DiscordSimulator
from chatrig.models import Pause, Say
from core.errors import StoreError
from core.inbox.store import InboxStore
from core.sessions.agent_routing import AgentProfile, AgentRouter
from core.sessions.prompt_text import QUOTE_END
from core.usage.user_rate_limits import RateLimit, UserRateLimiter
from tests.channels.discord.conftest import ANSWER, CALLBACK, FOLLOW_UP, POST, WiredDiscordBot, run_bot, wait_until
from tests.channels.wiring import MODELS, echo


async def wait_for_response(bot: WiredDiscordBot, messages: list[DiscordMessage], text: str) -> DiscordMessage:
    """Wait until a command has one response with this text; it must be ephemeral.

    Args:
        messages: the responses of the command, which the simulator appends.
    """
    await bot.server.wait_for(lambda: [message.content.text for message in messages] == [text])
    assert messages[0].ephemeral_to is not None
    return messages[0]


async def get_response_text(bot: WiredDiscordBot, seen: list[DiscordMessage]) -> str:
    """Wait until a command's response has its text, and return the text.

    Args:
        messages: the responses of the command, which the simulator appends.
    """
    await bot.server.wait_for(lambda: not seen[0].loading)
    return seen[0].content.text


# Commands


async def test_help_lists_the_commands_in_the_language_of_the_user(
    server: DiscordSimulator, bot: WiredDiscordBot
) -> None:
    help_text = await get_response_text(bot, await server.run_command("ada", "general", "help"))
    for command in server.commands:
        assert (f"`/{command['name']}" if command["type"] == 1 else f"*{command['name']}*") in help_text
    server.set_locale("linus", "ko")
    help_text = await get_response_text(bot, await server.run_command("linus", "general", "help"))
    assert all(
        words.messages_for("ko")(text) in help_text for text in (words.HELP_COMMANDS, words.ASK_HELP, words.ASK_ABOUT)
    )


async def test_a_model_is_chosen_and_its_name_completed(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    await bot.wait_for_replies(await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one")
    assert await server.autocomplete_option("ada", "general", "model", "name", "OTH") == [MODELS[1]]
    assert await server.autocomplete_option("ada", "general", "model", "name", "") == list(MODELS)
    responses = await server.run_command("ada", "general", "model", name=MODELS[1])
    await wait_for_response(bot, responses, ENGLISH(words.MODEL_CHANGED, model=MODELS[1]))
    assert ENGLISH(words.CURRENT_MODEL, model=MODELS[1]) in await get_response_text(
        bot, await server.run_command("ada", "general", "model")
    )


async def test_the_selectable_models_are_those_of_the_agent(server: DiscordSimulator, tmp_path: Path) -> None:
    fixed, free = AgentProfile("parley", MODELS[:1]), AgentProfile("free", MODELS, selectable_at=None)
    core = {"agents": AgentRouter("parley", {"parley": fixed, "free": free})}
    async with run_bot(server, tmp_path, echo, core=core) as bot:
        assert await server.autocomplete_option("ada", "general", "model", "name", "") == [MODELS[0]]
        await wait_for_response(
            bot,
            await server.run_command("ada", "general", "agent", name="free"),
            ENGLISH(words.AGENT_CHANGED, agent="free"),
        )
        assert await server.autocomplete_option("ada", "general", "model", "name", "") == list(MODELS)
        responses = await server.run_command("ada", "general", "model", name=MODELS[1])
        await wait_for_response(bot, responses, ENGLISH(words.MODEL_CHANGED, model=MODELS[1]))
        text = await get_response_text(bot, await server.run_command("ada", "general", "model"))
        assert ENGLISH(words.CURRENT_MODEL, model=MODELS[1]) in text


@pytest.mark.parametrize("lacking", ["view_channel", "send_messages"])
async def test_a_user_who_may_not_write_gets_no_answer(
    server: DiscordSimulator, bot: WiredDiscordBot, lacking: str
) -> None:
    server.deny_permissions("grace", lacking)
    message = await server.post_message("ada", "general", "this")
    for seen in (
        await server.run_command("grace", "general", "reset"),
        await server.run_command("grace", "general", "ask", question="why?"),
        await server.run_message_command("grace", message, words.ASK_ABOUT),
    ):
        await wait_for_response(bot, seen, words.NO_WRITE_PERMISSION)
    assert await server.autocomplete_option("grace", "general", "model", "name", "o") == []
    assert await bot.list_inbox_messages() == []


async def test_a_thread_has_a_permission_of_its_own(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    thread = await server.start_thread("ada", await server.post_message("ada", "general", "a root"), "a thread")
    server.deny_permissions("grace", "send_messages")
    await wait_for_response(bot, await server.run_command("grace", thread, "stop"), words.NOTHING_TO_RESET)
    server.deny_permissions("grace", "send_messages_in_threads")
    await wait_for_response(bot, await server.run_command("grace", thread, "stop"), words.NO_WRITE_PERMISSION)


# Questions


async def test_a_question_by_command_is_public_and_in_the_same_session(
    server: DiscordSimulator, bot: WiredDiscordBot
) -> None:
    for place in ("general", server.open_dm("ada")):
        name, indent = ("Ada Lovelace: ", "  ") if place == "general" else ("", "")
        await bot.wait_for_replies(await bot.mention_bot("ada", place, "one"), f"heard: {name}one")
        (response,) = await server.run_command("ada", place, "ask", question="two\n@everyone")
        await bot.wait_for_replies(response, f"heard: {name}two\n{indent}@\u200beveryone")
        assert (response.text, response.ephemeral_to) == ("> two @everyone", None)
        assert len(bot.list_model_messages()) == 2
    assert bot.list_calls(CALLBACK)[0].body == {"type": 5}


async def test_a_question_by_command_starts_a_thread_if_so_configured(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo, auto_thread=True) as bot:
        (response,) = await server.run_command("ada", "general", "ask", question="why?")
        await server.wait_for(lambda: response.thread and bot.list_bot_messages(response.thread))
        assert response.thread is not None
        texts = ["", "heard: Ada Lovelace: why?"]  # the first is the thread's system message, which shows the question
        await server.wait_for(lambda: [m.text for m in bot.list_bot_messages(response.thread or "")] == texts)


async def test_a_message_is_asked_about_without_the_intent(server: DiscordSimulator, tmp_path: Path) -> None:
    server.privileged_intents.clear()
    async with run_bot(server, tmp_path, echo) as bot:
        message = await server.post_message("grace", "general", "the sky\nis green")
        (response,) = await server.run_message_command("ada", message, words.ASK_ABOUT)
        await bot.wait_for_replies(response, f"heard: Ada Lovelace: {words.ABOUT_THIS}")
        (read,) = bot.list_model_messages()
        assert "The message that the next message is about" in read
        assert f"> Grace Hopper: the sky\n>     is green\n{QUOTE_END}" in read
        server.set_locale("grace", "ko")
        (second,) = await server.run_message_command("grace", message, words.ASK_ABOUT)
        await bot.wait_for_replies(second, f"heard: Grace Hopper: {words.messages_for('ko')(words.ABOUT_THIS)}")
        link = f"https://discord.com/channels/{server.guild_id}/{message.channel.id}/{message.id}"
        assert response.content.text == f"> the sky is green\n-# {link}"


async def test_an_empty_message_cannot_be_asked_about(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    pinned = await server.pin_message("ada", await server.post_message("ada", "general", "this"))
    await wait_for_response(
        bot, await server.run_message_command("ada", pinned, words.ASK_ABOUT), words.NO_READABLE_TEXT
    )


async def test_a_question_that_cannot_be_stored_is_reported_privately(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def raise_store_error(self: InboxStore, inbound: Any) -> None:
        raise StoreError("out of reach")

    async with run_bot(server, tmp_path, echo) as bot:
        monkeypatch.setattr(InboxStore, "accept", raise_store_error)
        responses = await server.run_command("ada", "general", "ask", question="why?")
        await server.wait_for(lambda: len(responses) == 2)
        assert responses[0].deleted
        await wait_for_response(bot, responses[1:], ENGLISH.format_error(StoreError.public))
        assert bot.list_calls(POST) == []


async def test_a_rate_limited_question_leaves_no_message_and_no_thread(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = {"rates": UserRateLimiter(user=RateLimit(1, 3600))}
    async with run_bot(server, tmp_path, echo, core=core, auto_thread=True) as bot:
        (response,) = await server.run_command("ada", "general", "ask", question="one")
        await server.wait_for(lambda: response.thread and len(bot.list_bot_messages(response.thread)) == 2)
        refusal = ENGLISH(words.MESSAGE_LIMIT_REACHED, minutes=60)
        for _ in range(2):  # every refusal is sent
            await wait_for_response(bot, await server.run_command("ada", "general", "ask", question="two"), refusal)
        await wait_for_response(
            bot,
            await server.run_message_command(
                "ada", await server.post_message("ada", "general", "this"), words.ASK_ABOUT
            ),
            refusal,
        )
        await bot.mention_bot("ada", "general", "three")
        await server.wait_for(lambda: bot.list_bot_messages(server.open_dm("ada")))
        assert len(server.threads("general")) == 1

        async def find_no_limit(self: IntakeHandler, *_: Any) -> None:
            """Report no rate limit, as for concurrent questions: the insert reaches it."""

        monkeypatch.setattr(IntakeHandler, "find_rate_limit_denial", find_no_limit)
        responses = await server.run_command("ada", "general", "ask", question="four")
        await server.wait_for(lambda: len(responses) == 2)
        await wait_for_response(bot, responses[1:], refusal)
        assert responses[0].deleted
        assert [message.text for message in bot.list_bot_messages("general") if message.ephemeral_to is None] == [
            "> one"
        ]


# Ephemeral answers


@pytest.mark.parametrize("where", ["group", "abroad", "forbidden"])
async def test_an_answer_is_ephemeral_if_the_bot_cannot_write(
    server: DiscordSimulator, tmp_path: Path, where: str
) -> None:
    match where:
        case "group":
            place = server.open_group_dm("us", "ada", "grace")
        case "abroad":
            place = server.add_foreign_channel("there", "ada", "grace")
        case _:
            place = server.channels["general"]
            server.permissions.discard("send_messages")
    async with run_bot(server, tmp_path, echo) as bot:
        responses = await server.run_command("ada", place, "ask", question="one")
        await wait_for_response(bot, responses, "heard: one")
        await bot.wait_for_turns(1)
        message = await server.post_message("grace", place, "the sky is green")
        await wait_for_response(
            bot, await server.run_message_command("ada", message, words.ASK_ABOUT), f"heard: {words.ABOUT_THIS}"
        )
        assert len(bot.list_model_messages()) == 2
        await wait_for_response(
            bot, await server.run_message_command("grace", message, words.ASK_ABOUT), f"heard: {words.ABOUT_THIS}"
        )
        assert len(bot.list_model_messages()) == 1
        assert bot.list_calls(POST) == []
        await wait_for_response(bot, await server.run_command("ada", place, "reset"), words.RESET_DONE)


@pytest.mark.parametrize(("max_chunks", "expected_count"), [(5, 5), (20, 6)])
async def test_a_long_ephemeral_answer_ends_with_the_whole_as_a_file(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_chunks: int, expected_count: int
) -> None:
    monkeypatch.setattr(
        responses, "TOKEN_WINDOW", Window(calls=50, seconds=1.0)
    )  # a shorter window keeps the test fast
    story = "\n\n".join(f"{number}: {'word ' * 300}".strip() for number in range(9))
    async with run_bot(server, tmp_path, story, max_chunks=max_chunks) as bot:
        seen = await server.run_command("ada", server.open_group_dm("us", "ada"), "ask", question="a story")
        await server.wait_for(lambda: len(seen) == expected_count and seen[-1].content.attachments)
        assert [message.ephemeral_to is not None for message in seen] == [True] * expected_count
        assert seen[-1].content.attachments[0].data.decode() == story
        assert seen[-1].content.text.endswith(words.FULL_ANSWER_IN_FILE)
        assert len(bot.list_calls(FOLLOW_UP)) == expected_count - 1
        assert (await bot.wait_for_turns(1))[0].state == "done"


@pytest.mark.parametrize(("fault", "expected_count"), [("fail", 2), ("lose_response", 3)])
async def test_a_failed_follow_up_message_of_a_growing_answer_is_posted_again(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, expected_count: int
) -> None:
    monkeypatch.setattr(responses, "TOKEN_WINDOW", Window(calls=50, seconds=1.0))
    first, second = ("one " * 400).strip(), ("two " * 400).strip()
    script = [Say(first), Pause(0.5), Say(f"\n\n{second}", pieces=8, pace=0.3)]
    async with run_bot(server, tmp_path, script) as bot:
        getattr(server.faults, fault)(FOLLOW_UP)
        messages = await server.run_command("ada", server.open_group_dm("us", "ada"), "ask", question="a story")
        assert (await bot.wait_for_turns(1))[0].state == "done"
        assert [messages[0].text, messages[-1].text] == [first, second]
        assert len(messages) == expected_count  # a message without a response cannot be found, and stays


async def test_an_ephemeral_answer_can_be_stopped_and_rated_only(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, [Say("half"), Pause(60)], "whole"):
        group = server.open_group_dm("us", "ada")
        (answer,) = await server.run_command("ada", group, "ask", question="one")
        await server.wait_for(lambda: answer.text == "half")
        assert list(answer.buttons) == [words.STOP]
        await server.click_button("ada", answer, answer.buttons[words.STOP])
        await server.wait_for(lambda: answer.text == f"half\n\n{words.STOPPED}")
        (full_answer,) = await server.run_command("ada", group, "ask", question="two")
        await server.wait_for(
            lambda: full_answer.text == "whole" and list(full_answer.buttons) == [words.GOOD_ANSWER, words.BAD_ANSWER]
        )
        responses = await server.click_button("ada", full_answer, full_answer.buttons[words.GOOD_ANSWER])
        await server.wait_for(lambda: [response.text for response in responses] == [words.FEEDBACK_THANKS])


async def test_an_interrupted_ephemeral_answer_is_continued_by_the_next_process(
    server: DiscordSimulator, tmp_path: Path
) -> None:
    async with run_bot(server, tmp_path, [Say("half"), Pause(60)], "All of it.") as bot:
        (answer,) = await server.run_command("ada", server.open_group_dm("us", "ada"), "ask", question="one")
        await server.wait_for(lambda: answer.text == "half")
        await bot.restart_worker()
        await server.wait_for(lambda: answer.text == "All of it.")


async def test_an_ephemeral_answer_after_the_token_has_expired_ends_its_turn(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()
    async with run_bot(server, tmp_path, [Say("half"), Pause(go_on), Say("!")]) as bot:
        (answer,) = await server.run_command("ada", server.open_group_dm("us", "ada"), "ask", question="one")
        await server.wait_for(lambda: answer.text == "half")
        monkeypatch.setattr("chatrig.discord.interactions.delivery.TOKEN_LIFETIME_SECONDS", 0.0)
        go_on.set()
        await wait_until(lambda: "the reply cannot be shown: RefusedError: answer: 50027" in caplog.text)
        assert (await bot.wait_for_turns(1))[0].state == "failed"


async def test_an_ephemeral_question_does_not_stop_the_backfill(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo) as bot:
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one")
        group = server.open_group_dm("us", "ada")
        await wait_for_response(bot, await server.run_command("ada", group, "ask", question="two"), "heard: two")
    missed = await bot.mention_bot("ada", "general", "three")
    async with run_bot(server, tmp_path, echo) as bot:
        await bot.wait_for_replies(missed, "heard: Ada Lovelace: three")


async def test_a_transient_failure_of_an_ephemeral_answer_is_retried(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo) as bot:
        server.faults.fail(ANSWER, status=503)
        responses = await server.run_command("ada", server.open_group_dm("us", "ada"), "ask", question="one")
        await wait_for_response(bot, responses, "heard: one")
