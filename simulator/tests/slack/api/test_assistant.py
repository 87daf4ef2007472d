"""Agent sessions and suggested prompts of the local Slack, through slack_sdk."""

from typing import Any

import pytest
from slack_bolt.async_app import AsyncApp, AsyncAssistant
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackSimulator
from tests.slack.conftest import Connect, catch_error, create_client


async def test_a_session_keeps_its_first_title_until_a_rename(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    question = await slack.post_message("ada", "general", "why?")
    assert slack.find_session(question) is None
    for title in ("First", "Second"):
        about = {"channel_id": general, "thread_ts": question.ts, "status": "processing", "title": title}
        await client.agents_sessions_setStatus(**about)
    session = slack.find_session(question)
    assert session is not None
    assert (session.title, session.statuses) == ("First", ["processing", "processing"])
    await client.agents_sessions_rename(channel_id=general, thread_ts=question.ts, title="Third")
    assert session.title == "Third"


async def test_an_app_that_is_no_agent_has_no_sessions(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    slack.scopes.discard("assistant:write")
    question = await slack.post_message("ada", "general", "why?")
    call = client.agents_sessions_setStatus(channel_id=general, thread_ts=question.ts, status="processing")
    assert (await catch_error(call))["error"] == "missing_scope"


async def test_the_stop_button_exists_while_processing_and_ends_streams(
    slack: SlackSimulator, client: AsyncWebClient, connect: Connect
) -> None:
    await connect(slack, AsyncApp(client=create_client(slack)))
    direct = slack.open_dm("ada")
    question = await slack.post_message("ada", direct, "why?")
    with pytest.raises(ValueError, match="no stop button"):
        await slack.click_stop("ada", question)
    about = {"channel_id": direct.id, "thread_ts": question.ts}
    assert "warning" not in await client.agents_sessions_setStatus(**about, status="processing")
    ts = (await client.chat_startStream(channel=direct.id, thread_ts=question.ts, markdown_text="Since"))["ts"]
    await slack.click_stop("ada", question)
    await slack.wait_for(lambda: slack.envelopes[-1].payload["event"]["type"] == "agent_session_stopped")
    assert slack.envelopes[-1].payload["event"]["streaming_message_ts"] == [ts]
    body = await catch_error(client.chat_appendStream(channel=direct.id, ts=ts, markdown_text="!"))
    assert body["error"] == "message_not_in_streaming_state"
    session = slack.find_session(question)
    assert session is not None
    assert session.status == "processing"  # only the app ends the processing status
    await client.agents_sessions_setStatus(**about, status="active")
    with pytest.raises(ValueError, match="no stop button"):
        await slack.click_stop("ada", question)


async def test_an_app_without_the_stop_subscription_gets_a_warning_and_no_button(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    slack.subscriptions.discard("agent_session_stopped")
    question = await slack.post_message("ada", "general", "why?")
    answer = await client.agents_sessions_setStatus(channel_id=general, thread_ts=question.ts, status="processing")
    assert answer["warning"] == "missing_agent_session_stopped_event_subscription"
    with pytest.raises(ValueError, match="no stop button"):
        await slack.click_stop("ada", question)


async def test_four_prompts_can_be_suggested_outside_threads(slack: SlackSimulator, client: AsyncWebClient) -> None:
    direct = slack.open_dm("ada")
    prompts = [{"title": str(n), "message": f"Say {n}"} for n in range(5)]
    await client.assistant_threads_setSuggestedPrompts(channel_id=direct.id, prompts=prompts[:4], thread_ts="1.0")
    assert not direct.prompts
    await client.assistant_threads_setSuggestedPrompts(channel_id=direct.id, prompts=prompts[:4])
    assert direct.prompts[-1:] == (("3", "Say 3"),)
    call = client.assistant_threads_setSuggestedPrompts(channel_id=direct.id, prompts=prompts)
    assert (await catch_error(call))["error"] == "invalid_arguments"


async def test_a_thread_shows_a_status_until_the_app_posts(slack: SlackSimulator, client: AsyncWebClient) -> None:
    direct = slack.open_dm("ada")
    question = await slack.post_message("ada", direct, "why?")
    about: dict[str, Any] = {"channel_id": direct.id, "thread_ts": question.ts}
    await client.assistant_threads_setStatus(**about, status="is thinking...", loading_messages=["Reading", "Writing"])
    assert slack.get_loading_text(question) == "is thinking..."
    await client.assistant_threads_setStatus(**about, status="")
    assert slack.get_loading_text(question) == ""
    await client.assistant_threads_setStatus(**about, status="is thinking...")
    await slack.post_message("ada", direct, "well?", thread_ts=question.ts)
    assert slack.get_loading_text(question) == "is thinking..."
    await client.chat_postMessage(channel=direct.id, thread_ts=question.ts, text="Because.")
    assert slack.get_loading_text(question) == ""
    assert slack.find_session(question) is None


async def test_a_thread_status_ends_after_two_minutes() -> None:
    async with SlackSimulator(speed=1e9) as slack:
        question = await slack.post_message("ada", "general", "why?")
        client = create_client(slack)
        await client.assistant_threads_setStatus(
            channel_id=question.channel.id, thread_ts=question.ts, status="is reading"
        )
        assert slack.get_loading_text(question) == ""


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"channel_id": "C0NOTHING"}, "channel_not_found"),
        ({"thread_ts": "1.000001"}, "invalid_thread_ts"),
        ({"status": None}, "invalid_arguments"),
        ({"loading_messages": ["x"] * 11}, "invalid_arguments"),
    ],
)
async def test_an_invalid_thread_status_is_rejected(
    slack: SlackSimulator, client: AsyncWebClient, change: dict[str, Any], error: str
) -> None:
    question = await slack.post_message("ada", "general", "why?")
    about = {"channel_id": question.channel.id, "thread_ts": question.ts, "status": "is thinking..."} | change
    assert (await catch_error(client.api_call("assistant.threads.setStatus", json=about)))["error"] == error


