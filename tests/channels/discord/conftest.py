"""Fixtures that run the Discord adapter with the core and a scripted model."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import discord
import pytest
from discord.backoff import ExponentialBackoff
from discord.gateway import DiscordWebSocket

from channels.access import AccessPolicy, AccessRules
from channels.discord import adapter
from channels.discord.adapter import DiscordAdapter
from channels.discord.client import shards
from channels.discord.client.auth import log_in, make_client
from channels.discord.invite import required_permissions
from channels.discord.platform import DiscordPlatform
from channels.discord.settings import DiscordSettings
from channels.i18n import messages as words
from channels.settings import MAX_MESSAGES, BackfillLimits
from chatrig.discord import DiscordCallRecord, DiscordMessage, DiscordSimulator
from chatrig.discord import GuildChannel as Place
from chatrig.discord.shapes import SHAPES, find_request_errors
from chatrig.discord.state.permissions import PERMISSIONS
from core.messages.inbox_message import InboxOutcome, ReplyWithoutMention
from core.sessions.prompt_text import QUOTE_END
from tests.channels.wiring import BACKFILL_LIMITS, OPEN_RULES, CoreParts, WiredBot, echo, run_core, wait_until

__all__ = ["wait_until"]

POST = "POST /channels/{channel}/messages"
PATCH = "PATCH /channels/{channel}/messages/{message}"
HISTORY = "GET /channels/{channel}/messages"
COMMANDS = "/applications/{application}/commands"
CALLBACK = "POST /interactions/{interaction}/{token}/callback"
ANSWER = "PATCH /webhooks/{application}/{token}/messages/{message}"
FOLLOW_UP = "POST /webhooks/{application}/{token}"

#: Routes that send text.
TEXT_ROUTES = {POST, PATCH, ANSWER, FOLLOW_UP}

#: Discord's message flag that suppresses embeds.
SUPPRESS_EMBEDS_FLAG = 1 << 2


@asynccontextmanager
async def run_discord(**options: Any) -> AsyncIterator[DiscordSimulator]:
    """Run a local Discord in which the bot has the permissions of its invite link.

    At the end it checks that all requests of the bot have Discord's published shapes, if `SHAPES` has them. It also
    checks that no message notifies anyone, except those of `is_notice`.
    """
    async with DiscordSimulator(**options) as simulator:
        invite_permissions = required_permissions(auto_thread=True).value
        simulator.permissions &= {name for name, bit in PERMISSIONS.items() if bit & invite_permissions} | {
            "mention_everyone"
        }
        yield simulator
        if SHAPES:
            api_calls = [call for call in simulator.calls if call.route in simulator.faults.routes]
            assert sorted({fault for call in api_calls for fault in find_request_errors(call)}) == []
        text_calls = [c for c in simulator.calls if c.route in TEXT_ROUTES and not is_notice(c.body.get("content"))]
        assert [call.body for call in text_calls if call.body.get("allowed_mentions") != {"parse": []}] == []
        assert [
            call.body for call in text_calls if call.route == POST and not call.body["flags"] & SUPPRESS_EMBEDS_FLAG
        ] == []
        places = [*simulator.channels.values(), *map(simulator.open_dm, simulator.people)]
        places += [thread for place in places for thread in simulator.threads(place)]
        messages = [message for place in places for message in simulator.messages(place, deleted=True)]
        bot_messages = [message for message in messages if message.author.id == simulator.bot_id]
        assert [message.text for message in bot_messages if message.pings and not is_notice(message.text)] == []


def is_notice(text: str | None) -> bool:
    """Return whether a message is to notify a person: a long reply has ended, or a schedule or job begins a turn."""
    return text is not None and (text.endswith(words.ANSWER_READY) or bool(re.match(r"(<@\d+>|@.+?) [⏰✅⚠]", text)))


#: Seconds between the attempts at a call with a transient failure.
PAUSES = (0.01, 0.01)


@pytest.fixture
async def server() -> AsyncIterator[DiscordSimulator]:
    async with run_discord() as simulator:
        yield simulator


@pytest.fixture(autouse=True)
def clean_discord_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore discord.py's globals after the test; skip its waits before a session."""
    monkeypatch.setattr(discord.http.Route, "BASE", discord.http.Route.BASE)
    monkeypatch.setattr(DiscordWebSocket, "DEFAULT_GATEWAY", DiscordWebSocket.DEFAULT_GATEWAY)
    monkeypatch.setattr(ExponentialBackoff, "delay", lambda _: 0.02)
    for module in (shards, adapter):
        monkeypatch.setattr(module, "IDENTIFY_INTERVAL_SECONDS", 0.0)


def create_settings(server: DiscordSimulator, **kwargs: Any) -> DiscordSettings:
    return replace(DiscordSettings(server.bot_token, server.api_url), **kwargs)


@pytest.fixture
async def client(server: DiscordSimulator) -> AsyncIterator[discord.Client]:
    """Yield a client with a login, but without a gateway connection."""
    client = make_client(create_settings(server))
    await log_in(client, create_settings(server))
    yield client
    await client.close()


