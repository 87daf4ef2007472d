"""Questions of users, and the replies of the bot that `wait_for_reply` returns."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator() as simulator:
        yield simulator


@pytest.fixture
def client(slack: SlackSimulator) -> AsyncWebClient:
    return AsyncWebClient(token=slack.env["SLACK_BOT_TOKEN"], base_url=slack.env["SLACK_API_URL"])


async def test_a_reply_is_complete_after_a_second_without_a_change(
    slack: SlackSimulator, client: AsyncWebClient
) -> None:
    question = await slack.mention_bot("ada", "general", "hi")
    channel = question.channel.id
    first = await client.chat_postMessage(channel=channel, thread_ts=question.ts, text="...")
    waiting = asyncio.create_task(slack.wait_for_reply(question, quiet=0.5))
    await asyncio.sleep(0.2)
    await client.chat_update(channel=channel, ts=first["ts"], text="hello")
    assert (await waiting).text == "hello"
    assert question.text.startswith("@")


async def test_replies_are_the_bots_own_in_the_thread_or_below_the_question(
    slack: SlackSimulator, client: AsyncWebClient
) -> None:
    earlier = await slack.mention_bot("ada", "general", "one")
    question = await slack.mention_bot("grace", "general", "two")
    channel = question.channel.id
    await client.chat_postMessage(channel=channel, thread_ts=earlier.ts, text="to one")
    await client.chat_postMessage(channel=channel, thread_ts=question.ts, text="to two")
    await slack.post_message("linus", "general", "me too", thread_ts=question.ts)
    await client.chat_postMessage(channel=channel, text="to all")
    assert [reply.text for reply in slack.list_replies(question)] == ["to two", "to all"]
    follow_up = await slack.mention_bot("grace", "general", "more", thread_ts=question.ts)
    await client.chat_postMessage(channel=channel, text="to all again")
    await client.chat_postMessage(channel=channel, thread_ts=question.ts, text="more")
    assert (await slack.wait_for_reply(follow_up, until="more")).text == "more"
    assert [reply.text for reply in slack.list_replies(follow_up)] == ["more"]


async def test_a_missing_reply_is_reported_with_what_people_saw(slack: SlackSimulator) -> None:
    question = await slack.post_dm("ada", "hello?")
    with pytest.raises(TimeoutError, match=r"(?s)0 sockets.*hello\?"):
        await slack.wait_for_reply(question, until=lambda reply: reply.text == "yes", timeout=0.1)


async def test_the_variables_of_a_discord_bot_have_its_token_and_addresses() -> None:
    async with DiscordSimulator() as discord:
        assert discord.env["DISCORD_TOKEN"] == discord.env["DISCORD_BOT_TOKEN"] == discord.bot_token
        assert discord.env["DISCORD_API_URL"] == discord.api_url
        question = await discord.mention_bot("ada", "general", "hi")
        assert question.mentions.users
        assert discord.list_replies(question) == []
        assert (await discord.post_dm("ada", "hi")).channel.is_dm