async def test_either_scope_allows_a_thread_status(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    question = await slack.post_message("ada", "general", "why?")
    about: dict[str, Any] = {"channel_id": general, "thread_ts": question.ts, "status": "is thinking..."}
    slack.scopes.discard("assistant:write")
    await client.assistant_threads_setStatus(**about)
    slack.scopes.discard("chat:write")
    body = await catch_error(client.assistant_threads_setStatus(**about))
    assert (body["error"], body["needed"]) == ("missing_scope", "chat:write")


async def test_a_thread_has_a_title(slack: SlackSimulator, client: AsyncWebClient) -> None:
    direct = slack.open_dm("ada")
    question = await slack.post_message("ada", direct, "why?")
    await client.assistant_threads_setTitle(channel_id=direct.id, thread_ts=question.ts, title="Reasons")
    assert slack.get_thread_title(question) == "Reasons"
    call = client.assistant_threads_setTitle(channel_id=direct.id, thread_ts="1.000001", title="Reasons")
    assert (await catch_error(call))["error"] == "invalid_thread_ts"


async def test_bolts_assistant_starts_a_thread_and_follows_its_context(slack: SlackSimulator, connect: Connect) -> None:
    manifest = {
        "oauth_config": {"scopes": {"bot": ["assistant:write", "chat:write", "im:history", "channels:read"]}},
        "settings": {
            "socket_mode_enabled": True,
            "event_subscriptions": {
                "bot_events": ["assistant_thread_started", "assistant_thread_context_changed", "message.im"]
            },
        },
        "features": {"assistant_view": {"assistant_description": "Answers"}},
    }
    assert slack.install(manifest) == frozenset()
    app, assistant = AsyncApp(client=create_client(slack)), AsyncAssistant()
    contexts: list[Any] = []

    @assistant.thread_started
    async def start(say: Any, set_suggested_prompts: Any, get_thread_context: Any) -> None:
        contexts.append(await get_thread_context())
        await say("How can I help?")
        await set_suggested_prompts(prompts=[{"title": "Hello", "message": "Say hello"}])

    @assistant.thread_context_changed
    async def change(payload: dict[str, Any]) -> None:
        contexts.append(payload["assistant_thread"]["context"])

    @assistant.user_message
    async def answer(say: Any, set_status: Any, set_title: Any) -> None:
        await set_title("Reasons")
        await set_status("is thinking...")
        await say("Because.")

    app.use(assistant)
    await connect(slack, app)
    root = await slack.start_assistant_thread("ada", "general")
    direct = slack.open_dm("ada")
    await slack.wait_for(lambda: direct.prompts)
    await slack.change_assistant_context("ada", root, "random")
    await slack.wait_for(lambda: len(contexts) == 2)
    assert [context["channel_id"] for context in contexts] == [slack.channels[n].id for n in ("general", "random")]
    await slack.post_message("ada", direct, "why?", thread_ts=root.ts)
    await slack.wait_for(lambda: slack.messages(direct)[-1].text == "Because.")
    assert slack.get_thread_title(root) == "Reasons"
    assert direct.prompts == (("Hello", "Say hello"),)
