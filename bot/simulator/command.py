"""`parley simulator`: a local Slack and Discord with the bot, and a page to chat in."""

import asyncio
import json
import os
import secrets
import socket
import stat
import sys
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bot.settings import LOCAL_MODEL, Settings
from bot.settings.monitoring import LOOPBACK
from bot.simulator.model_keys import list_models
from bot.simulator.process import INSPECTOR_VARIABLE, BotProcess, LaunchSettings
from channels.slack import manifest
from core.errors import ParleyError, SettingsError
from core.models.vendors import can_call_tools
from core.signin.browser import CALLBACK_PATH, IDENTITY_PATH
from core.store import lock

if TYPE_CHECKING:  # an extra
    from bot.simulator.inspector_store import InspectorStore
    from chatrig.discord import DiscordSimulator
    from chatrig.page import PageServer
    from chatrig.slack import SlackSimulator

#: Seconds that the bot may take to connect to both platforms.
CONNECT_SECONDS = 600.0

#: Name of the bot on both platforms.
BOT_NAME = "Parley"

PrintLine = Callable[[str], None]


async def run_local_platforms(
    settings: Settings,
    stop: asyncio.Event,
    *,
    terminal: bool,
    agent: str = "",
    is_tour: bool = False,
    port: int,
    echo: PrintLine,
) -> None:
    """Run the local platforms with the bot, until the user leaves or `stop` is set.

    The bot is a separate process, started as in production; only its settings name the local platforms. In the
    terminal, an exit of the bot ends the simulator too, with a `ParleyError`; with the page, `echo` prints the reason.

    In the data folder, which must exist, the database and the log of an earlier simulator's bot are replaced.

    Args:
        terminal: whether to chat in the terminal, too; the page is then served, but no browser opens it.
        agent: folder or file of an agent, at whose changes the bot restarts. The bot runs the agent of its own settings
            (`AGENT`).
        is_tour: whether the bot starts with the scripted tour's agent. It always does if a tiny local model would
            answer for the built-in agent.
        port: port of the page; if it is in use, another one.
    """
    try:
        from bot.simulator.extension import ParleyExtension  # noqa: PLC0415 - an extra
        from bot.simulator.tour import create_calendar_server, create_tour_server  # noqa: PLC0415
        from chatrig.discord import DiscordSimulator  # noqa: PLC0415
        from chatrig.page import PageServer  # noqa: PLC0415
        from chatrig.slack import SlackSimulator  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError(
            f'the simulator is not installed: run `uvx --from "{_get_requirement()}" parley`, '
            f'or add it to your project: `uv add "{_get_requirement()}"`'
        ) from error

    log = settings.data_dir / "bot.log"
    database = settings.data_dir / "simulator.db"
    model = settings.simulator_model
    has_own_agent = bool(settings.agent) or settings.agents_path is not None
    notices = ["This is the simulator: a local Slack and Discord with the real bot in both.", f"The bot's log: {log}"]
    async with AsyncExitStack() as stack:
        hint = "set another DATA_DIR for this one"
        stack.enter_context(lock.hold_file_lock(log, hint))
        _remove_database(database)
        slack, discord = (
            await stack.enter_async_context(SlackSimulator(bot_name=BOT_NAME)),
            await stack.enter_async_context(DiscordSimulator(bot_name=BOT_NAME)),
        )
        tour_server = await stack.enter_async_context(create_tour_server())
        slack.install(manifest.manifest(prompts=settings.prompts, command_prefix=settings.command_prefix))
        extension = ParleyExtension(BOT_NAME)
        page = PageServer(slack, discord, extension)
        await _serve_page(page, port, stack)
        bot_url = f"http://{LOOPBACK}:{_find_free_port(urlsplit(page.address).port or 0)}"
        calendar = await stack.enter_async_context(create_calendar_server(bot_url + CALLBACK_PATH))
        environment = {
            INSPECTOR_VARIABLE: f"{page.address}{extension.inspector_path}",
            "SLACK_API_URL": slack.api_url,
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_APP_TOKEN": slack.app_token,
            "SLACK_MODE": "socket",
            "SLACK_CLIENT_ID": "",
            "SLACK_CLIENT_SECRET": "",
            "DISCORD_API_URL": discord.api_url,
            "DISCORD_BOT_TOKEN": discord.bot_token,
            "DISCORD_GUILD_IDS": "",  # the operator's servers are not in the simulator
            "DATABASE_URL": f"sqlite:///{database.resolve()}",
            **_set_up_sign_in(slack, discord, bot_url),
            "SECRET_KEY": settings.encryption_key or secrets.token_hex(32),
            "SHUTDOWN_TIMEOUT_SECONDS": "2",  # the user who leaves does not wait for an answer
        }
        bot = BotProcess(
            environment,
            log,
            partial(_wait_until_ready, slack, discord, extension.inspector),
            tour=_create_tour_launch(
                settings,
                environment,
                tour_server.base_url,
                calendar.url,
            ),
            find_agent_models=lambda: extension.inspector.agent_models,
            is_tour=is_tour or not (has_own_agent or can_call_tools(model)),
            model=model,
            models=list_models(settings),
            agent=agent,
        )
        extension.bot = bot
        await stack.enter_async_context(bot.run())
        ends: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait(), name="stop")]
        stack.push_async_callback(_cancel_tasks, ends)
        if agent:
            ends.append(asyncio.create_task(_restart_on_change(bot, Path(agent), echo), name="reload"))
        if terminal:
            from chatrig.terminal import run_terminal  # noqa: PLC0415

            notices[1:] = [f"Page: {page.address}  Log: {log}", "/tour takes the scripted tour: no key needed."]
            chat = run_terminal(slack, discord, extension=extension, notices=notices)
            ends.append(asyncio.create_task(chat, name="terminal"))
            ends.append(asyncio.create_task(bot.ended.wait(), name="bot"))
        else:
            for notice in notices:
                echo(notice)
            echo(f"Open {page.address} (Ctrl-C ends it)")
            _open_browser(page.address)
            ends.append(asyncio.create_task(_report_exits(bot, log, echo), name="bot exits"))
            ends.append(asyncio.create_task(_report_models(bot, echo), name="bot models"))
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if terminal and bot.ended.is_set():
            raise ParleyError(f"the bot exited: {bot.exit_reason}\nIts log: {log}")


