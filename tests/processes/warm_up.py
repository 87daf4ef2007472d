"""Run of the bot before the first fork, so that the forks have all lazy work done."""

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from bot import app
from bot.settings import load_settings
from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedOpenAI
from chatrig.slack import SlackSimulator
from tests.acceptance.platforms import BotConversation, Discord, Platform, Slack
from tests.chaos import verdict
from tests.chaos.scenario import ScenarioModel, send_messages, settings


async def run_bot(database: str = "") -> None:
    """Run the bot on both local platforms, and let it answer messages of users.

    Args:
        database: the database's URL; "" lets the bot create a SQLite file.
    """
    model = ScenarioModel()
    async with ScriptedOpenAI(model.answer) as scripted, SlackSimulator() as slack, DiscordSimulator() as discord:
        platforms: list[Platform] = [Slack(slack), Discord(discord)]
        bot_settings = {"DATABASE_URL": database, "METRICS": "off", "PORT": "0"}
        with (
            _change_folder(),
            _disable_logging(),
            patch.dict(os.environ, settings(platforms, scripted.base_url) | bot_settings),
        ):
            stop = asyncio.Event()
            bot_task = asyncio.create_task(app.run_bot(load_settings(), stop))
            try:
                await asyncio.gather(
                    *(_send_messages(platform, platform.start_conversation(), model) for platform in platforms)
                )
            finally:
                stop.set()
                await bot_task


async def _send_messages(platform: Platform, conversation: BotConversation, model: ScenarioModel) -> None:
    def is_answered() -> bool:
        return verdict.is_complete(platform.name, [reply.text for reply in conversation.replies()])

    await send_messages(platform, conversation, model.may_finish[platform.name], is_answered)


@contextmanager
def _disable_logging() -> Iterator[None]:
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _change_folder() -> Iterator[None]:
    """Change to a temporary folder inside the context."""
    former_folder = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="parley-warm-up-") as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(former_folder)
