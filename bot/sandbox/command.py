"""`sandbox`: a Slack and a Discord on this machine, the bot against both, and a page or a terminal to speak in."""

import asyncio
import os
import stat
import sys
import webbrowser
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bot import settings as configuration
from bot.sandbox.process import FEED, BotProcess
from bot.settings import Settings
from channels.slack import manifest
from core.errors import ParleyError, SettingsError
from core.store import lock
from core.usage.prices import Prices

#: Seconds that the platforms may take to be connected to.
CONNECT_SECONDS = 600.0

Say = Callable[[str], None]


async def run(settings: Settings, stop: asyncio.Event, *, terminal: bool, agent: str = "", port: int, say: Say) -> None:
    """Run until the person leaves, `stop` is set, or, in the terminal, the bot ends.

    The bot is a process of its own, started as it is anywhere else: only its settings point here.

    Args:
        terminal: whether one speaks in the terminal; else on the page.
        agent: the folder of an agent that is started again whenever it changes.
        port: where the page is.
        say: tells whoever started it.

    Raises:
        ParleyError: the bot ended by itself; its last words say why.
    """
    try:
        from sandbox.discord import DiscordSandbox  # noqa: PLC0415 - an extra that production does without
        from sandbox.page import PageServer  # noqa: PLC0415
        from sandbox.slack import SlackSandbox  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError("the sandbox is not installed: `uv sync --all-extras`") from error

    log, database = settings.data_dir / "bot.log", settings.data_dir / "sandbox.db"
    model = settings.sandbox_model
    warning = " (tiny and often wrong; set GOOGLE_API_KEY for a real one)" if model == configuration.LOCAL_MODEL else ""
    notices = [
        "This is the sandbox: a Slack and a Discord on this machine, with the real bot in both.",
        f"Model: {model}{warning}",
        f"The bot's log: {log}",
    ]
    async with AsyncExitStack() as stack:
        hint = "give this one a DATA_DIR of its own"
        stack.enter_context(lock.hold_file_lock(settings.data_dir / "sandbox", hint))
        _remove(database)
        slack, discord = (
            await stack.enter_async_context(SlackSandbox()),
            await stack.enter_async_context(DiscordSandbox()),
        )
        slack.install(manifest.manifest(prompts=settings.prompts))
        page = PageServer(slack, discord)
        await stack.enter_async_context(page.serving(port))
        environment = {
            FEED: page.feed_address,
            "SLACK_API_URL": slack.api_url,
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_APP_TOKEN": slack.app_token,
            "SLACK_MODE": "socket",
            "SLACK_CLIENT_ID": "",
            "SLACK_CLIENT_SECRET": "",
            "DISCORD_API_URL": discord.api_url,
            "DISCORD_BOT_TOKEN": discord.bot_token,
            "DISCORD_GUILD_IDS": "",  # the sandbox's own is none of those that the operator serves
            "DATABASE_URL": f"sqlite:///{database}",
            "PORT": "0",
            "SHUTDOWN_TIMEOUT_SECONDS": "2",  # who leaves does not wait for an answer
        }

        async def ready() -> None:
            await asyncio.gather(slack.wait_connected(CONNECT_SECONDS), discord.wait_connected(CONNECT_SECONDS))

        bot = BotProcess(environment, log, ready, model=model, models=_models(settings), agent=agent)
        page.show(bot)
        await stack.enter_async_context(bot.running())
        ends: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait(), name="stop")]
        stack.push_async_callback(_end, ends)
        if agent:
            ends.append(asyncio.create_task(_reload(bot, Path(agent), say), name="reload"))
        if terminal:
            from sandbox.terminal import run_terminal  # noqa: PLC0415

            ends.append(asyncio.create_task(run_terminal(slack, discord, notices=notices), name="terminal"))
            ends.append(asyncio.create_task(bot.ended.wait(), name="bot"))
        else:
            for notice in notices:
                say(notice)
            say(f"Open {page.address} (Ctrl-C ends it)")
            _open(page.address)
            ends.append(asyncio.create_task(_tell(bot, log, say), name="what the bot tells"))
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if terminal and bot.ended.is_set():
            raise ParleyError(f"the bot ended by itself: {bot.told}\nIts log: {log}")


def _remove(database: Path) -> None:
    """Remove the database of the last start: its conversations were in a Slack and a Discord that are gone."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        database.with_name(f"{database.name}{suffix}").unlink(missing_ok=True)


def speaks_in_lines() -> bool:
    """Whether lines come in: from a pipe, or from a file."""
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # there is no standard input at all
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind)


def _models(settings: Settings) -> list[str]:
    """The models that can be asked with the keys that there are, the one that is asked first: of each vendor whose key
    is set, and who is asked himself, those that the list of prices knows.
    """
    vendors = {
        "gemini-": settings.google_api_key is not None and settings.google_base_url is None,
        "openai/": settings.openai_api_key is not None and settings.openai_base_url is None,
        "anthropic/": settings.anthropic_api_key is not None and settings.anthropic_base_url is None,
    }
    asked = tuple(prefix for prefix, is_asked in vendors.items() if is_asked)
    keyed = [configuration.DEFAULT_MODEL] if settings.google_api_key is not None else []
    keyed += [name for name in Prices(settings.prices_file).names if name.startswith(asked)]
    return list(dict.fromkeys([settings.sandbox_model, *settings.models, *keyed, configuration.LOCAL_MODEL]))


def _open(address: str) -> None:
    """Open the page where there is a desktop and somebody at it."""
    has_desktop = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if has_desktop and sys.stdout.isatty():
        webbrowser.open(address)


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _tell(bot: BotProcess, log: Path, say: Say) -> None:
    """Say why whenever the bot ends by itself: the sandbox goes on."""
    while True:
        await bot.ended.wait()
        bot.ended.clear()
        say(f"The bot ended by itself: {bot.told}\nIts log: {log}")


async def _reload(bot: BotProcess, agent: Path, say: Say) -> None:
    """Start the bot again whenever the agent changes."""
    from watchfiles import PythonFilter, awatch  # noqa: PLC0415 - an extra that production does without

    folder = agent if await asyncio.to_thread(agent.is_dir) else agent.parent
    seen = PythonFilter(extra_extensions=(".env", ".toml", ".yaml", ".md", ".txt"))
    async for changes in awatch(folder, watch_filter=seen):
        names = sorted({Path(path).name for _, path in changes})
        say(f"{', '.join(names)} changed: the bot is started again")
        await bot.restart()
