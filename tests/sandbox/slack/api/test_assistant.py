"""Agent sessions and suggested prompts, through slack_sdk."""

import pytest
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from sandbox.slack import SlackSandbox
from tests.sandbox.slack.conftest import Connect, catch_error, create_client


async def test_a_session_keeps_its_first_title_until_a_rename(
    slack: SlackSandbox, client: AsyncWebClient, general: str
) -> None:
    asked = await slack.post_message("ada", "general", "why?")
    assert slack.find_session(asked) is None
    for title in ("First", "Second"):
        about = {"channel_id": general, "thread_ts": asked.ts, "status": "processing", "title": title}
        await client.agents_sessions_setStatus(**about)
    session = slack.find_session(asked)
    assert session is not None
    assert (session.title, session.statuses) == ("First", ["processing", "processing"])
    await client.agents_sessions_rename(channel_id=general, thread_ts=asked.ts, title="Third")
    assert session.title == "Third"


async def test_an_app_that_is_no_agent_has_no_sessions(
    slack: SlackSandbox, client: AsyncWebClient, general: str
) -> None:
    slack.scopes.discard("assistant:write")
    asked = await slack.post_message("ada", "general", "why?")
    call = client.agents_sessions_setStatus(channel_id=general, thread_ts=asked.ts, status="processing")
    assert (await catch_error(call))["error"] == "missing_scope"


async def test_the_stop_button_exists_while_processing_and_ends_streams(
    slack: SlackSandbox, client: AsyncWebClient, connect: Connect
) -> None:
    await connect(slack, AsyncApp(client=create_client(slack)))
    direct = slack.open_dm("ada")
    asked = await slack.post_message("ada", direct, "why?")
    with pytest.raises(ValueError, match="no stop button"):
        await slack.click_stop("ada", asked)
    about = {"channel_id": direct.id, "thread_ts": asked.ts}
    assert "warning" not in await client.agents_sessions_setStatus(**about, status="processing")
    ts = (await client.chat_startStream(channel=direct.id, thread_ts=asked.ts, markdown_text="Since"))["ts"]
    await slack.click_stop("ada", asked)
    await slack.wait_for(lambda: slack.envelopes[-1].payload["event"]["type"] == "agent_session_stopped")
    assert slack.envelopes[-1].payload["event"]["streaming_message_ts"] == [ts]
    body = await catch_error(client.chat_appendStream(channel=direct.id, ts=ts, markdown_text="!"))
    assert body["error"] == "message_not_in_streaming_state"
    session = slack.find_session(asked)
    assert session is not None
    assert session.status == "processing"  # it is for the app to end it
    await client.agents_sessions_setStatus(**about, status="active")
    with pytest.raises(ValueError, match="no stop button"):
        await slack.click_stop("ada", asked)


async def test_an_app_without_the_stop_subscription_gets_a_warning_and_no_button(
    slack: SlackSandbox, client: AsyncWebClient, general: str
) -> None:
    slack.subscriptions.discard("agent_session_stopped")
    asked = await slack.post_message("ada", "general", "why?")
    answer = await client.agents_sessions_setStatus(channel_id=general, thread_ts=asked.ts, status="processing")
    assert answer["warning"] == "missing_agent_session_stopped_event_subscription"
    with pytest.raises(ValueError, match="no stop button"):
        await slack.click_stop("ada", asked)


async def test_four_prompts_can_be_suggested_outside_threads(slack: SlackSandbox, client: AsyncWebClient) -> None:
    direct = slack.open_dm("ada")
    prompts = [{"title": str(n), "message": f"Say {n}"} for n in range(5)]
    await client.assistant_threads_setSuggestedPrompts(channel_id=direct.id, prompts=prompts[:4], thread_ts="1.0")
    assert not direct.prompts
    await client.assistant_threads_setSuggestedPrompts(channel_id=direct.id, prompts=prompts[:4])
    assert direct.prompts[-1:] == (("3", "Say 3"),)
    call = client.assistant_threads_setSuggestedPrompts(channel_id=direct.id, prompts=prompts)
    assert (await catch_error(call))["error"] == "invalid_arguments"
