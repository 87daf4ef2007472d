"""Methods for reactions, through slack_sdk's client."""

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from sandbox.slack import SlackSandbox
from tests.sandbox.slack.conftest import catch_error


async def test_reactions_can_be_added_and_removed(slack: SlackSandbox, client: AsyncWebClient, general: str) -> None:
    message = await slack.post_message("ada", "general", "hello")
    where = {"channel": general, "timestamp": message.ts, "name": "eyes"}
    await client.reactions_add(**where)
    assert message.reactions == {"eyes": [slack.bot_user_id]}
    assert (await catch_error(client.reactions_add(**where)))["error"] == "already_reacted"
    await client.reactions_remove(**where)
    assert message.reactions == {}
    assert (await catch_error(client.reactions_remove(**where)))["error"] == "no_reaction"


@pytest.mark.parametrize("name", ["+1", "thumbsup", "white_check_mark", "wave::skin-tone-3", ":eyes:"])
async def test_the_names_of_slacks_emoji_are_accepted(
    slack: SlackSandbox, client: AsyncWebClient, general: str, name: str
) -> None:
    message = await slack.post_message("ada", "general", "hello")
    await client.reactions_add(channel=general, timestamp=message.ts, name=name)
    assert list(message.reactions) == [name.strip(":")]


@pytest.mark.parametrize("name", ["no_such_emoji", "thumbs_up", "👍", "wave::skin-tone-9"])
async def test_an_unknown_emoji_is_rejected(
    slack: SlackSandbox, client: AsyncWebClient, general: str, name: str
) -> None:
    message = await slack.post_message("ada", "general", "hello")
    where = {"channel": general, "timestamp": message.ts, "name": name}
    assert (await catch_error(client.reactions_add(**where)))["error"] == "invalid_name"
    assert (await catch_error(client.reactions_remove(**where)))["error"] == "invalid_name"
    with pytest.raises(ValueError, match="there is no emoji"):
        await slack.add_reaction("ada", message, name)


async def test_a_custom_emoji_can_be_used(slack: SlackSandbox, client: AsyncWebClient, general: str) -> None:
    message = await slack.post_message("ada", "general", "hello")
    slack.add_emoji("party_parrot")
    await client.reactions_add(channel=general, timestamp=message.ts, name="party_parrot")
    assert message.reactions == {"party_parrot": [slack.bot_user_id]}
