"""Request formats, rate limits and faults of the local Slack's Web API."""

import asyncio
import json
from time import monotonic
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackSimulator
from tests.slack.conftest import catch_error, create_client


@pytest.mark.parametrize("way", ["form", "json", "query"])
async def test_arguments_can_be_a_form_json_or_a_query(slack: SlackSimulator, way: str) -> None:
    arguments = {"channel": slack.channels["general"].id, "text": "hello"}
    sent: dict[str, Any] = {{"form": "data", "json": "json", "query": "params"}[way]: arguments}
    headers = {"Authorization": f"Bearer {slack.bot_token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(slack.api_url + "chat.postMessage", **sent) as response,
    ):
        assert (await response.json())["ok"]
    assert [message.text for message in slack.messages("general")] == ["hello"]


async def post_request(slack: SlackSimulator, method: str, body: str, content_type: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {slack.bot_token}", "Content-Type": content_type}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(slack.api_url + method, data=body.encode()) as response,
    ):
        return dict(await response.json())


@pytest.mark.parametrize(
    ("method", "arguments", "error"),
    [
        ("conversations.history", {"channel": "general"}, "invalid_arguments"),
        ("conversations.info", {"channel": "general"}, "invalid_arguments"),
        ("conversations.replies", {"channel": "general", "ts": "1.0"}, "invalid_arguments"),
        ("chat.getPermalink", {"channel": "general", "message_ts": "1.0"}, "invalid_arguments"),
        ("files.getUploadURLExternal", {"filename": "a.md", "length": 3}, "invalid_arguments"),
        ("files.info", {"file": "F1"}, "invalid_arguments"),
        ("users.info", {"user": "ada"}, "user_not_found"),
    ],
)
async def test_a_method_that_takes_forms_only_misses_the_arguments_in_json(
    slack: SlackSimulator, method: str, arguments: dict[str, Any], error: str
) -> None:
    arguments |= {"channel": slack.channels["general"].id} if "channel" in arguments else {}
    arguments |= {"user": slack.people["ada"].id} if "user" in arguments else {}
    body = await post_request(slack, method, json.dumps(arguments), "application/json; charset=utf-8")
    assert body["error"] == error


async def test_a_method_that_takes_forms_only_ignores_optional_arguments_in_json(slack: SlackSimulator) -> None:
    body = await post_request(slack, "users.list", '{"limit": 1}', "application/json; charset=utf-8")
    assert len(body["members"]) == len(["bot", "slackbot", *slack.people])


@pytest.mark.parametrize(
    ("content_type", "body", "warning"),
    [
        ("application/json", "{}", "missing_charset"),
        ("application/json; charset=utf-8", "{}", None),
        ("application/x-www-form-urlencoded", "", None),
        ("application/x-www-form-urlencoded; charset=utf-8", "", "superfluous_charset"),
    ],
)
async def test_a_missing_or_superfluous_charset_has_a_warning(
    slack: SlackSimulator, content_type: str, body: str, warning: str | None
) -> None:
    answer = await post_request(slack, "auth.test", body, content_type)
    assert answer["ok"]
    assert answer.get("warning") == warning
    assert answer.get("response_metadata", {}).get("warnings") == ([warning] if warning else None)


async def test_warnings_of_a_call_are_joined(slack: SlackSimulator, general: str) -> None:
    arguments = {"channel": general, "text": "a" * 40_001}
    answer = await post_request(slack, "chat.postMessage", json.dumps(arguments), "application/json")
    assert answer["warning"] == "message_truncated,missing_charset"
    assert answer["response_metadata"].keys() == {"messages", "warnings"}
    refused = await post_request(slack, "chat.postMessage", "{", "application/json")
    assert (refused["error"], refused["warning"]) == ("invalid_json", "missing_charset")


