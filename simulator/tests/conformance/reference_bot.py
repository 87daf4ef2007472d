"""Bot for Slack and Discord that survives all that the cases do: the reference of the conformance suite.

It stores each question before the acknowledgement, fetches what it missed, and compares each answer with what is shown
before it posts or edits. `python reference_bot.py slack|discord`; the store is `STORE`, a file of SQLite.
"""

import asyncio
import logging
import os
import sqlite3
import sys

import aiohttp
import discord
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

PLACEHOLDER = "Thinking..."
MODEL_SECONDS = 20
db = sqlite3.connect(os.environ["STORE"], isolation_level=None)
db.execute("create table if not exists questions (id primary key, place, root, text, answer, done default 0)")
tasks = set()


def split(text, limit):
    chunks = []
    while len(text) > limit:
        end = max(text.rfind("\n", 0, limit), text.rfind(" ", 0, limit)) + 1 or limit
        chunks.append(text[:end])
        text = text[end:]
    return [*chunks, text]


async def ask_model(text):
    body = {"model": "scripted", "messages": [{"role": "user", "content": text}]}
    timeout = aiohttp.ClientTimeout(total=MODEL_SECONDS)
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    async with aiohttp.request("POST", url, json=body, timeout=timeout, raise_for_status=True) as response:
        return (await response.json())["choices"][0]["message"]["content"]


async def retry(function, *arguments):
    while True:
        try:
            return await function(*arguments)
        except Exception as error:
            logging.warning("again after %r", error)
            await asyncio.sleep(getattr(error, "retry_after", 1))


class Bot:
    def add(self, question, place, root, text):
        row = (question, place, root, text)
        if db.execute("insert or ignore into questions (id, place, root, text) values (?, ?, ?, ?)", row).rowcount:
            self.start_answer(question, place, root, text, None)

    def start_answer(self, *row):
        task = asyncio.create_task(self.answer(*row))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def resume(self):
        for row in db.execute("select id, place, root, text, answer from questions where not done").fetchall():
            self.start_answer(*row)

    async def answer(self, question, place, root, text, answer):
        if answer is None:
            await retry(self.show, question, place, root, [PLACEHOLDER])
            answer = await retry(ask_model, text)
            db.execute("update questions set answer = ? where id = ?", (answer, question))
        texts = split(answer, self.limit)
        await retry(self.show, question, place, root, texts)
        db.execute("update questions set done = 1 where id = ?", (question,))

    async def show(self, question, place, root, texts):
        shown = await self.list_shown(question, place, root)
        for number, text in enumerate(texts):
            if number >= len(shown):
                await self.post(place, root, text)
            elif shown[number][1] != text.strip():
                await self.edit(place, shown[number][0], text)


class SlackBot(Bot):
    limit = 3000

    async def run(self):
        # The client's own retry posts again what it may have posted.
        self.web = AsyncWebClient(os.environ["SLACK_BOT_TOKEN"], retry_handlers=[])
        self.me = (await self.web.auth_test())["user_id"]
        self.resume()
        socket = SocketModeClient(os.environ["SLACK_APP_TOKEN"], web_client=self.web, ping_interval=5)
        socket.socket_mode_request_listeners.append(self.receive)
        socket.message_listeners.append(self.on_message)
        await socket.connect()
        await asyncio.Event().wait()

    async def receive(self, socket, request):
        event = request.payload.get("event", {})
        if event.get("type") == "message" and "subtype" not in event:
            self.add_message(event["channel"], event)
        await socket.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))

    async def on_message(self, socket, message, raw):
        if message.get("type") == "hello":
            await retry(self.fetch_missed)

    async def fetch_missed(self):
        for channel in (await self.web.conversations_list(types="public_channel,im"))["channels"]:
            if channel.get("is_member", True):
                history = await self.web.conversations_history(channel=channel["id"])
                for message in reversed(history["messages"]):
                    self.add_message(channel["id"], message)

    def add_message(self, channel, message):
        root = message.get("thread_ts", message["ts"])
        is_known = db.execute("select 1 from questions where place = ? and root = ?", (channel, root)).fetchone()
        is_for_me = f"<@{self.me}>" in message["text"] or channel.startswith("D") or is_known
        if is_for_me and "bot_id" not in message:
            self.add(message["ts"], channel, root, message["text"])

    async def list_shown(self, question, place, root):
        replies = (await self.web.conversations_replies(channel=place, ts=root, limit=200))["messages"]
        return [(each["ts"], each["text"]) for each in replies if each.get("bot_id") and each["ts"] > question]

    async def post(self, place, root, text):
        await self.web.chat_postMessage(channel=place, thread_ts=root, text=text)

    async def edit(self, place, message, text):
        await self.web.chat_update(channel=place, ts=message, text=text)


class DiscordBot(Bot, discord.Client):
    limit = 1900

    def __init__(self):
        super().__init__(intents=discord.Intents.all(), heartbeat_timeout=20)

    async def run(self):
        await self.start(os.environ["DISCORD_TOKEN"])

    async def on_ready(self):
        if not tasks:
            self.resume()
        await retry(self.fetch_missed)

    async def on_resumed(self):
        await retry(self.fetch_missed)

    async def fetch_missed(self):
        for channel in self.guilds[0].text_channels:
            async for message in channel.history(limit=100):
                await self.on_message(message)

    async def on_message(self, message):
        is_for_me = self.user in message.mentions or message.guild is None
        if is_for_me and message.author != self.user:
            self.add(str(message.id), str(message.channel.id), str(message.id), message.content)

    async def list_shown(self, question, place, root):
        channel = await self.fetch_channel(int(place))
        history = channel.history(limit=200, after=discord.Object(int(question)), oldest_first=True)
        messages = [each async for each in history if each.author == self.user]
        return [(each.id, each.content) for each in messages if each.reference.message_id == int(root)]

    async def post(self, place, root, text):
        channel = await self.fetch_channel(int(place))
        await channel.send(text, reference=channel.get_partial_message(int(root)), silent=True)

    async def edit(self, place, message, text):
        channel = await self.fetch_channel(int(place))
        await channel.get_partial_message(message).edit(content=text)


asyncio.run((SlackBot if sys.argv[1] == "slack" else DiscordBot)().run())