def _get_requirement() -> str:
    """Return the requirement of Parley with the simulator, from the place that this Parley comes from (PEP 610)."""
    origin = json.loads(distribution("parley").read_text("direct_url.json") or "{}")
    if "url" not in origin:
        return "parley[simulator]"
    return f"parley[simulator] @ {'git+' if 'vcs_info' in origin else ''}{origin['url']}"


async def _serve_page(page: "PageServer", port: int, stack: AsyncExitStack) -> None:
    try:
        await stack.enter_async_context(page.serve(port))
    except OSError as error:
        raise SettingsError(f"--port {port}: the page cannot be served there ({error.strerror})") from error


def _set_up_sign_in(slack: "SlackSimulator", discord: "DiscordSimulator", bot_url: str) -> dict[str, str]:
    """Register the bot at both platforms' sign-ins; return its settings, with the port of its URL."""
    for oauth in (slack.oauth, discord.oauth):
        oauth.redirect_urls.add(bot_url + IDENTITY_PATH)
    return {
        "PORT": str(urlsplit(bot_url).port),
        "LISTEN_HOST": LOOPBACK,
        "PUBLIC_URL": bot_url,
        "SLACK_SIGN_IN_CLIENT_ID": slack.oauth.client_id,
        "SLACK_SIGN_IN_CLIENT_SECRET": slack.oauth.client_secret,
        "DISCORD_CLIENT_SECRET": discord.oauth.client_secret,
    }


def _find_free_port(page_port: int) -> int:
    """Return a free port for the bot: if possible, the same at each start, so that services accept its redirect."""
    with suppress(OSError, OverflowError), socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, page_port + 1))
        return page_port + 1
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        return int(listener.getsockname()[1])


async def _wait_until_ready(slack: "SlackSimulator", discord: "DiscordSimulator", inspector: "InspectorStore") -> None:
    async with asyncio.timeout(CONNECT_SECONDS):
        while inspector.agent_models is None:
            await inspector.wait_for_change()
    await asyncio.gather(slack.wait_until_connected(CONNECT_SECONDS), discord.wait_until_connected(CONNECT_SECONDS))


def _create_tour_launch(
    settings: Settings, environment: Mapping[str, str], model_url: str, calendar_url: str
) -> LaunchSettings:
    """Create the working folder of the tour's bot; return it and the environment.

    Of the operator's settings, the environment has only the data folder, the `SECRET_KEY` of its database, and the
    prefix of slash commands as in the manifest of the local Slack: the tour must not use their model keys and tools.
    """
    from bot.simulator.tour import CALENDAR_VARIABLE, STEPS, TOUR_MODEL  # noqa: PLC0415 - an extra

    folder = settings.data_dir.resolve() / "tour"  # without the operator's .env, agents.toml and mcp.toml
    folder.mkdir(exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if name.lower() not in Settings.model_fields}
    defaults = {
        "AGENT": "bot.simulator.tour_agent",
        "MODEL": LOCAL_MODEL if find_spec("xllamacpp") else TOUR_MODEL,
        "OPENAI_BASE_URL": model_url,
        CALENDAR_VARIABLE: calendar_url,
        "SLACK_SUGGESTED_PROMPTS": "|".join(step.prompt for step in STEPS[:4]),
        "DATA_DIR": str(settings.data_dir.resolve()),
        "COMMAND_PREFIX": settings.command_prefix,
    }
    return LaunchSettings({**inherited, **environment, **defaults}, folder)


def _remove_database(database: Path) -> None:
    """Remove a SQLite file with its journals: its local platforms are gone."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        database.with_name(f"{database.name}{suffix}").unlink(missing_ok=True)


def has_piped_input() -> bool:
    """Return whether standard input is a pipe or a regular file, unlike `/dev/null`."""
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # no standard input
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind)


def _open_browser(address: str) -> None:
    """Open a URL in the web browser if standard output is a terminal on a desktop."""
    has_desktop = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if has_desktop and sys.stdout.isatty():
        webbrowser.open(address)


async def _cancel_tasks(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _report_exits(bot: BotProcess, log: Path, echo: PrintLine) -> None:
    while True:
        await bot.ended.wait()
        bot.ended.clear()
        echo(f"The bot exited: {bot.exit_reason}\nIts log: {log}")


async def _report_models(bot: BotProcess, echo: PrintLine) -> None:
    printed = list[str]()
    while True:
        await bot.wait_for_change()
        if bot.state == "running" and (lines := bot.describe_models()) != printed:
            printed = lines
            for line in lines:
                echo(line)


async def _restart_on_change(bot: BotProcess, agent: Path, echo: PrintLine) -> None:
    from watchfiles import PythonFilter, awatch  # noqa: PLC0415 - an extra

    folder = agent if await asyncio.to_thread(agent.is_dir) else agent.parent
    file_filter = PythonFilter(extra_extensions=(".env", ".toml", ".yaml", ".md", ".txt"))
    async for changes in awatch(folder, watch_filter=file_filter):
        names = sorted({Path(path).name for _, path in changes})
        echo(f"{', '.join(names)} changed: restarting the bot")
        await bot.restart()
