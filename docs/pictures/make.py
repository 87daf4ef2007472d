"""All pictures of the docs: `make docs-pictures`.

They show chats in Slack and Discord, the simulator's page, diagrams from the code, and terminals. The simulator and the
bot are real. The model is scripted, so that it can pause for a picture.
"""

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

from textual.pilot import Pilot  # noqa: E402 - the path comes first

from bot.simulator.command import BOT_NAME  # noqa: E402
from chatrig.client.discord import DiscordPlatform  # noqa: E402
from chatrig.client.slack import SlackPlatform  # noqa: E402
from chatrig.discord import DiscordSimulator  # noqa: E402
from chatrig.models import Pause, Say, ScriptedOpenAI, ScriptedResponse  # noqa: E402
from chatrig.slack import SlackSimulator  # noqa: E402
from chatrig.terminal.app import TerminalApp  # noqa: E402
from docs.pictures import chats, diagrams, exchanges, film, later, page, setup, signin  # noqa: E402
from docs.pictures.stage import run_bot  # noqa: E402

#: Columns and lines of the terminal.
SIZE = (96, 24)

#: Display time of each picture in the animation.
PICTURE_SECONDS = 2.0

QUESTION = "@parley how do I undo my last commit, but keep the changes?"
FIRST_HALF = """\
Move the branch back by one commit and leave the files as they are:

```sh
git reset --soft HEAD~1
```
"""
SECOND_HALF = """
- The changes stay staged, ready for the next commit.
- If the commit is pushed already, use `git revert HEAD`: it undoes the commit with a new one, and nobody's
  history changes."""


async def main() -> None:
    may_begin, may_finish = asyncio.Event(), asyncio.Event()
    script: list[ScriptedResponse] = [
        [Pause(may_begin), Say(FIRST_HALF), Pause(may_finish), Say(SECOND_HALF)],
        [Say(FIRST_HALF), Say(SECOND_HALF)],
    ]
    pictures: list[str] = []
    async with (
        SlackSimulator(bot_name=BOT_NAME) as slack,
        DiscordSimulator(bot_name=BOT_NAME) as discord,
        ScriptedOpenAI(script) as model,
        run_bot(slack, discord, model),
    ):

        def list_slack_texts() -> list[str]:
            messages = [message for message in slack.messages("general") if message.user == slack.bot_user_id]
            return ["".join([*(task.title for task in message.tasks), message.text]) for message in messages]

        def list_discord_texts() -> list[str]:
            messages = discord.messages("general")
            return [message.content.text for message in messages if message.author.id == discord.bot_id]

        terminal = TerminalApp(SlackPlatform(slack), DiscordPlatform(discord), notices=[])
        async with terminal.run_test(size=SIZE) as pilot:
            await enter(pilot, "/channel general")
            await enter(pilot, QUESTION)
            await slack.wait_for(contains_text("…", list_slack_texts), timeout=30)
            await pilot.press("ctrl+t")
            pictures.append(await take_screenshot(pilot))
            may_begin.set()
            await slack.wait_for(contains_text("HEAD~1", list_slack_texts), timeout=30)
            pictures.append(await take_screenshot(pilot))
            may_finish.set()
            await slack.wait_for(contains_text("history changes.", list_slack_texts), timeout=30)
            pictures.append(await take_screenshot(pilot))
            await enter(pilot, "/discord")
            await enter(pilot, "/channel general")
            await enter(pilot, QUESTION)
            await discord.wait_for(contains_text("history changes.", list_discord_texts), timeout=30)
            (HERE / "discord.svg").write_text(await take_screenshot(pilot))
    for number, svg in enumerate(pictures, 1):
        (HERE / f"reply-{number}.svg").write_text(svg)
    (HERE / "reply.svg").write_text(animate(pictures))
    await asyncio.to_thread(diagrams.main)  # it runs an event loop of its own
    await exchanges.main()
    await setup.main()
    await page.main()
    await chats.main()
    await later.main()
    await signin.main()
    await film.main()


async def enter(pilot: Pilot[None], line: str) -> None:
    await pilot.press(*line, "enter")
    await pilot.pause()


def contains_text(words: str, list_texts: Callable[[], Sequence[str]]) -> Callable[[], bool]:
    """Return a function that returns whether one of the texts contains `words`."""
    return lambda: any(words in text for text in list_texts())


async def take_screenshot(pilot: Pilot[None]) -> str:
    """Return a screenshot after all changes are painted."""
    for _ in range(5):
        await pilot.pause(0.1)
    # Rich names a font that a browser would have to download; an installed one serves as well.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", pilot.app.export_screenshot(title="make run"), flags=re.DOTALL)
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


def animate(pictures: Sequence[str]) -> str:
    """Return an SVG that shows the pictures in turn, in an endless loop."""
    found = re.search(r'viewBox="([^"]+)"', pictures[0])
    assert found is not None
    percent = 100 / len(pictures)
    seconds = PICTURE_SECONDS * len(pictures)
    style = [f".picture {{ animation: {seconds:g}s step-end infinite; }}"]
    for number in range(len(pictures)):
        start, end = number * percent, (number + 1) * percent
        steps = {0.0: 0, start: 1, end: 0, 100.0: 0}  # for equal keys, the last one counts
        frames = " ".join(f"{at:.2f}% {{ opacity: {opacity}; }}" for at, opacity in sorted(steps.items()))
        style.append(f"@keyframes picture-{number} {{ {frames} }}")
        style.append(f".picture-{number} {{ animation-name: picture-{number}; }}")
    layers = []
    for number, svg in enumerate(pictures):
        opacity = 1 if number == len(pictures) - 1 else 0
        layers.append(f'<g class="picture picture-{number}" opacity="{opacity}">\n{svg}\n</g>')
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{found[1]}">', "<style>", *style, "</style>", *layers]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    asyncio.run(main())
