"""Measurement of one start with a local Slack and Discord."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from benchmarks.soak.sessions import Discord, Slack, shown
from benchmarks.start.contenders import HERE, Contender
from sandbox.discord import DiscordSandbox
from sandbox.models import ScriptedOpenAI
from sandbox.slack import SlackSandbox

#: Answer of the model.
_ANSWER = "Here I am."

#: Limit of a start, and the pause before the memory is read, in seconds.
_PATIENCE, _IDLE = 120.0, 10.0

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds from exec, and megabytes.

    Attributes:
        ready: until it reports readiness or, without a report, is connected.
        answered: until the answer to the first message, which is sent when it is ready.
        cpu: CPU seconds until then.
        rss, pss: memory after an idle pause.
    """

    ready: float
    answered: float
    cpu: float
    rss: float
    pss: float


def _platforms(wanted: str) -> list[Slack | Discord]:
    platforms: list[Slack | Discord] = [Slack(SlackSandbox()), Discord(DiscordSandbox())]
    return [platform for platform in platforms if wanted in (platform.name, "both")]


async def measure(contender: Contender, platform: str, *, idle: float = _IDLE) -> Figures:
    """Start the contender once in a folder of its own.

    Raises:
        TimeoutError: it did not answer; the text has its last output.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        model = await stack.enter_async_context(ScriptedOpenAI(lambda _asked: _ANSWER))
        settings = {"MODEL": "openai/scripted", "OPENAI_BASE_URL": model.base_url, "PORT": "0"}
        platforms = _platforms(platform)
        for each in platforms:
            await stack.enter_async_context(each.sandbox)
            settings |= each.settings
            if isinstance(each, Discord):  # some clients do not ask Discord for the gateway's address
                settings["DISCORD_GATEWAY_URL"] = each.sandbox.gateway_url
        command = contender.command(platform, folder, settings)
        environment = {**os.environ, "PYTHONPATH": HERE, **settings, **contender.more(folder)}
        output = folder / "output"
        out = os.open(output, os.O_WRONLY | os.O_CREAT)
        stack.callback(os.close, out)
        began = monotonic()
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environment, stdout=out, stderr=out)
        try:
            async with asyncio.timeout(_PATIENCE):
                await (_says(output, contender.ready) if contender.ready else _connected(platforms))
                ready = monotonic() - began
                await asyncio.gather(*map(_answered, platforms))
                answered, cpu = monotonic() - began, _cpu(process.pid)
            await asyncio.sleep(idle)
            return Figures(ready, answered, cpu, *_memory(process.pid))
        except TimeoutError as error:
            raise TimeoutError(f"{contender.name} on {platform}: {_told(output)[-2000:]}") from error
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _connected(platforms: Sequence[Slack | Discord]) -> None:
    for platform in platforms:
        await platform.sandbox.wait_until_connected(_PATIENCE)


async def _answered(platform: Slack | Discord) -> None:
    """Send a message, and wait for the answer."""
    place = platform.place(0)
    await place.say("hello")
    await platform.sandbox.wait_for(lambda: _ANSWER in shown(place), timeout=_PATIENCE)


async def _says(output: Path, word: str) -> None:
    while word not in _told(output):  # noqa: ASYNC110 - a file tells nobody
        await asyncio.sleep(0.01)


def _told(output: Path) -> str:
    return output.read_text(errors="replace")


def _cpu(pid: int) -> float:
    """Return the CPU seconds from `/proc`."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _memory(pid: int) -> tuple[float, float]:
    """Return RSS and PSS in MB from `/proc`."""
    told = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return int(told["Rss"].split()[0]) / 1024, int(told["Pss"].split()[0]) / 1024
