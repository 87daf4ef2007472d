"""Run of the bot before forking, so that forks have all lazy work done."""

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
from sandbox.discord import DiscordSandbox
from sandbox.models import ScriptedOpenAI
from sandbox.slack import SlackSandbox
from tests.acceptance.platforms import BotConversation, Discord, Platform, Slack
from tests.chaos import verdict
from tests.chaos.scenario import ScenarioModel, send_messages, settings


async def rehearse(database: str = "") -> None:
    """Run the bot on both local platforms, and let it answer messages of users.

    Args:
        database: its URL; by default the bot creates a SQLite file.
    """
    model = ScenarioModel()
    async with ScriptedOpenAI(model.answer) as scripted, SlackSandbox() as slack, DiscordSandbox() as discord:
        platforms: list[Platform] = [Slack(slack), Discord(discord)]
        own = {"DATABASE_URL": database, "METRICS": "off", "PORT": "0"}
        with _change_folder(), _disable_logging(), patch.dict(os.environ, settings(platforms, scripted.base_url) | own):
            stop = asyncio.Event()
            running = asyncio.create_task(app.run_bot(load_settings(), stop))
            try:
                await asyncio.gather(
                    *(_send_messages(platform, platform.start_conversation(), model) for platform in platforms)
                )
            finally:
                stop.set()
                await running


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
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="parley-rehearsal-") as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)
