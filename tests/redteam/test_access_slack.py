"""Attempts of denied users to reach the bot in Slack, by every way."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from channels.access import AccessRules
from channels.commands import handlers
from channels.i18n import messages as words
from channels.slack.interactions.shortcuts import ASK, ASK_INPUT
from chatrig.models import CallTool, Pause, ReceivedRequest, Say, ScriptedResponse
from chatrig.slack import SlackSimulator
from core.errors import StoreError, SurfaceError
from core.tools.builtin.make_file import make_file
from core.tools.tool import to_adk_tool
from core.usage.user_rate_limits import CommandLimiter, RateLimit, RateLimitDenial, UserRateLimiter
from tests.channels.slack.conftest import WiredSlackBot, run_bot
from tests.channels.wiring import echo, find_tables_with
from tests.fixtures.buttons import wait_for_button


def contains(text: str, texts: list[str]) -> bool:
    return text in texts


def list_ephemeral_texts(bot: WiredSlackBot, user: str) -> list[str]:
    """Return the texts of the bot's ephemeral messages to a user."""
    places = [*bot.slack.channels.values(), bot.slack.open_dm(user)]
    return [m.text for p in places for m in bot.slack.messages(p) if m.ephemeral_to == bot.slack.people[user].id]


def list_public_texts(bot: WiredSlackBot, channel: str = "general") -> list[str]:
    """Return the texts of the bot's messages in a channel that all users see."""
    own = bot.slack.bot_user_id
    return [m.text for m in bot.slack.messages(channel) if m.user == own and m.ephemeral_to is None]


async def wait_until_processed(bot: WiredSlackBot, n: int = 0) -> None:
    """Wait until the bot has processed all earlier messages.

    It posts a message as another user, and waits for the answer.

    Args:
        n: the number in the message, for repeated calls.
    """
    last = await bot.mention_bot("linus", "random", f"last {n}")
    await bot.wait_for_texts(last, lambda texts: f"heard: linus: last {n}" in texts)
    await bot.slack.wait_for(lambda: all(envelope.acknowledged_at for envelope in bot.slack.envelopes))
    await bot.adapter._intake.drain(20)


async def wait_for_inbox_rows(bot: WiredSlackBot, count: int) -> None:
    """Wait until the inbox has at least `count` rows."""
    await bot.database.wait_until(bot.list_inbox_messages, lambda rows: len(rows) >= count)


async def test_a_blocked_user_is_denied_everywhere_and_told_once(slack: SlackSimulator, tmp_path: Path) -> None:
    rules = AccessRules(block=frozenset({f"user:{slack.people['grace'].id}"}))
    async with run_bot(slack, tmp_path, echo, rules=rules) as bot:
        question = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_texts(question, lambda texts: "heard: ada: one" in texts)
        (answer,) = [m for m in bot.list_thread(question) if m.user == slack.bot_user_id]
        requests, replies = len(bot.model.requests), list_public_texts(bot)
        await bot.mention_bot("grace", "general", "sesame open")
        await slack.wait_for(lambda: list_ephemeral_texts(bot, "grace") == [words.USER_NOT_ALLOWED])
        await bot.mention_bot("grace", "general", "sesame open", thread_ts=question.ts)
        await slack.post_message("grace", "general", "sesame too", thread_ts=question.ts)
        await slack.post_message("grace", slack.open_dm("grace"), "sesame alone")
        edited = await slack.post_message("grace", "general", "sesame quiet")
        await slack.edit_message("grace", edited, f"{bot.mention} sesame quiet")
        for command in ("/reset", "/stop", "/help", "/info", "/model", "/export"):
            await slack.run_command("grace", "general", command)
        for label in answer.buttons.values():
            await slack.click_button("grace", answer, label)
        for shortcut in slack.shortcuts:
            await slack.use_shortcut("grace", question, shortcut)
        await slack.open_home("grace")
        await wait_until_processed(bot)
        assert list_ephemeral_texts(bot, "grace") == [words.USER_NOT_ALLOWED]
        assert slack.modals("grace") == []
        assert list_public_texts(bot) == replies
        assert len(bot.model.requests) == requests + 1
        assert len(await bot.list_inbox_messages()) == 2
        assert await find_tables_with(bot, "sesame") == []


async def test_a_modal_opened_before_a_block_is_denied(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, echo) as bot:
        message = await slack.post_message("ada", "general", "this")
        await slack.use_shortcut("grace", message, ASK)
        (view,) = await slack.wait_for(lambda: slack.modals("grace"))
        bot.services.access_policy._rules = {
            "slack": AccessRules(block=frozenset({f"user:{slack.people['grace'].id}"}))
        }
        await slack.submit_modal(view, **{ASK_INPUT: "let me in"})
        await slack.wait_for(lambda: list_ephemeral_texts(bot, "grace") == [words.USER_NOT_ALLOWED])
        assert await bot.list_inbox_messages() == []


