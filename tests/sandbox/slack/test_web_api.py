"""The Web API through slack_sdk's client: what it answers, and what it refuses."""

import asyncio
from time import monotonic
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from sandbox.slack import Message, SlackSandbox
from tests.sandbox.slack.conftest import client_of


async def refusal(call: Any) -> dict[str, Any]:
    with pytest.raises(SlackApiError) as refused:
        await call
    body = refused.value.response.data
    assert isinstance(body, dict)
    return body


@pytest.fixture
def general(slack: SlackSandbox) -> str:
    return slack.channels["general"].id


async def test_auth_test_tells_who_the_bot_is_and_what_it_may(slack: SlackSandbox, client: AsyncWebClient) -> None:
    reply = await client.auth_test()
    assert (reply["user_id"], reply["bot_id"], reply["team_id"]) == (
        slack.bot_user_id,
        slack.bot_id,
        slack.team_id,
    )
    assert "chat:write" in reply.headers["x-oauth-scopes"].split(",")


@pytest.mark.parametrize(("token", "error"), [("xoxb-wrong", "invalid_auth"), ("", "not_authed")])
async def test_a_token_that_is_wrong_or_missing_is_refused(slack: SlackSandbox, token: str, error: str) -> None:
    assert (await refusal(AsyncWebClient(token, base_url=slack.api_url).auth_test()))["error"] == error


async def test_an_app_token_posts_nothing(slack: SlackSandbox, general: str) -> None:
    app = AsyncWebClient(slack.app_token, base_url=slack.api_url)
    body = await refusal(app.chat_postMessage(channel=general, text="hello"))
    assert body["error"] == "not_allowed_token_type"
    assert slack.messages("general") == []


async def test_a_missing_scope_is_named(slack: SlackSandbox, client: AsyncWebClient, general: str) -> None:
    slack.scopes.discard("chat:write")
    body = await refusal(client.chat_postMessage(channel=general, text="hello"))
    assert (body["error"], body["needed"]) == ("missing_scope", "chat:write")
    assert "chat:write" not in body["provided"].split(",")
    assert "chat:write" not in (await client.auth_test()).headers["x-oauth-scopes"].split(",")


async def test_an_unknown_method_is_refused(client: AsyncWebClient) -> None:
    assert (await refusal(client.api_call("chat.shout")))["error"] == "unknown_method"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"channel": "C0NOTHING", "text": "a"}, "channel_not_found"),
        ({"text": "a"}, "invalid_arguments"),
        ({"channel": "general"}, "no_text"),
        ({"channel": "general", "text": " "}, "no_text"),
        ({"channel": "general", "text": ["a"]}, "invalid_arguments"),
        ({"channel": "general", "text": "a", "unfurl_links": "perhaps"}, "invalid_arguments"),
        ({"channel": "general", "text": "a", "thread_ts": "1.000001"}, "thread_not_found"),
        ({"channel": "general", "text": "a", "markdown_text": "b"}, "markdown_text_conflict"),
        ({"channel": "general", "markdown_text": "a" * 12_001}, "msg_too_long"),
        ({"channel": "general", "blocks": "{"}, "invalid_blocks_format"),
        ({"channel": "general", "blocks": [{"type": "divider"}] * 51}, "invalid_blocks"),
        ({"channel": "general", "blocks": [{"type": "markdown", "text": "a" * 6_001}] * 2}, "invalid_blocks"),
        (
            {
                "channel": "general",
                "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "a" * 3_001}}],
            },
            "invalid_blocks",
        ),
        ({"channel": "general", "text": "a", "metadata": {"event_type": "x"}}, "invalid_metadata_format"),
    ],
)
async def test_a_post_that_slack_would_not_take_is_refused(
    slack: SlackSandbox, client: AsyncWebClient, arguments: dict[str, Any], error: str
) -> None:
    assert (await refusal(client.api_call("chat.postMessage", json=arguments)))["error"] == error
    assert slack.messages("general") == []
    assert slack.calls[-1].error == error


async def test_a_post_of_more_than_40000_characters_is_cut_off_with_a_warning(
    slack: SlackSandbox, client: AsyncWebClient, general: str
) -> None:
    reply = await client.chat_postMessage(channel=general, text="a" * 40_001)
    assert reply["warning"] == "message_truncated"
    assert len(slack.messages("general")[0].text) == 40_000