async def test_the_sixth_post_in_a_channel_is_rate_limited(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    posts = [client.chat_postMessage(channel=general, text=str(n)) for n in range(6)]
    done = await asyncio.gather(*posts, return_exceptions=True)
    (refused,) = [error for error in done if isinstance(error, SlackApiError)]
    assert refused.response.status_code == 429
    assert refused.response["error"] == "ratelimited"
    assert 1 <= int(refused.response.headers["Retry-After"]) <= 5
    assert [call.rate_limited for call in slack.calls].count(True) == 1
    await client.chat_postMessage(channel=slack.channels["random"].id, text="free")


async def test_a_client_that_waits_for_retry_after_succeeds(general: str, slack: SlackSimulator) -> None:
    patient = create_client(slack, retry_handlers=[AsyncRateLimitErrorRetryHandler(max_retry_count=1)])
    slack.faults.rate_limit("chat.postMessage", 1)
    before = monotonic()
    await patient.chat_postMessage(channel=general, text="hello")
    assert monotonic() - before >= 1
    assert [call.status for call in slack.calls] == [429, 200]
    assert len(slack.messages("general")) == 1


async def test_the_fifty_first_update_in_a_minute_is_rate_limited(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    ts = (await client.chat_postMessage(channel=general, text="0"))["ts"]
    for n in range(50):
        await client.chat_update(channel=general, ts=ts, text=str(n))
    assert (await catch_error(client.chat_update(channel=general, ts=ts, text="50")))["error"] == "ratelimited"
    assert slack.messages("general")[0].text == "49"


async def test_calls_are_unlimited_without_rate_limits() -> None:
    async with SlackSimulator(rate_limits=False) as slack:
        client = create_client(slack)
        for n in range(20):
            await client.chat_postMessage(channel="#general", text=str(n))
        assert len(slack.messages("general")) == 20


async def test_a_call_with_a_lost_response_takes_effect(slack: SlackSimulator, general: str) -> None:
    slack.faults.lose_response("chat.postMessage")
    client = create_client(slack, retry_handlers=[])
    with pytest.raises(aiohttp.ClientError):
        await client.chat_postMessage(channel=general, text="hello")
    assert [message.text for message in slack.messages("general")] == ["hello"]
    assert slack.calls[-1].status == 0


async def test_a_failed_call_has_no_effect(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    slack.faults.fail("chat.postMessage", status=503)
    slack.faults.fail("chat.postMessage", error="internal_error")
    with pytest.raises(SlackApiError) as refused:
        await client.chat_postMessage(channel=general, text="hello")
    assert refused.value.response.status_code == 503
    body = await catch_error(client.chat_postMessage(channel=general, text="hello"))
    assert body["error"] == "internal_error"
    assert slack.messages("general") == []
    await client.chat_postMessage(channel=general, text="hello")


async def test_a_delayed_call_takes_effect_later(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    ts = (await client.chat_postMessage(channel=general, text="0"))["ts"]
    slack.faults.delay("chat.update", 1.0)
    late = asyncio.create_task(client.chat_update(channel=general, ts=ts, text="sent first"))
    await slack.wait_for(lambda: slack.calls[-1].method == "chat.update")
    await client.chat_update(channel=general, ts=ts, text="sent second")
    await late
    (message,) = slack.messages("general")
    assert [version.text for version in message.versions] == ["0", "sent second", "sent first"]


async def test_a_fault_of_several_methods_applies_once_and_can_be_cancelled(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    either = ("chat.postMessage", "chat.update")
    slack.faults.fail(either, error="fatal_error")
    slack.faults.lose_response(either)
    slack.faults.cancel("lose_response")
    assert (slack.faults.has_pending("fail"), slack.faults.has_pending("lose_response")) == (True, False)
    with pytest.raises(SlackApiError, match="fatal_error"):
        await client.chat_postMessage(channel=general, text="one")
    assert not slack.faults.has_pending("fail")
    ts = (await client.chat_postMessage(channel=general, text="two"))["ts"]
    await client.chat_update(channel=general, ts=ts, text="three")


async def test_a_response_has_a_request_id_and_the_error(slack: SlackSimulator, client: AsyncWebClient) -> None:
    succeeded = (await client.auth_test()).headers
    assert len(succeeded["x-slack-req-id"]) == 32
    assert "x-slack-failure" not in succeeded
    with pytest.raises(SlackApiError) as refused:
        await client.users_info(user="U0NOBODY")
    assert refused.value.response.headers["x-slack-failure"] == "user_not_found"
    assert refused.value.response.headers["x-slack-req-id"] != succeeded["x-slack-req-id"]
