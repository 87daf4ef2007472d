"""The exchanges of the page for those who use the bot: each scene is played with the real bot, and what people then see
is written into the page.

What is typed is what one types at the sandbox's terminal. In a scene, a line is

    NAME: WORDS    what somebody types
    ~ WORDS        wait until they are seen there
    - WORDS        wait until they are seen no more
    =              show the place once all answers stand, as who typed last sees it
    *              show it as it is now
    + TEXT         something else that happens: see `_Stage.extra`
"""

import asyncio
import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.pictures.stage import ROOT, bot, lay
from sandbox.discord import DiscordSandbox
from sandbox.models import Asked, Call, Fail, Pause, Say, ScriptedOpenAI, Turn
from sandbox.seats.discord import DiscordPlatform
from sandbox.seats.slack import SlackPlatform
from sandbox.seats.view import Message, Place
from sandbox.slack import SlackSandbox
from sandbox.terminal.desks import Desks

PAGE = ROOT / "docs" / "howto" / "use-it-every-day.md"

#: Where an exchange stands in the page, with the name of its scene.
PLACE = re.compile(
    r"(?P<begin><!-- exchange: (?P<name>[a-z-]+) -->\n```text\n)(?P<said>.*?)(?P<end>^```$)", re.M | re.S
)

#: Seconds within which what a scene waits for has to be seen.
WITHIN = 30.0

#: What is another each time, and what the page has in its place.
CHANGING = {
    r"\d{17,}": "...",
    r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?": "...",
    r"`[0-9a-f]{10}`": "`...`",
    r"@S0[A-Z0-9]{9}": "@oncall",
}

#: What tells of an answer that does not stand yet: a placeholder (of a stream, its task), a button, a receipt.
PASSING = re.compile(r": (✓ )?…$|\[ Stop \]|👀", re.M)

#: Files that lie where one types, and one with a tool, where the bot runs.
PLAN = "day;task\nMon;write\nTue;test\n"
TOOL = '''\
def report() -> dict[str, object]:
    """Make the report."""
    return {"report.csv": b"day,count\\nMon,3\\n", "rows": 1}
'''


@dataclass(frozen=True)
class Scene:
    """Attributes:
    where: the channel, made for it; nothing for direct messages.
    """

    name: str
    platform: str
    where: str
    script: str