async def test_an_update_of_more_than_4000_characters_is_refused(
    slack: SlackSandbox, client: AsyncWebClient, general: str
) -> None:
    ts = (await client.chat_postMessage(channel=general, text="…"))["ts"]
    await client.chat_update(channel=general, ts=ts, text="a" * 4_000)
    body = await refusal(client.chat_update(channel=general, ts=ts, text="a" * 4_001))
    assert body["error"] == "msg_too_long"
    assert len(slack.messages("general")[0].text) == 4_000


async def test_blocks_keep_the_edited_mark_away_and_an_update_with_text_alone_drops_them(
    slack: SlackSandbox, client: AsyncWebClient, general: str
) -> None:
    blocks = [{"type": "markdown", "text": "**hi**"}]
    ts = (await client.chat_postMessage(channel=general, text="hi", blocks=blocks))["ts"]
    (message,) = slack.messages("general")
    assert (message.text, message.blocks) == ("**hi**", blocks)
    await client.chat_update(channel=general, ts=ts, text="hi", blocks=[{"type": "markdown", "text": "there"}])
    assert (message.text, message.edited) == ("there", False)
    await client.chat_update(channel=general, ts=ts, text="bye")
    assert (message.text, message.blocks, message.edited) == ("bye", None, True)


async def test_only_ones_own_messages_can_be_changed_or_deleted(
    slack: SlackSandbox, client: AsyncWebClient, general: str
) -> None:
    ts = (await slack.say("ada", "general", "mine")).ts
    update, delete = client.chat_update, client.chat_delete
    assert (await refusal(update(channel=general, ts=ts, text="yours")))["error"] == "cant_update_message"
    assert (await refusal(delete(channel=general, ts=ts)))["error"] == "cant_delete_message"
    assert (await refusal(update(channel=general, ts="1.000001", text="a")))["error"] == "message_not_found"


async def test_a_deleted_message_is_gone(slack: SlackSandbox, client: AsyncWebClient, general: str) -> None:
    ts = (await client.chat_postMessage(channel=general, text="oops"))["ts"]
    await client.chat_delete(channel=general, ts=ts)
    assert slack.messages("general") == []
    assert [message.deleted for message in slack.messages("general", deleted=True)] == [True]
    assert (await refusal(client.chat_delete(channel=general, ts=ts)))["error"] == "message_not_found"


async def test_the_bot_posts_only_where_it_may(slack: SlackSandbox, client: AsyncWebClient) -> None:
    left, secret = slack.add_channel("left"), slack.add_channel("secret", private=True)
    old = slack.add_channel("old")
    left.members.discard(slack.bot_user_id)
    secret.members.discard(slack.bot_user_id)
    old.archived = True
    for channel, error in ((left, "not_in_channel"), (secret, "channel_not_found"), (old, "is_archived")):
        assert (await refusal(client.chat_postMessage(channel=channel.id, text="a")))["error"] == error


async def test_a_user_id_stands_for_the_messages_with_him(slack: SlackSandbox, client: AsyncWebClient) -> None:
    ada = slack.people["ada"]
    reply = await client.chat_postMessage(channel=ada.id, text="hello")
    assert reply["channel"] == slack.open_dm(ada).id
    opened = await client.conversations_open(users=[ada.id])
    assert opened["channel"]["id"] == reply["channel"]
    assert opened["already_open"]


async def test_an_ephemeral_message_is_for_one_person_and_not_in_the_history(
    slack: SlackSandbox, client: AsyncWebClient, general: str
) -> None:
    ada = slack.people["ada"]
    ts = (await client.chat_postEphemeral(channel=general, user=ada.id, text="psst"))["message_ts"]
    assert [(m.ts, m.ephemeral_to) for m in slack.messages("general")] == [(ts, ada.id)]
    assert (await client.conversations_history(channel=general))["messages"] == []
    body = await refusal(client.chat_update(channel=general, ts=ts, text="a"))
    assert body["error"] == "message_not_found"
    body = await refusal(client.chat_postEphemeral(channel=general, user="U0NOBODY", text="a"))
    assert body["error"] == "user_not_in_channel"


