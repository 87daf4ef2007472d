"""Webhooks of the local Discord, with discord.py."""

import aiohttp
import discord
import pytest

from chatrig.discord import DiscordSimulator
from tests.discord.conftest import Connect, RecordingClient, call_route, create_intents, get_refusal


@pytest.fixture
async def bot(server: DiscordSimulator, connect: Connect) -> RecordingClient:
    server.permissions.add("manage_webhooks")
    return await connect(server, intents=create_intents("message_content", "webhooks"))


async def test_a_webhook_posts_under_its_own_name(server: DiscordSimulator, bot: RecordingClient) -> None:
    webhook = await bot.get_simulator_channel(server, "general").create_webhook(name="hook")
    sent = await webhook.send("beep", wait=True)
    assert await webhook.send("boop", username="Robot") is None
    received = [await bot.next_message() for _ in range(2)]
    assert [(message.author.name, message.webhook_id) for message in received] == [
        ("hook", webhook.id),
        ("Robot", webhook.id),
    ]
    await sent.edit(content="beeep")
    assert (await webhook.fetch_message(sent.id)).content == "beeep"
    await sent.delete()
    assert [message.text for message in server.messages("general")] == ["boop"]


async def test_a_webhook_needs_no_bot_token(server: DiscordSimulator, bot: RecordingClient) -> None:
    webhook = await bot.get_simulator_channel(server, "general").create_webhook(name="hook")
    url = f"{server.api_url}/webhooks/{webhook.id}"
    async with aiohttp.ClientSession() as session:
        for address, status in ((f"{url}/{webhook.token}", 200), (f"{url}/wrong", 401), (url, 401)):
            async with session.get(address) as response:
                assert response.status == status
        async with session.post(f"{url}/{webhook.token}", json={"content": ""}) as response:
            assert (response.status, (await response.json())["code"]) == (400, 50006)
        async with session.post(f"{url}/{webhook.token}?wait=true", json={"content": "hello"}) as response:
            assert (response.status, (await response.json())["content"]) == (200, "hello")


async def test_webhooks_are_managed_with_a_permission(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel = bot.get_simulator_channel(server, "general")
    webhook = await channel.create_webhook(name="hook")
    await webhook.edit(name="other")
    assert [hook.name for hook in await channel.webhooks()] == ["other"]
    path = f"/channels/{channel.id}/webhooks"
    assert (await call_route(server, "POST", path, {"name": "Discord bot"}))[1]["code"] == 50035
    await webhook.delete()
    assert await get_refusal(bot.fetch_webhook(webhook.id)) == (404, 10015)
    assert len([event for event in server.events if event.name == "WEBHOOKS_UPDATE"]) == 3
    server.permissions.discard("manage_webhooks")
    assert await get_refusal(channel.create_webhook(name="hook")) == (403, 50013)


async def test_a_webhook_posts_in_threads_and_forums(server: DiscordSimulator, bot: RecordingClient) -> None:
    general, ideas = (bot.get_simulator_channel(server, name) for name in ("general", "ideas"))
    webhook, of_forum = await general.create_webhook(name="hook"), await ideas.create_webhook(name="hook")
    root = await server.post_message("ada", "general", "a root")
    thread = await server.start_thread("ada", root, "a thread")
    await webhook.send("in it", thread=discord.Object(int(thread.id)))
    assert server.messages(thread)[-1].text == "in it"
    await of_forum.send("what if", thread_name="a post")
    (post,) = server.threads("ideas")
    assert (post.name, [message.text for message in server.messages(post)]) == ("a post", ["what if"])
    for hook, thread_id, body, code in (
        (of_forum, "", {"content": "x"}, 220001),
        (of_forum, post.id, {"content": "x", "thread_name": "y"}, 220002),
        (webhook, "", {"content": "x", "thread_name": "y"}, 220003),
        (webhook, post.id, {"content": "x"}, 10003),
    ):
        query = f"?thread_id={thread_id}" if thread_id else ""
        assert (await call_route(server, "POST", f"/webhooks/{hook.id}/{hook.token}{query}", body))[1]["code"] == code
