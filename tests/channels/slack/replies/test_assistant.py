"""Status, title and suggested prompts of Slack's assistant threads."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.client.api import SlackApi
from channels.slack.replies import assistant
from channels.slack.settings import DEFAULT_PROMPTS
from chatrig.models import Pause, Say
from chatrig.slack import SlackSimulator
from tests.channels.slack.conftest import WiredSlackBot, run_bot
from tests.channels.wiring import echo


async def test_a_user_who_opens_the_direct_messages_gets_suggested_prompts(
    slack: SlackSimulator, bot: WiredSlackBot
) -> None:
    await slack.open_home("ada", "home")
    await slack.open_home("ada")
    direct = slack.open_dm("ada")
    await slack.wait_for(lambda: direct.prompts == tuple((prompt, prompt) for prompt in DEFAULT_PROMPTS))
    assert [call.error for call in slack.calls if call.method.startswith("assistant.")] == [None]
    assert all(envelope.acknowledged_at for envelope in slack.envelopes)


async def test_without_prompts_nothing_is_suggested(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, echo, prompts=()) as bot:
        await slack.open_home("ada")
        question = await slack.post_message("ada", slack.open_dm("ada"), "hello")
        await bot.wait_for_texts(question, lambda texts: "heard: hello" in texts)
        assert not [call for call in slack.calls if call.method.startswith("assistant.")]


@pytest.mark.parametrize("streaming", ["edit", "native"])
async def test_a_thread_has_a_title_and_a_status_while_its_reply_grows(
    slack: SlackSimulator, tmp_path: Path, streaming: str
) -> None:
    go_on = asyncio.Event()
    script = [[Say("Because "), Pause(go_on), Say("of Rayleigh.")], "And so on."]
    async with run_bot(slack, tmp_path, *script, streaming=streaming) as bot:  # type: ignore[arg-type]  # by its name
        question = await bot.mention_bot(
            "ada", "general", "why is the sky <https://blue.example|blue> &amp; not green?"
        )
        session = await slack.wait_for(lambda: slack.find_session(question))
        assert session is not None
        assert session.statuses == ["processing"]
        assert session.title == "why is the sky blue (https://blue.example) & not green?"
        go_on.set()
        await slack.wait_for(lambda: session.status == "active")
        assert bot.list_texts(question)[-1] == "Because of Rayleigh."
        await bot.mention_bot("ada", "general", "go on", thread_ts=question.ts)
        await bot.wait_for_texts(question, lambda texts: texts[-1] == "And so on.")
        await slack.wait_for(lambda: session.statuses == ["processing", "active"] * 2)
        assert session.title.startswith("why is the sky")


async def test_a_thread_keeps_its_status_between_the_streams_of_a_reply(slack: SlackSimulator, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    script = [Say("word " * 3_000), Pause(go_on), Say("end.")]
    async with run_bot(slack, tmp_path, script, streaming="native") as bot:
        question = await bot.mention_bot("ada", "general", "a story")
        await slack.wait_for(lambda: any(call.method == "chat.stopStream" and call.status for call in slack.calls))
        session = slack.find_session(question)
        assert session is not None
        assert set(session.statuses) == {"processing"}
        go_on.set()
        await slack.wait_for(lambda: session.status == "active")


async def test_without_the_agent_scope_the_bot_answers_and_pauses_status_calls(
    slack: SlackSimulator, bot: WiredSlackBot
) -> None:
    slack.scopes.discard("assistant:write")
    for text in ("one", "two"):
        question = await slack.post_message("ada", slack.open_dm("ada"), text)
        await bot.wait_for_texts(question, lambda texts: f"heard: {text}" in texts)  # noqa: B023 (it is waited for here)
        await bot.platform._assistant.drain(5)
    statuses = [call.arguments["status"] for call in slack.calls if call.method == "agents.sessions.setStatus"]
    assert set(statuses) <= {"processing", "active"}
    assert len(statuses) <= 2


async def test_the_status_of_a_thread_is_cleared_after_a_crash(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, [Say("Once"), Pause(60)], "Once upon a time.") as bot:
        question = await bot.mention_bot("ada", "general", "a story")
        await bot.wait_for_texts(question, lambda texts: "Once" in texts)
        session = slack.find_session(question)
        assert session is not None

        async def drop_response(*_: Any, **__: Any) -> None: ...

        with pytest.MonkeyPatch.context() as dead:
            dead.setattr(assistant.AssistantThreads, "_call", drop_response)
            await bot.restart_worker()
        assert session.status == "processing"
        await bot.wait_for_texts(question, lambda texts: "Once upon a time." in texts)
        await slack.wait_for(lambda: session.status == "active")


async def test_with_scarce_calls_each_started_status_is_ended(slack: SlackSimulator, web: AsyncWebClient) -> None:
    threads, direct = assistant.AssistantThreads(SlackApi(web)), slack.open_dm("ada")
    questions = [await slack.post_message("ada", direct, str(n)) for n in range(60)]
    with ExitStack() as at_work:
        for question in questions:
            address = {"team": slack.team_id, "channel": direct.id, "thread_ts": question.ts}
            at_work.enter_context(threads.show_processing(address, lambda: False))
    await threads.drain(10)
    sessions = [session for question in questions if (session := slack.find_session(question))]
    assert 15 < len(sessions) < 30
    assert {tuple(session.statuses) for session in sessions} == {("processing", "active")}
    assert not [call for call in slack.calls if call.rate_limited]