async def test_a_thread_is_read_page_by_page_its_root_first(
    slack: SlackSandbox, client: AsyncWebClient, general: str
) -> None:
    root = await slack.say("ada", "general", "0")
    await slack.say("ada", "general", "elsewhere")
    for n in range(1, 6):
        await slack.say("grace", "general", str(n), thread_ts=root.ts)
    texts: list[list[str]] = []
    async for page in await client.conversations_replies(channel=general, ts=root.ts, limit=2):
        texts.append([message["text"] for message in page["messages"]])
    assert texts == [["0", "1", "2"], ["0", "3", "4"], ["0", "5"]]
    history = (await client.conversations_history(channel=general))["messages"]
    assert [message["text"] for message in history] == ["elsewhere", "0"]
    assert history[1]["reply_count"] == 5
    body = await refusal(client.conversations_replies(channel=general, ts="1.000001"))
    assert body["error"] == "thread_not_found"


async def test_a_history_may_be_bounded_in_time(slack: SlackSandbox, client: AsyncWebClient, general: str) -> None:
    said = [await slack.say("ada", "general", str(n)) for n in range(4)]

    async def between(**bounds: Any) -> list[str]:
        reply = await client.conversations_history(channel=general, **bounds)
        return [message["text"] for message in reply["messages"]]

    assert await between(oldest=said[1].ts) == ["3", "2"]
    assert await between(oldest=said[1].ts, inclusive=True) == ["3", "2", "1"]
    assert await between(oldest=said[0].ts, latest=said[2].ts) == ["1"]


async def test_metadata_is_kept_and_given_back_to_who_asks(
    slack: SlackSandbox, client: AsyncWebClient, general: str
) -> None:
    metadata = {"event_type": "reply", "event_payload": {"turn": "t1"}}
    await client.chat_postMessage(channel=general, text="a", metadata=metadata, unfurl_links=False)
    (message,) = slack.messages("general")
    assert (message.metadata, message.unfurl_links, message.unfurl_media) == (metadata, False, None)
    plain = await client.conversations_history(channel=general)
    full = await client.conversations_history(channel=general, include_all_metadata=True)
    assert "metadata" not in plain["messages"][0]
    assert full["messages"][0]["metadata"] == metadata


async def test_reactions_come_and_go(slack: SlackSandbox, client: AsyncWebClient, general: str) -> None:
    message = await slack.say("ada", "general", "hello")
    where = {"channel": general, "timestamp": message.ts, "name": "eyes"}
    await client.reactions_add(**where)
    assert message.reactions == {"eyes": [slack.bot_user_id]}
    assert (await refusal(client.reactions_add(**where)))["error"] == "already_reacted"
    await client.reactions_remove(**where)
    assert message.reactions == {}
    assert (await refusal(client.reactions_remove(**where)))["error"] == "no_reaction"


async def test_people_and_places_can_be_looked_up(slack: SlackSandbox, client: AsyncWebClient) -> None:
    ada = slack.people["ada"]
    assert (await client.users_info(user=ada.id))["user"]["profile"]["real_name"] == "Ada Lovelace"
    assert (await refusal(client.users_info(user="U0NOBODY")))["error"] == "user_not_found"
    assert {user["name"] for user in (await client.users_list())["members"]} == {"parley", *slack.people}
    assert {c["name"] for c in (await client.conversations_list())["channels"]} == {"general", "random"}
    assert (await client.team_info())["team"]["id"] == slack.team_id


@pytest.mark.parametrize("way", ["form", "json", "query"])
async def test_arguments_may_come_as_a_form_as_json_or_in_the_query(slack: SlackSandbox, way: str) -> None:
    arguments = {"channel": slack.channels["general"].id, "text": "hello"}
    sent: dict[str, Any] = {{"form": "data", "json": "json", "query": "params"}[way]: arguments}
    headers = {"Authorization": f"Bearer {slack.bot_token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(slack.api_url + "chat.postMessage", **sent) as response,
    ):
        assert (await response.json())["ok"]
    assert [message.text for message in slack.messages("general")] == ["hello"]