SCENES = (
    Scene(
        "slack-suggestions",
        "slack",
        "",
        """
        + grace opens the direct messages
        grace: What is the capital of Japan?
        ~ Tokyo
        =
        + session
        """,
    ),
    Scene(
        "slack-buttons",
        "slack",
        "launch",
        """
        ada: @parley when do we ship?
        ~ Ship it
        ada: /press regenerate
        ~ On Monday
        ~ Regenerate
        ada: /press good
        =
        """,
    ),
    Scene(
        "discord-buttons",
        "discord",
        "launch",
        """
        ada: @parley when do we sail?
        ~ At dawn
        ~ Regenerate
        grace: /press regenerate
        ~ asked
        =
        """,
    ),
    Scene(
        "discord-retry",
        "discord",
        "weather",
        """
        ada: @parley will it rain?
        ~ Retry
        =
        ada: /press retry
        ~ It stays dry.
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "stop",
        "discord",
        "stories",
        """
        ada: @parley tell me a long story
        ~ Once upon a time
        *
        ada: /press stop
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "slack-stop",
        "slack",
        "",
        """
        ada: tell me a long story
        ~ Once upon a time
        ada: /press stop
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "edit",
        "slack",
        "colours",
        """
        ada: @parley why is the sea blue?
        ~ Regenerate
        ada: /edit @parley why is the sky blue?
        ~ Answer the edited question
        =
        ada: /press answer
        ~ Air scatters
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "edit-calls",
        "discord",
        "oncall",
        """
        ada: who is on call?
        ada: /edit @parley who is on call?
        ~ Linus is.
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "group",
        "slack",
        "pager",
        """
        + ada asks about a group
        ~ Ada and Grace
        =
        + what the model read
        """,
    ),
    Scene(
        "bots",
        "slack",
        "robots",
        """
        + a robot calls the bot
        =
        """,
    ),
    Scene(
        "free",
        "discord",
        "help-desk",
        """
        ada: how do I undo a commit?
        ~ git reset
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "delete",
        "discord",
        "errands",
        """
        ada: @parley who feeds the cat?
        ~ Regenerate
        ada: /delete
        ~ deleted
        =
        """,
    ),
    Scene(
        "waiting",
        "discord",
        "queue",
        """
        ada: @parley count the stars
        ~ One, two
        grace: @parley and the planets?
        ~ 👀
        *
        + let the model go on
        ~ Eight.
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "follow",
        "slack",
        "team",
        """
        ada: @parley who is on call?
        ~ Linus is.
        ada: /thread last
        ada: until when?
        ~ Until Friday.
        grace: Ada, did you see the build?
        ada: yes, it is green
        ada: @parley mute
        ~ keep quiet
        =
        """,
    ),
    Scene(
        "context",
        "slack",
        "builds",
        """
        grace: The build of Friday failed twice.
        grace: /thread last
        linus: Something with the disk, I think.
        ada: @parley what is this about?
        ~ A full disk
        =
        + what the model read
        """,
    ),
    Scene(
        "quotation",
        "discord",
        "builds",
        """
        grace: The build of Friday failed twice.
        + ada replies to that
        ~ It is:
        =
        + what the model read
        """,
    ),
    Scene(
        "files",
        "slack",
        "plans",
        """
        ada: /file plan.csv @parley what is on Monday?
        ~ Writing.
        =
        + what the model read
        """,
    ),
    Scene(
        "files-out",
        "discord",
        "numbers",
        """
        ada: @parley make the report
        ~ report.csv
        =
        """,
    ),
    Scene(
        "slack-commands",
        "slack",
        "desk",
        """
        ada: @parley how do I undo a commit?
        ~ git reset
        ada: @parley what is a rebase?
        ~ It moves commits
        ada: /agent-status
        ~ Remembered
        ada: /model openai/other
        ~ openai/other
        ada: /reset
        ~ Which conversation
        =
        ada: /press how do I
        ~ Started over
        =
        """,
    ),
    Scene(
        "discord-commands",
        "discord",
        "desk",
        """
        ada: /ask question:what is a rebase?
        ~ It moves commits
        + ada begins to type /model
        ada: /model openai/other
        ~ openai/other
        ada: /export
        ~ transcript.md
        + what is in the file
        ada: /reset
        ~ Started over
        =
        """,
    ),
    Scene(
        "slack-menu",
        "slack",
        "reviews",
        """
        grace: The parser is twice as fast since Tuesday.
        ada: /menu ask about this: is that good?
        ~ It is.
        =
        """,
    ),
    Scene(
        "discord-menu",
        "discord",
        "reviews",
        """
        grace: The parser is twice as fast since Tuesday.
        ada: /menu ask
        ~ It is.
        =
        """,
    ),
    Scene(
        "korean",
        "slack",
        "seoul",
        """
        minji: @parley help
        ~ reset
        =
        """,
    ),
    Scene(
        "forum",
        "discord",
        "ideas",
        """
        ada: @parley how about a dark mode?
        ~ Why not?
        ada: /thread last
        ada: and a light one?
        ~ That, too.
        =
        """,
    ),
)


def script(held: asyncio.Event) -> Callable[[Asked], Turn]:
    """What the model says: the answers to each question, by words of it, the last one again and again."""
    never = asyncio.Event()
    answers: dict[str, list[Turn]] = {
        "until when": ["Until Friday."],
        "on call": ["Linus is."],
        "what is this about": ["A full disk: the build has failed twice."],
        "planets": ["Eight."],
        "light one": ["That, too."],
        "dark mode": ["Why not?"],
        "oncall": ["Ada and Grace."],
        "ship": ["Ship it when it is green.", "On Monday."],
        "sail": ["At dawn."],
        "bad": ["It is: the disk is full."],
        "rain": [Fail(400), "It stays dry."],
        "story": [[Say("Once upon a time"), Pause(never)]],
        "sea blue": ["Water takes the red out of the light."],
        "sky blue": ["Air scatters blue light most."],
        "cat": ["Grace does."],
        "stars": [[Say("One, two"), Pause(held), Say(", and so on.")]],
        "on Monday": ["Writing."],
        "make the report": [Call("report", id="1"), "Here it is."],
        "undo": ["With `git reset --soft HEAD~1`."],
        "rebase": ["It moves commits to another base."],
        "parser": ["It is."],
        "Japan": ["Tokyo."],
    }

    def answer(asked: Asked) -> Turn:
        turns = next((turns for words, turns in answers.items() if words in asked.text), ["Hm."])
        return turns.pop(0) if len(turns) > 1 else turns[0]

    return answer


class _Stage:
    """Plays a scene."""

    def __init__(
        self, scene: Scene, slack: SlackSandbox, discord: DiscordSandbox, model: ScriptedOpenAI, held: asyncio.Event
    ) -> None:
        self._slack, self._discord, self._model, self._held = slack, discord, model, held
        self._desks = Desks([SlackPlatform(slack), DiscordPlatform(discord)])
        self._lines: list[str] = []
        self._scene = scene

    async def play(self) -> str:
        await self._desks.enter(f"/{self._scene.platform}")
        if self._scene.where:
            await self._desks.enter(f"/channel {self._scene.where}")
        for line in filter(None, map(str.strip, self._scene.script.splitlines())):
            sign, _, rest = line.partition(" ")
            if sign in ("~", "-"):
                await self._sees(re.compile(re.escape(rest)), is_there=sign == "~")
            elif sign in ("=", "*"):
                await self._show(at_rest=sign == "=")
            elif sign == "+":
                await self._extra(rest)
            else:
                await self._types(*line.split(": ", 1))
        text = "\n".join(line.rstrip() for line in self._lines).strip("\n")
        for changing, shown in CHANGING.items():
            text = re.sub(changing, shown, text)
        return re.sub(r"\n{3,}", "\n\n", text) + "\n"

    async def _types(self, who: str, line: str) -> None:
        told = await self._desks.enter(f"/as {who}") or await self._desks.enter(line)
        self._lines += [f"{who} types  {line}", *([f"  ({told})"] if told else [])]

    async def _sees(self, words: re.Pattern[str], *, is_there: bool) -> None:
        sandbox = self._slack if self._scene.platform == "slack" else self._discord
        await sandbox.wait_for(lambda: bool(words.search("\n".join(self._seen()))) is is_there, timeout=WITHIN)

    async def _show(self, *, at_rest: bool) -> None:
        if at_rest:
            await self._sees(PASSING, is_there=False)
        desk = self._desks.desk
        self._lines += ["", f"{desk.home().name}, as {desk.speaker.name} sees it:", *self._seen(), ""]

    def _seen(self) -> list[str]:
        desk = self._desks.desk
        home, seen = desk.home(), list[str]()
        for message in desk.platform.messages(home, desk.speaker):
            seen += _written(message, "  ")
            if message.replies:
                thread = desk.platform.messages(Place(home.channel, message.id), desk.speaker)
                seen += [line for reply in thread[1:] for line in _written(reply, "      ")]
        return seen

    async def _extra(self, what: str) -> None:
        """Do what no line does, and tell it."""
        desk = self._desks.desk
        match what:
            case "grace opens the direct messages":
                await self._desks.enter("/as grace")
                await self._slack.open_home("grace")
                channel = self._slack.open_dm("grace")
                await self._slack.wait_for(lambda: channel.prompts, timeout=WITHIN)
                self._lines += ["grace opens the direct messages; Slack suggests:"]
                self._lines += [f"    [ {title} ]" for title, _ in channel.prompts]
            case "ada asks about a group":
                group = self._slack.add_group("oncall", ["ada", "grace"])
                text = f"<@{self._slack.bot_user_id}> who is in <!subteam^{group.id}>?"
                await self._slack.say("ada", self._scene.where, text)
                self._lines += ["ada types  @parley who is in @oncall?"]
            case "a robot calls the bot":
                await self._slack.bot_says("robot", self._scene.where, f"<@{self._slack.bot_user_id}> hello?")
                self._lines += ["a robot calls the bot:  @parley hello?"]
            case "session":
                said = desk.said
                assert said is not None
                found = next(m for m in self._slack.messages(said.channel) if m.ts == said.id)
                await self._slack.wait_for(lambda: (s := self._slack.session(found)) and s.status == "active")
                session = self._slack.session(found)
                assert session is not None
                self._lines += [f"Slack calls the conversation “{session.title}”; it was {session.statuses[0]}."]
            case "let the model go on":
                self._held.set()
            case "what the model read":
                read = [text for role, text in self._model.asked[-1].messages if role == "user"]
                self._lines += ["what the model reads:", *(f"  {line}" for line in "\n".join(read).splitlines())]
            case "ada replies to that":
                (reply,) = self._discord.messages(self._scene.where)
                await self._discord.say(
                    "ada", self._scene.where, f"<@{self._discord.bot_id}> is that bad?", reply_to=reply
                )
                self._lines += ["ada replies to that:  @parley is that bad?"]
            case "what is in the file":
                data = self._discord.messages(self._scene.where)[-1].content.attachments[0].data
                self._lines += ["", "what is in the file:", *(f"  {line}" for line in data.decode().splitlines()), ""]
            case "ada begins to type /model":
                offers = await self._discord.complete("ada", self._scene.where, "model", "name", "openai")
                self._lines += [f"ada begins to type  /model openai, and is offered: {', '.join(offers)}"]


def _written(message: Message, indent: str) -> Iterator[str]:
    """A message in lines: who says it, to whom alone, in reply to what, what it holds, and the reactions."""
    only = " (nobody else sees this)" if message.only_for else ""
    edited = " (edited)" if message.edited and not message.by_bot else ""
    to = f" (in reply to {message.reply_to.author})" if message.reply_to else ""
    first, *more = message.plain.splitlines() or [""]
    yield f"{indent}{message.author}{only}{to}: {first}{'' if more else edited}"
    yield from (f"{indent}    {line}" for line in more)
    if message.reactions:
        yield f"{indent}    {' '.join(reaction.emoji for reaction in message.reactions)}"


async def main(names: Sequence[str] = ()) -> None:
    """Play the scenes, all or those of these names, and write what comes of them into the page."""
    held, exchanges = asyncio.Event(), {}
    async with (
        SlackSandbox() as slack,
        DiscordSandbox() as discord,
        ScriptedOpenAI(script(held)) as model,
        bot(
            slack,
            discord,
            model,
            {"chart.py": TOOL},
            TOOLS="chart:report",
            DISCORD_FREE_CHANNELS=discord.add_channel("help-desk").id,
            MODELS="openai/scripted,openai/other",
        ),
    ):
        slack.add_user("minji", locale="ko-KR")
        for scene in SCENES:
            if scene.where and scene.where not in (sandbox := slack if scene.platform == "slack" else discord).channels:
                sandbox.add_channel(scene.where)
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            lay(Path(), {"plan.csv": PLAN})
            for scene in SCENES:
                if not names or scene.name in names:
                    stage = _Stage(scene, slack, discord, model, held)
                    exchanges[scene.name] = await stage.play()

    def newest(found: re.Match[str]) -> str:
        text = exchanges.get(found["name"])
        return found[0] if text is None else f"{found['begin']}{text}{found['end']}"

    PAGE.write_text(PLACE.sub(newest, PAGE.read_text()))