class WiredDiscordBot(WiredBot):
    """Bot with a local Discord server and a scripted model."""

    def __init__(self, server: DiscordSimulator, adapter: DiscordAdapter, core: CoreParts) -> None:
        super().__init__(core)
        self.server = server
        self.adapter = adapter

    @property
    def mention(self) -> str:
        return f"<@{self.server.bot_id}>"

    async def mention_bot(self, user: str, channel: Place | str, text: str, **kwargs: Any) -> DiscordMessage:
        return await self.server.post_message(user, channel, f"{self.mention} {text}", **kwargs)

    def list_replies(self, question: DiscordMessage) -> list[DiscordMessage]:
        """Return the bot's replies to a message: each replies to the one before."""
        chain = [question]
        for message in self.server.messages(question.channel):
            if message.author.id == self.server.bot_id and message.reply_to is chain[-1]:
                chain.append(message)
        return chain[1:]

    def list_texts(self, question: DiscordMessage) -> list[str]:
        return [answer.text for answer in self.list_replies(question)]

    async def wait_for_replies(self, question: DiscordMessage, *texts: str) -> list[DiscordMessage]:
        """Wait until the replies to a message have exactly these texts, and return them."""
        await self.server.wait_for(lambda: self.list_texts(question) == list(texts))
        return self.list_replies(question)

    async def wait_for_last_reply(
        self, question: DiscordMessage, predicate: Callable[[str], Any]
    ) -> list[DiscordMessage]:
        """Wait until the last reply's text satisfies the predicate; return all replies."""
        await self.server.wait_for(lambda: any(map(predicate, self.list_texts(question)[-1:])))
        return self.list_replies(question)

    def list_bot_messages(self, channel: Place | str) -> list[DiscordMessage]:
        return [m for m in self.server.messages(channel) if m.author.id == self.server.bot_id]

    def list_calls(self, route: str) -> list[DiscordCallRecord]:
        return [call for call in self.server.calls if call.route == route]

    async def list_sessions(self) -> list[str]:
        """Return the session id of each accepted message, oldest first."""
        return [row.session for row in await self.list_inbox_messages()]

    def list_model_messages(self) -> list[str]:
        """Return the texts of the user messages in the newest model request."""
        return [message["content"] for message in self.model.requests[-1]["messages"] if message["role"] == "user"]

    def list_questions(self) -> list[str]:
        """Return the user texts of the newest model request without quoted context."""
        return [text.rpartition(QUOTE_END)[2].strip() for text in self.list_model_messages()]


@asynccontextmanager
async def run_bot(
    server: DiscordSimulator,
    tmp_path: Path,
    *script: Any,
    time_limit: float = 30,
    max_chunks: int = MAX_MESSAGES,
    connect: bool = True,
    stop_timeout: float = 5,
    backfill_limits: BackfillLimits = BACKFILL_LIMITS,
    follow: ReplyWithoutMention = "author",
    core: Mapping[str, Any] | None = None,
    rules: AccessRules = OPEN_RULES,
    admins: Sequence[str] = (),
    **settings: Any,
) -> AsyncIterator[WiredDiscordBot]:
    async with AsyncExitStack() as stack:
        limits: dict[str, Any] = {"time_limit": time_limit, "max_chunks": max_chunks, "follow": follow}
        guilds = frozenset(map(str, settings.get("guilds", ())))
        limits["access_policy"] = AccessPolicy({"discord": replace(rules, guilds=guilds)}, admins)
        platform = DiscordPlatform(create_settings(server, **settings))
        core_parts = await stack.enter_async_context(
            run_core(tmp_path, lambda _: platform, *script, **limits, **(core or {}))
        )
        stack.push_async_callback(platform.aclose)
        adapter = DiscordAdapter(
            platform, core_parts.services, core_parts.watermarks, backfill_limits, core_parts.shard_assignment
        )
        bot = WiredDiscordBot(server, adapter, core_parts)
        worker_task = asyncio.create_task(bot.worker.run(core_parts.answer))
        try:
            if connect:
                await bot.adapter.start()
            yield bot
        finally:
            await bot.adapter.stop()
            await bot.worker.stop(stop_timeout)
            await asyncio.wait_for(worker_task, 30)


async def has_ignored_messages(bot: WiredDiscordBot) -> bool:
    """Post a new message, and return whether the bot accepts only this one.

    The test posts the messages to be ignored shortly before.
    """
    before = await _list_accepted(bot)
    last = await bot.server.post_message("linus", bot.server.open_dm("linus"), "last")
    await bot.wait_for_replies(last, "heard: last")
    return len(await _list_accepted(bot)) == len(before) + 1


async def _list_accepted(bot: WiredDiscordBot) -> list[Any]:
    """Return the messages without commands, which may be answered before their rows have ended."""
    return [message for message in await bot.list_inbox_messages() if message.outcome != InboxOutcome.COMMAND]


@pytest.fixture
async def bot(server: DiscordSimulator, tmp_path: Path) -> AsyncIterator[WiredDiscordBot]:
    """Yield a bot that answers each question with its text: see `echo`."""
    async with run_bot(server, tmp_path, echo) as bot:
        yield bot