async def test_the_sixth_post_at_once_in_a_channel_is_too_much_and_another_channel_is_free(
    slack: SlackSandbox, client: AsyncWebClient, general: str
) -> None:
    posts = [client.chat_postMessage(channel=general, text=str(n)) for n in range(6)]
    done = await asyncio.gather(*posts, return_exceptions=True)
    (refused,) = [error for error in done if isinstance(error, SlackApiError)]
    assert refused.response.status_code == 429
    assert refused.response["error"] == "ratelimited"
    assert 1 <= int(refused.response.headers["Retry-After"]) <= 5
    assert [call.rate_limited for call in slack.calls].count(True) == 1
    await client.chat_postMessage(channel=slack.channels["random"].id, text="free")


async def test_a_client_that_waits_as_long_as_it_is_told_gets_through(general: str, slack: SlackSandbox) -> None:
    patient = client_of(slack, retry_handlers=[AsyncRateLimitErrorRetryHandler(max_retry_count=1)])
    slack.faults.rate_limit("chat.postMessage", 1)
    before = monotonic()
    await patient.chat_postMessage(channel=general, text="hello")
    assert monotonic() - before >= 1
    assert [call.status for call in slack.calls] == [429, 200]
    assert len(slack.messages("general")) == 1


async def test_updates_have_fifty_a_minute_and_the_clock_can_be_faster() -> None:
    async with SlackSandbox(speed=120) as slack:
        client, general = client_of(slack), slack.channels["general"].id
        ts = (await client.chat_postMessage(channel=general, text="0"))["ts"]
        for n in range(50):
            await client.chat_update(channel=general, ts=ts, text=str(n))
        first = next(call for call in slack.calls if call.method == "chat.update")
        if monotonic() - first.at < 0.5:
            body = await refusal(client.chat_update(channel=general, ts=ts, text="50"))
            assert body["error"] == "ratelimited"
        await asyncio.sleep(max(0, first.at + 0.6 - monotonic()))
        await client.chat_update(channel=general, ts=ts, text="51")


async def test_without_rate_limits_all_goes() -> None:
    async with SlackSandbox(rate_limits=False) as slack:
        client = client_of(slack)
        for n in range(20):
            await client.chat_postMessage(channel="#general", text=str(n))
        assert len(slack.messages("general")) == 20


async def test_a_lost_reply_has_taken_effect(slack: SlackSandbox, general: str) -> None:
    slack.faults.lose_reply("chat.postMessage")
    client = client_of(slack, retry_handlers=[])
    with pytest.raises(aiohttp.ClientError):
        await client.chat_postMessage(channel=general, text="hello")
    assert [message.text for message in slack.messages("general")] == ["hello"]
    assert slack.calls[-1].status == 0


async def test_a_failure_on_request_has_no_effect(slack: SlackSandbox, client: AsyncWebClient, general: str) -> None:
    slack.faults.fail("chat.postMessage", status=503)
    slack.faults.fail("chat.postMessage", error="internal_error")
    with pytest.raises(SlackApiError) as refused:
        await client.chat_postMessage(channel=general, text="hello")
    assert refused.value.response.status_code == 503
    body = await refusal(client.chat_postMessage(channel=general, text="hello"))
    assert body["error"] == "internal_error"
    assert slack.messages("general") == []
    await client.chat_postMessage(channel=general, text="hello")


async def test_a_delayed_call_takes_effect_later(slack: SlackSandbox, client: AsyncWebClient, general: str) -> None:
    ts = (await client.chat_postMessage(channel=general, text="0"))["ts"]
    slack.faults.delay("chat.update", 0.2)
    late = asyncio.create_task(client.chat_update(channel=general, ts=ts, text="sent first"))
    await slack.wait_for(lambda: slack.calls[-1].method == "chat.update")
    await client.chat_update(channel=general, ts=ts, text="sent second")
    await late
    (message,) = slack.messages("general")
    assert [version.text for version in message.versions] == ["0", "sent second", "sent first"]


async def test_a_link_leads_into_the_thread(slack: SlackSandbox, client: AsyncWebClient, general: str) -> None:
    root = await slack.say("ada", "general", "hello")
    reply = await slack.say("ada", "general", "again", thread_ts=root.ts)

    async def link(message: Message) -> str:
        answer = await client.chat_getPermalink(channel=general, message_ts=message.ts)
        return str(answer["permalink"])

    assert (await link(root)).endswith(f"/archives/{general}/p{root.ts.replace('.', '')}")
    assert f"thread_ts={root.ts}" in await link(reply)
