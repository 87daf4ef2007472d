"""Plays the scenes of the pages with the real bot, and writes their messages into the pages: `make docs-pictures`."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from docs.pictures import scenes
from docs.pictures.answers import respond
from docs.pictures.events import EVENT_TIMEOUT_SECONDS, EVENTS, Environment
from docs.pictures.scene import Scene, Setup
from docs.pictures.stage import ROOT, run_bot
from sandbox.client.discord import DiscordPlatform
from sandbox.client.platform import ClientLocation, ClientMessage
from sandbox.client.slack import SlackPlatform
from sandbox.discord import DiscordSandbox
from sandbox.models import ScriptedOpenAI
from sandbox.slack import SlackSandbox
from sandbox.terminal.sessions import TerminalSessions

PAGES = ROOT / "docs"

#: Exchange in a page, with the name of its scene.
PLACE = re.compile(
    r"(?P<begin><!-- exchange: (?P<name>[a-z-]+) -->\n(?P<indent> *)```(?:text|console)\n)"
    r"(?P<said>.*?)(?P<end>^(?P=indent)```$)",
    re.M | re.S,
)

#: Patterns of values that change with each run, and their replacements in the page.
CHANGING = {
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
PASSING = re.compile(r": (✓ )?…$|\[ Stop \]|👀", re.M)


class _ScenePlayer:
    """Plays a scene."""

    def __init__(self, scene: Scene, environment: Environment) -> None:
        self._environment = environment
        self._sessions = TerminalSessions([SlackPlatform(environment.slack), DiscordPlatform(environment.discord)])
        self._lines: list[str] = []
        self._scene = scene

    async def play(self) -> str:
        await self._sessions.run_line(f"/{self._scene.platform}")
        if self._scene.where:
            await self._sessions.run_line(f"/channel {self._scene.where}")
        for line in filter(None, map(str.strip, self._scene.script.splitlines())):
            sign, _, rest = line.partition(" ")
            if sign in ("~", "-"):
                await self._wait_for_text(re.compile(re.escape(rest)), is_there=sign == "~")
            elif sign in ("=", "*"):
                await self._show(at_rest=sign == "=")
            elif sign == "+":
                self._lines += await EVENTS[rest](self._environment, self._scene.where, self._sessions.current)
            elif sign == "$":
                self._lines += [f"$ {rest}", *(await self._environment.bot.run(rest)).splitlines()]
            elif sign == ">":
                self._lines += self._environment.bot.find_log_lines(rest)
            else:
                await self._type(*line.split(": ", 1))
        text = "\n".join(line.rstrip() for line in self._lines).strip("\n")
        for changing, shown in CHANGING.items():
            text = re.sub(changing, shown, text, flags=re.M)
        return re.sub(r"\n{3,}", "\n\n", text) + "\n"

    async def _type(self, user: str, line: str) -> None:
        told = await self._sessions.run_line(f"/as {user}") or await self._sessions.run_line(line)
        self._lines += [f"{user} types  {line}", *([f"  ({told})"] if told else [])]

    async def _wait_for_text(self, words: re.Pattern[str], *, is_there: bool) -> None:
        sandbox = self._environment.slack if self._scene.platform == "slack" else self._environment.discord
        await sandbox.wait_for(
            lambda: bool(words.search("\n".join(self._list_visible_lines()))) is is_there, timeout=EVENT_TIMEOUT_SECONDS
        )

    async def _show(self, *, at_rest: bool) -> None:
        if at_rest:
            await self._wait_for_text(PASSING, is_there=False)
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
    """Yield a message as lines: author, audience, quoted message, content and reactions."""
    only = " (nobody else sees this)" if message.ephemeral_to else ""
    edited = " (edited)" if message.is_edited and not message.is_from_bot else ""
    to = f" (in reply to {message.reply_to.author})" if message.reply_to else ""
    first, *kwargs = message.plain_text.splitlines() or [""]
    yield f"{indent}{message.author}{only}{to}: {first}{'' if kwargs else edited}"
    yield from (f"{indent}    {line}" for line in kwargs)
    if message.reactions:
        yield f"{indent}    {' '.join(reaction.emoji for reaction in message.reactions)}"


@asynccontextmanager
async def _run_platforms(setup: Setup) -> AsyncIterator[Environment]:
    """Run the platforms with the channels of the scenes, and the bot."""
    async with (
        SlackSandbox() as slack,
        SlackSandbox(name="Partner", primary=slack) as partner,
        DiscordSandbox() as discord,
        ScriptedOpenAI(respond) as model,
    ):
        for scene in setup.scenes:
            sandbox = slack if scene.platform == "slack" else discord
            if scene.where and scene.where not in sandbox.channels:
                sandbox.add_channel(scene.where)

        def resolve_setting(value: str) -> str:
            known = {"client-id": slack.oauth.client_id, "client-secret": slack.oauth.client_secret}
            known |= {"signing-secret": slack.signing_secret}
            return known.get(value, value)

        settings = {name: resolve_setting(value) for name, value in setup.settings.items()}
        async with run_bot(slack, discord, model, **settings) as process:
            yield Environment(slack, partner, discord, process)


async def main(names: Sequence[str] = ()) -> None:
    """Play all scenes, or those of these names, and write their messages into the pages."""
    exchanges: dict[str, str] = {}
    for setup in scenes.SETUPS:
        wanted = [scene for scene in setup.scenes if not names or scene.name in names]
        if not wanted:
            continue
        async with _run_platforms(setup) as environment:
            for scene in wanted:
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
    if (written := PLACE.sub(replace_exchange, text)) != text:
        page.write_text(written)