async def test_external_users_and_bots_need_an_allow_rule(slack: SlackSimulator, tmp_path: Path) -> None:
    slack.add_user("eve", team_id="T0OUTSIDE")
    async with run_bot(slack, tmp_path, echo) as bot:
        message = await bot.mention_bot("eve", "general", "hello")
        await slack.post_as_other_bot("robot", "general", f"{bot.mention} hello")
        await slack.use_shortcut("eve", message, ASK)
        await wait_until_processed(bot)
        assert len(await bot.list_inbox_messages()) == 1
        assert (list_ephemeral_texts(bot, "eve"), slack.modals("eve")) == ([words.USER_NOT_ALLOWED], [])
        assert list_public_texts(bot) == []
    named = AccessRules(frozenset({"workspace:T0OUTSIDE", f"workspace:{slack.team_id}"}))
    async with run_bot(slack, tmp_path, echo, rules=named) as bot:
        for user in ("eve", "ada"):
            question = await bot.mention_bot(user, "general", "again")
            await bot.wait_for_texts(question, partial(contains, f"heard: {user}: again"))
    async with run_bot(slack, tmp_path, echo, external=True) as bot:
        question = await bot.mention_bot("eve", "general", "and now")
        await bot.wait_for_texts(question, partial(contains, "heard: eve: and now"))
        sessions = {row.session for row in await bot.list_turns()}
        assert {session.split(":")[1] for session in sessions} == {slack.team_id}, "it belongs to who has the bot"


async def test_a_user_group_allows_its_members_and_a_failed_lookup_denies(
    slack: SlackSimulator, tmp_path: Path
) -> None:
    group = slack.add_user_group("team", ["ada"]).id
    rules = AccessRules(frozenset({f"role:{group}"}))
    slack.scopes.discard("usergroups:read")
    async with run_bot(slack, tmp_path, echo, rules=rules) as bot:
        await bot.mention_bot("ada", "general", "early")
        await slack.wait_for(lambda: [call for call in slack.calls if call.error == "missing_scope"])
        assert await bot.list_inbox_messages() == []
        slack.scopes.add("usergroups:read")
        question = await bot.mention_bot("ada", "general", "now")
        await bot.wait_for_texts(question, lambda texts: "heard: ada: now" in texts)
        await bot.mention_bot("grace", "general", "I too")
        await slack.wait_for(lambda: list_ephemeral_texts(bot, "grace") == [words.USER_NOT_ALLOWED])
        inbox_row = next(row for row in await bot.list_inbox_messages() if row.message)
        assert inbox_row.message["actor"]["roles"] == [group]


async def test_queued_messages_of_a_newly_blocked_user_are_not_answered(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, echo) as bot:
        bot.services.access_policy._rules = {"slack": AccessRules()}
        bot.worker._limit = 0
        question = await bot.mention_bot("grace", "general", "one")
        await bot.mention_bot("ada", "general", "two", thread_ts=question.ts)
        lonely = await bot.mention_bot("grace", "random", "three")
        await wait_for_inbox_rows(bot, 3)
        bot.services.access_policy._rules = {
            "slack": AccessRules(block=frozenset({f"user:{slack.people['grace'].id}"}))
        }
        bot.worker._limit = 9
        bot.worker.wake()
        await bot.wait_for_texts(question, lambda texts: "heard: ada: two" in texts)
        await bot.wait_for_texts(lonely, lambda texts: words.ACCESS_REVOKED in texts)
        assert sorted(row.state for row in await bot.wait_for_turns(2)) == ["cancelled", "done"]
        assert len(bot.model.requests) == 1


@pytest.mark.parametrize("block", [True, False])
async def test_a_running_turn_reads_no_message_of_an_author_who_lost_access(
    slack: SlackSimulator, tmp_path: Path, *, block: bool
) -> None:
    may_call = asyncio.Event()

    def answer(request: ReceivedRequest) -> ScriptedResponse:
        if request.tool_results or "look" not in request.text:
            return echo(request)
        return [Pause(may_call), CallTool("make_file", {"name": "a.txt", "content": "a"})]

    async with run_bot(slack, tmp_path, answer, core={"tools": [to_adk_tool(make_file)], "is_steered": True}) as bot:
        bot.services.access_policy._rules = {"slack": AccessRules()}
        question = await bot.mention_bot("grace", "general", "look")
        await bot.wait_for_texts(question, lambda texts: words.PLACEHOLDER in texts)
        await bot.mention_bot("grace", "general", "sesame", thread_ts=question.ts)
        await wait_for_inbox_rows(bot, 2)
        if block:
            rule = AccessRules(block=frozenset({f"user:{slack.people['grace'].id}"}))
            bot.services.access_policy._rules = {"slack": rule}
        may_call.set()
        await bot.wait_for_turns(2 if block else 1)
        assert any("sesame" in str(request) for request in bot.model.requests) is not block


