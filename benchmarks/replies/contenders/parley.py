"""Parley as a contender on Slack and on Discord.

The model's deltas go through `Reply` and the rate limiters to the platform's real client.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from benchmarks.replies.contenders.base import ReplyWriter, StreamingContender
from benchmarks.replies.platforms import DiscordCellPlatform, MeasuredPrompt, SlackCellPlatform
from channels.discord.client.api import DiscordApi
from channels.discord.client.auth import make_client
from channels.discord.replies import reactions as discord_reactions
from channels.discord.replies.surface import DiscordSurface
from channels.discord.settings import DiscordSettings
from channels.i18n.messages import ENGLISH
from channels.replies.buttons import answer_buttons, growing_buttons
from channels.replies.reply import Reply
from channels.replies.surface import Surface
from channels.settings import EXTRA_BUTTONS
from channels.slack.client.api import SlackApi
from channels.slack.client.auth import make_session, make_web_client
from channels.slack.replies import reactions as slack_reactions
from channels.slack.replies.assistant import AssistantThreads
from channels.slack.replies.streaming import STREAM_SECONDS, StreamPolicy
from channels.slack.replies.surface import SlackSurface
from channels.slack.settings import SlackSettings

NAME = "Parley"

#: Limit of background calls at the end, in seconds.
BACKGROUND_TIMEOUT_SECONDS = 2.0


async def ignore_ids(ids: Sequence[str]) -> None:
    """Do nothing with the message ids of a reply: the benchmark has no database."""


class ReplyWithButtons:
    """Reply writer that adds the bot's answer buttons when the reply ends.

    Args:
        turn_id: the turn id in the buttons.
    """

    def __init__(self, reply: Reply, turn_id: str) -> None:
        self._reply = reply
        self._buttons = answer_buttons(turn_id, ENGLISH, EXTRA_BUTTONS)
        self.feed = reply.feed

    async def close(self, text: str) -> None:
        await self._reply.close(text, buttons=self._buttons)


@asynccontextmanager
async def open_reply(surface: Surface, prompt: MeasuredPrompt) -> AsyncIterator[ReplyWriter]:
    """Open a reply with the bot's Stop button on a surface, and yield its writer.

    There is no turn: the prompt's number replaces the turn id in the buttons. The end of the block abandons a reply
    that is not closed.
    """
    turn_id = str(prompt.number)
    async with Reply(surface, save_ids=ignore_ids, buttons=growing_buttons(turn_id, ENGLISH)) as reply:
        yield ReplyWithButtons(reply, turn_id)


class _ParleyOnSlack(StreamingContender):
    """Parley's reply path on Slack."""

    def __init__(self, platform: SlackCellPlatform, api: SlackApi) -> None:
        simulator = platform.simulator
        self._author = {"team": simulator.team_id, "user": simulator.people["ada"].id, "user_team": simulator.team_id}
        self._bot = simulator.bot_user_id
        self._api = api
        self._streams = StreamPolicy(seconds=STREAM_SECONDS / platform.speed)
        self._queued_reactions = slack_reactions.make_queued_reactions(api)
        self._assistant = AssistantThreads(api)

    async def wait_for_background_calls(self) -> None:
        """Wait for Slack calls that outlast a reply, such as the removal of reactions.

        The calls count towards the rate limits of the measured replies. Unfinished ones are cancelled after
        `BACKGROUND_TIMEOUT_SECONDS`.
        """
        await self._queued_reactions.drain(BACKGROUND_TIMEOUT_SECONDS)
        await self._assistant.drain(BACKGROUND_TIMEOUT_SECONDS)

    def open_reply(self, prompt: MeasuredPrompt) -> AbstractAsyncContextManager[ReplyWriter]:
        address = {
            **self._author,
            "bot": self._bot,
            "channel": prompt.place,
            "thread_ts": prompt.message,
            "ts": prompt.message,
        }
        turn_id = f"turn {prompt.number}"
        surface = SlackSurface(
            self._api,
            self._queued_reactions,
            address,
            turn_id,
            assistant=self._assistant,
            stream_policy=self._streams,
        )
        return open_reply(surface, prompt)


class _ParleyOnDiscord(StreamingContender):
    """Parley's reply path on Discord."""

    def __init__(self, api: DiscordApi) -> None:
        self._api = api
        self._queued_reactions = discord_reactions.make_queued_reactions(api)

    async def wait_for_background_calls(self) -> None:
        """Wait for Discord calls that outlast a reply, such as the removal of reactions.

        Unfinished calls are cancelled after `BACKGROUND_TIMEOUT_SECONDS`.
        """
        await self._queued_reactions.drain(BACKGROUND_TIMEOUT_SECONDS)

    def open_reply(self, prompt: MeasuredPrompt) -> AbstractAsyncContextManager[ReplyWriter]:
        address = {"channel": prompt.place, "message": prompt.message}
        surface = DiscordSurface(self._api, self._queued_reactions, address)
        return open_reply(surface, prompt)


@asynccontextmanager
async def start_on_slack(platform: SlackCellPlatform) -> AsyncIterator[StreamingContender]:
    simulator = platform.simulator
    web = make_web_client(SlackSettings(simulator.bot_token, simulator.app_token, simulator.api_url))
    async with make_session() as web.session:
        contender = _ParleyOnSlack(platform, SlackApi(web, speed=platform.speed))
        yield contender
        await contender.wait_for_background_calls()


@asynccontextmanager
async def start_on_discord(platform: DiscordCellPlatform) -> AsyncIterator[StreamingContender]:
    bot = make_client(DiscordSettings(bot_token=platform.simulator.bot_token, api_url=platform.simulator.api_url))
    api = DiscordApi(bot, speed=platform.speed)
    await bot.login(platform.simulator.bot_token)
    try:
        contender = _ParleyOnDiscord(api)
        yield contender
        await contender.wait_for_background_calls()
    finally:
        await bot.close()
