"""Command `chatrig`.

`chatrig serve` starts the local platforms and the scripted models for a bot in any language. `chatrig conform` tests a
bot with twenty cases.
"""

import argparse
import asyncio
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from chatrig.conformance.command import add_parser
from chatrig.control import ControlServer
from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedAnthropic, ScriptedGemini, ScriptedOpenAI
from chatrig.models.server import ScriptedServer
from chatrig.slack import SlackSimulator

_PORTS = {
    "port": "the control API",
    "slack_port": "Slack",
    "discord_port": "Discord",
    "openai_port": "OpenAI's API",
    "anthropic_port": "Anthropic's API",
    "gemini_port": "the Gemini API",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code.

    Args:
        arguments: the arguments after the command's name; None for those of the process.
    """
    parser = argparse.ArgumentParser(prog="chatrig", description="A local Slack and Discord to test chat bots.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="start the platforms and models for a bot and tests in any language",
        description="Start a local Slack, a local Discord and scripted models until Ctrl-C, and print the variables of "
        "a bot, and the address and the token of the HTTP control API.",
    )
    serve.add_argument("--json", action="store_true", help="print the variables as one line of JSON")
    serve.add_argument("--page", action="store_true", help="serve a page too, to chat by hand (extra `ui`)")
    for name, server in _PORTS.items():
        option = f"--{name.replace('_', '-')}"
        serve.add_argument(
            option, type=_parse_port, default=0, metavar="PORT", help=f"port of {server} (0: a free one)"
        )
    serve.set_defaults(run=_run_server)
    add_parser(commands)
    options = parser.parse_args(arguments)
    exit_code: int = options.run(options)
    return exit_code


def _run_server(options: argparse.Namespace) -> int:
    try:
        asyncio.run(_serve(options))
    except KeyboardInterrupt:  # where an event loop has no signal handlers
        pass
    except OSError as error:
        sys.stderr.write(f"chatrig: {error.strerror or error}\n")
        return 1
    return 0


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


async def _serve(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    slack = SlackSimulator(port=options.slack_port)
    discord = DiscordSimulator(port=options.discord_port)
    models: dict[str, ScriptedServer] = {
        "openai": ScriptedOpenAI(port=options.openai_port),
        "anthropic": ScriptedAnthropic(port=options.anthropic_port),
        "gemini": ScriptedGemini(port=options.gemini_port),
    }
    control = ControlServer(slack, discord, models, port=options.port)
    servers = {
        "slack_port": slack,
        "discord_port": discord,
        **{f"{name}_port": model for name, model in models.items()},
    }
    async with AsyncExitStack() as stack:
        for name, server in {**servers, "port": control}.items():
            await _start(stack, server, name, getattr(options, name))
        page = await _serve_page(stack, slack, discord) if options.page else ""
        sys.stdout.write(_describe(control, page, as_json=options.json) + "\n")
        sys.stdout.flush()
        await stop.wait()


async def _start(stack: AsyncExitStack, server: Any, name: str, port: int) -> None:
    """Start a server until the end of a stack.

    Raises:
        OSError: its port cannot be used.
    """
    try:
        await stack.enter_async_context(server)
    except OSError as error:
        raise OSError(error.errno, f"--{name.replace('_', '-')} {port}: the port is in use or not allowed") from error


async def _serve_page(stack: AsyncExitStack, slack: SlackSimulator, discord: DiscordSimulator) -> str:
    """Serve the page until the end of a stack, and return its address.

    Raises:
        OSError: the packages of the page are not installed.
    """
    try:
        from chatrig.page import PageServer  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise OSError("--page needs the extra `ui`: install chatrig[ui]") from error
    page = PageServer(slack, discord)
    await stack.enter_async_context(page.serve(0))
    return page.address


def _describe(control: ControlServer, page: str, *, as_json: bool) -> str:
    if as_json:
        described = {"env": control.env, "control": {"url": control.url, "token": control.token}}
        return json.dumps(described | ({"page": page} if page else {}))
    variables = {**control.env, "CHATRIG_URL": control.url, "CHATRIG_TOKEN": control.token}
    if page:
        variables["CHATRIG_PAGE"] = page
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