async def test_a_rate_limited_user_is_told_once_and_loses_no_message(slack: SlackSimulator, tmp_path: Path) -> None:
    core = {"rates": UserRateLimiter(user=RateLimit(2, 3600))}
    async with run_bot(slack, tmp_path, echo, core=core) as bot:
        questions = [await bot.mention_bot("ada", "general", f"question {n}") for n in range(5)]
        await wait_until_processed(bot)
        for n in range(2):
            await bot.wait_for_texts(questions[n], partial(contains, f"heard: ada: question {n}"))
        assert list_ephemeral_texts(bot, "ada") == [words.ENGLISH(words.MESSAGE_LIMIT_REACHED, minutes=60)]
        await slack.click_button(
            "ada", *await wait_for_button(slack, words.REGENERATE, lambda: bot.list_thread(questions[0]))
        )
        await slack.wait_for(lambda: len(list_ephemeral_texts(bot, "ada")) == 2)
        assert len(bot.model.requests) == 3


async def test_long_commands_of_one_user_do_not_delay_others(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: Any
) -> None:
    read = list[str]()

    def record_name(name: str) -> str:
        read.append(name)
        return name

    monkeypatch.setattr(handlers, "_quote_name", record_name)
    async with run_bot(slack, tmp_path, echo) as bot:
        commands = [await bot.mention_bot("linus", "general", f"model {'a' * 39_000}") for _ in range(6)]
        question = await bot.mention_bot("grace", "random", "hello")
        async with asyncio.timeout(2):
            await bot.wait_for_texts(question, partial(contains, "heard: grace: hello"))
        for command in commands:
            await bot.wait_for_texts(command, lambda texts: len(texts) == 2)
        assert read == ["a" * handlers.MAX_ARGUMENT_CHARACTERS] * 6


async def test_rate_limited_commands_are_denied_in_one_sentence(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RateLimitDenial, "minutes", 60)
    async with run_bot(slack, tmp_path, echo) as bot:
        bot.adapter._intake.commands._limiter = CommandLimiter(RateLimit(2, 3600))
        questions = [await bot.mention_bot("ada", "general", "help") for _ in range(5)]
        theirs = await bot.mention_bot("grace", "general", "help")
        await wait_until_processed(bot)
        assert sorted(len(bot.list_thread(question)) for question in questions) == [1, 1, 1, 2, 2]
        assert len(bot.list_thread(theirs)) == 2
        refusal = words.ENGLISH(words.COMMAND_LIMIT_REACHED, minutes=60)
        assert list_ephemeral_texts(bot, "ada") == [refusal]
        responses = await slack.run_command("ada", "general", "/help")
        await slack.wait_for(lambda: [response.text for response in responses] == [refusal])
        question = await bot.mention_bot("ada", "general", "question")
        await bot.wait_for_texts(question, partial(contains, "heard: ada: question"))


async def test_access_rules_hold_during_a_database_outage(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: Any
) -> None:
    async def raise_store_error(*_: Any, **__: Any) -> bool:
        raise StoreError("out of reach")

    rules = AccessRules(block=frozenset({f"user:{slack.people['grace'].id}"}))
    async with run_bot(slack, tmp_path, echo, rules=rules) as bot:
        monkeypatch.setattr(type(bot.services.denial_notices), "claim_notice", raise_store_error)
        await bot.mention_bot("grace", "general", "hello")
        await wait_until_processed(bot)
        assert (list_ephemeral_texts(bot, "grace"), len(await bot.list_inbox_messages())) == ([], 1)


async def test_an_unresolved_user_is_denied_and_told(slack: SlackSimulator, tmp_path: Path) -> None:
    slack.add_user("mina", locale="ko-KR")
    rules = AccessRules(frozenset({f"role:{slack.add_user_group('team', ['mina']).id}"}))
    async with run_bot(slack, tmp_path, echo, rules=rules) as bot:
        question = await bot.mention_bot("mina", "general", "one")
        await bot.wait_for_texts(question, lambda texts: "heard: mina: one" in texts)
        (answer,) = [m for m in bot.list_thread(question) if m.user == slack.bot_user_id]
        groups = bot.platform.directory._groups
        groups._fresh.clear()
        groups._last.clear()
        slack.scopes.discard("usergroups:read")
        sorry = words.messages_for("ko").format_error(SurfaceError.public)
        responses = await slack.run_command("mina", "general", "/reset")
        await slack.wait_for(lambda: [response.text for response in responses] == [sorry])
        await slack.click_button("mina", answer, next(iter(answer.buttons.values())))
        await slack.wait_for(lambda: list_ephemeral_texts(bot, "mina") == [sorry] * 2)


async def test_a_denied_stop_button_press_is_answered_in_the_users_language(
    slack: SlackSimulator, tmp_path: Path
) -> None:
    slack.add_user("mina", locale="ko-KR")
    async with run_bot(slack, tmp_path, [Say("Once"), Pause(60)], stop_timeout=0.1) as bot:
        question = await slack.post_message("mina", slack.open_dm("mina"), "a story")
        await bot.wait_for_texts(question, lambda texts: texts[-1] == "Once")
        bot.services.access_policy._rules = {"slack": AccessRules(block=frozenset({f"user:{slack.people['mina'].id}"}))}
        await slack.click_stop("mina", question)
        await slack.wait_for(
            lambda: list_ephemeral_texts(bot, "mina") == [words.messages_for("ko")(words.USER_NOT_ALLOWED)]
        )
