"""Exchanges on the pages, from scenes with the real bot: `make docs-pictures`."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bot.simulator.command import BOT_NAME
from chatrig.client.discord import DiscordPlatform
from chatrig.client.platform import ClientLocation, ClientMessage
from chatrig.client.slack import SlackPlatform
from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedOpenAI
from chatrig.slack import SlackSimulator
from chatrig.terminal.sessions import TerminalSessions
from docs.pictures import scenes
from docs.pictures.answers import respond
from docs.pictures.events import EVENT_TIMEOUT_SECONDS, EVENTS, Environment
from docs.pictures.scene import Scene, Setup
from docs.pictures.stage import ROOT, run_bot

PAGES = ROOT / "docs"

#: Exchange in a page, with the name of its scene.
EXCHANGE = re.compile(
    r"(?P<begin><!-- exchange: (?P<name>[a-z-]+) -->\n(?P<indent> *)```(?:text|console)\n)"
    r"(?P<text>.*?)(?P<end>^(?P=indent)```$)",
    re.M | re.S,
)

#: Patterns of values that change with each run, and their replacements in the page.
VOLATILE_VALUES = {
    r"(client_id=)\d+": r"\1...",
    r"\d{17,}": "...",
    r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?": "...",
    r"`[0-9a-f]{10}`": "`...`",
    r"\b[TCA]0[A-Z0-9]{9}\b": "...",
    r":\d{10}\.\d{6}\b": ":...",
    r"\b\d+\.\d s\b": "1.2 s",
    r"((\b\w+ )\2{5})\2+\w+": r"\1...",
}

#: Signs of an unfinished answer: a placeholder (of a stream, its task), a Stop button, the "queued" reaction.
UNFINISHED = re.compile(r": (✓ )?…$|\[ Stop \]|👀", re.M)


class _ScenePlayer:
    """Player of one scene: runs its script, and collects the lines of the exchange."""

    def __init__(self, scene: Scene, environment: Environment) -> None:
        self._environment = environment
        self._sessions = TerminalSessions([SlackPlatform(environment.slack), DiscordPlatform(environment.discord)])
        self._lines: list[str] = []
        self._scene = scene

    async def play(self) -> str:
        await self._sessions.run_line(f"/{self._scene.platform}")
        if self._scene.channel:
            await self._sessions.run_line(f"/channel {self._scene.channel}")
        for line in filter(None, map(str.strip, self._scene.script.splitlines())):
            sign, _, argument = line.partition(" ")
            if sign in ("~", "-"):
                await self._wait_for_text(re.compile(re.escape(argument)), is_shown=sign == "~")
            elif sign in ("=", "*"):
                await self._show(is_complete=sign == "=")
            elif sign == "+":
                self._lines += await EVENTS[argument](self._environment, self._scene.channel, self._sessions.current)
            elif sign == "$":
                self._lines += [f"$ {argument}", *(await self._environment.bot.run(argument)).splitlines()]
            elif sign == ">":
                self._lines += self._environment.bot.find_log_lines(argument)
            else:
                await self._type(*line.split(": ", 1))
        text = "\n".join(line.rstrip() for line in self._lines).strip("\n")
        for pattern, replacement in VOLATILE_VALUES.items():
            text = re.sub(pattern, replacement, text, flags=re.M)
        return re.sub(r"\n{3,}", "\n\n", text) + "\n"

    async def _type(self, user: str, line: str) -> None:
        notice = await self._sessions.run_line(f"/as {user}") or await self._sessions.run_line(line)
        self._lines += [f"{user} types  {line}", *([f"  ({notice})"] if notice else [])]

    async def _wait_for_text(self, pattern: re.Pattern[str], *, is_shown: bool) -> None:
        simulator = self._environment.slack if self._scene.platform == "slack" else self._environment.discord
        await simulator.wait_for(
            lambda: bool(pattern.search("\n".join(self._list_visible_lines()))) is is_shown,
            timeout=EVENT_TIMEOUT_SECONDS,
        )

    async def _show(self, *, is_complete: bool) -> None:
        """Add the conversation to the exchange, as the current user sees it.

        Args:
            is_complete: whether to wait until all answers are complete.
        """
        if is_complete:
            await self._wait_for_text(UNFINISHED, is_shown=False)
        session = self._sessions.current
        self._lines += [
            "",
            f"{session.get_open_channel().name}, as {session.user.name} sees it:",
            *self._list_visible_lines(),
            "",
        ]

    def _list_visible_lines(self) -> list[str]:
        session = self._sessions.current
        channel, lines = session.get_open_channel(), list[str]()
        for message in session.platform.list_messages(channel, session.user):
            lines += _format_message(message, "  ")
            if message.reply_count:
                thread = session.platform.list_messages(ClientLocation(channel.channel, message.id), session.user)
                lines += [line for reply in thread[1:] for line in _format_message(reply, "      ")]
        return lines


def _format_message(message: ClientMessage, indent: str) -> Iterator[str]:
    """Yield a message as lines: author, audience, replied-to author, text, reactions."""
    audience = " (nobody else sees this)" if message.ephemeral_to else ""
    edited = " (edited)" if message.is_edited and not message.is_from_bot else ""
    reply = f" (in reply to {message.reply_to.author})" if message.reply_to else ""
    first, *following = message.plain_text.splitlines() or [""]
    yield f"{indent}{message.author}{audience}{reply}: {first}{'' if following else edited}"
    yield from (f"{indent}    {line}" for line in following)
    if message.reactions:
        yield f"{indent}    {' '.join(reaction.emoji for reaction in message.reactions)}"


@asynccontextmanager
async def _run_platforms(setup: Setup) -> AsyncIterator[Environment]:
    """Run the platforms with the channels of the scenes, and the bot."""
    async with (
        SlackSimulator(bot_name=BOT_NAME) as slack,
        SlackSimulator(name="Partner", bot_name=BOT_NAME, primary=slack) as partner,
        DiscordSimulator(bot_name=BOT_NAME) as discord,
        ScriptedOpenAI(respond) as model,
    ):
        for scene in setup.scenes:
            simulator = slack if scene.platform == "slack" else discord
            if scene.channel and scene.channel not in simulator.channels:
                simulator.add_channel(scene.channel)

        def resolve_setting(value: str) -> str:
            secrets = {"client-id": slack.oauth.client_id, "client-secret": slack.oauth.client_secret}
            secrets |= {"signing-secret": slack.signing_secret}
            return secrets.get(value, value)

        settings = {name: resolve_setting(value) for name, value in setup.settings.items()}
        async with run_bot(slack, discord, model, **settings) as process:
            yield Environment(slack, partner, discord, process)


async def main(names: Sequence[str] = ()) -> None:
    """Play all scenes, or those with these names; write the exchanges into the pages."""
    exchanges: dict[str, str] = {}
    for setup in scenes.SETUPS:
        selected = [scene for scene in setup.scenes if not names or scene.name in names]
        if not selected:
            continue
        async with _run_platforms(setup) as environment:
            for scene in selected:
                exchanges[scene.name] = await _ScenePlayer(scene, environment).play()
    for page in sorted(PAGES.rglob("*.md")):
        _update_page(page, exchanges)


def _update_page(page: Path, exchanges: Mapping[str, str]) -> None:
    def replace_exchange(found: re.Match[str]) -> str:
        text = exchanges.get(found["name"])
        if text is None:
            return found[0]
        indented = "".join(f"{found['indent']}{line}".rstrip() + "\n" for line in text.splitlines())
        return f"{found['begin']}{indented}{found['end']}"

    text = page.read_text()
    if (written := EXCHANGE.sub(replace_exchange, text)) != text:
        page.write_text(written)
