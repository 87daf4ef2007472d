"""Reaction methods of the local Slack, through slack_sdk."""

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackSimulator
from tests.slack.conftest import catch_error


async def test_reactions_can_be_added_and_removed(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    message = await slack.post_message("ada", "general", "hello")
    target = {"channel": general, "timestamp": message.ts, "name": "eyes"}
    await client.reactions_add(**target)
    assert message.reactions == {"eyes": [slack.bot_user_id]}
    assert (await catch_error(client.reactions_add(**target)))["error"] == "already_reacted"
    await client.reactions_remove(**target)
    assert message.reactions == {}
    assert (await catch_error(client.reactions_remove(**target)))["error"] == "no_reaction"


@pytest.mark.parametrize("name", ["+1", "thumbsup", "white_check_mark", "wave::skin-tone-3", ":eyes:"])
async def test_the_names_of_slacks_emoji_are_accepted(
    slack: SlackSimulator, client: AsyncWebClient, general: str, name: str
) -> None:
    message = await slack.post_message("ada", "general", "hello")
    await client.reactions_add(channel=general, timestamp=message.ts, name=name)
    assert list(message.reactions) == [name.strip(":")]


@pytest.mark.parametrize("name", ["no_such_emoji", "thumbs_up", "👍", "wave::skin-tone-9"])
async def test_an_unknown_emoji_is_rejected(
    slack: SlackSimulator, client: AsyncWebClient, general: str, name: str
) -> None:
    message = await slack.post_message("ada", "general", "hello")
    target = {"channel": general, "timestamp": message.ts, "name": name}
    assert (await catch_error(client.reactions_add(**target)))["error"] == "invalid_name"
    assert (await catch_error(client.reactions_remove(**target)))["error"] == "invalid_name"
    with pytest.raises(ValueError, match="there is no emoji"):
        await slack.add_reaction("ada", message, name)


async def test_a_custom_emoji_can_be_used(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    message = await slack.post_message("ada", "general", "hello")
    slack.add_emoji("party_parrot")
    await client.reactions_add(channel=general, timestamp=message.ts, name="party_parrot")
    assert message.reactions == {"party_parrot": [slack.bot_user_id]}


async def test_the_reactions_to_a_message_or_file_can_be_read(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    message = await slack.post_message("ada", "general", "hello", files=["a.png"])
    await slack.add_reaction("grace", message, "wave")
    found = await client.reactions_get(channel=general, timestamp=message.ts, full=True)
    assert (found["type"], found["channel"], found["message"]["ts"]) == ("message", general, message.ts)
    assert found["message"]["reactions"] == [{"name": "wave", "users": [slack.people["grace"].id], "count": 1}]
    assert found["message"]["permalink"].startswith("https://")
    file = await client.reactions_get(file=message.files[0].id)
    assert (file["type"], file["file"]["name"]) == ("file", "a.png")


@pytest.mark.parametrize("method", ["reactions.get", "reactions.add", "reactions.remove"])
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "no_item_specified"),
        ({"channel": "C0NOTHING"}, "no_item_specified"),
        ({"timestamp": "1.000001"}, "no_item_specified"),
        ({"channel": "C0NOTHING", "timestamp": "1.000001"}, "channel_not_found"),
        ({"channel": "general", "timestamp": "yesterday"}, "bad_timestamp"),
        ({"channel": "general", "timestamp": "1.000001"}, "message_not_found"),
    ],
)
async def test_reactions_to_nothing_are_rejected(
    client: AsyncWebClient, general: str, method: str, arguments: dict[str, str], error: str
) -> None:
    named = arguments | ({"channel": general} if arguments.get("channel") == "general" else {})
    assert (await catch_error(client.api_call(method, params={"name": "wave", **named})))["error"] == error


async def test_files_have_no_reactions(client: AsyncWebClient) -> None:
    assert (await catch_error(client.reactions_get(file="F0NOTHING")))["error"] == "file_not_found"
    body = await catch_error(client.api_call("reactions.add", params={"name": "wave", "file": "F0NOTHING"}))
    assert body["error"] == "not_reactable"


async def test_the_reactions_of_a_user_are_listed_by_cursor_or_page(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    messages = [await slack.post_message("ada", "general", str(n)) for n in range(3)]
    for message in messages:
        await client.reactions_add(channel=general, timestamp=message.ts, name="eyes")
    await slack.add_reaction("grace", messages[0], "wave")
    await slack.delete_message("ada", messages[1])

    pages = [page["items"] async for page in await client.reactions_list(limit=1)]
    assert [[item["message"]["text"] for item in page] for page in pages] == [["2"], ["0"]]
    second = await client.reactions_list(count=1, page=2)
    assert [item["message"]["text"] for item in second["items"]] == ["0"]
    assert second["paging"] == {"count": 1, "total": 2, "page": 2, "pages": 2}
    (item,) = (await client.reactions_list(user=slack.people["grace"].id))["items"]
    assert (item["type"], item["channel"], item["message"]["ts"]) == ("message", general, messages[0].ts)
    assert (await catch_error(client.reactions_list(user="U0NOBODY")))["error"] == "user_not_found"
    assert (await catch_error(client.reactions_list(cursor="x")))["error"] == "invalid_cursor"


async def test_reactions_in_channels_without_the_bot_are_not_listed(
    slack: SlackSimulator, client: AsyncWebClient
) -> None:
    left = slack.add_channel("left")
    await slack.add_reaction("ada", await slack.post_message("ada", left, "hello"), "wave")
    left.members.discard(slack.bot_user_id)
    assert (await client.reactions_list(user=slack.people["ada"].id))["items"] == []
