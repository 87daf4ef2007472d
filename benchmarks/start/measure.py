"""Measurement of one start of a program with a local Slack and Discord."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from benchmarks.soak.sessions import DiscordSoakPlatform, SlackSoakPlatform, visible_text
from benchmarks.start.contenders import ROOT, StartContender
from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedOpenAI
from chatrig.slack import SlackSimulator

#: Answer of the model.
_ANSWER = "Here I am."

#: Limit of a start, and the pause before the memory is read, in seconds.
_TIMEOUT_SECONDS, _IDLE_SECONDS = 120.0, 10.0

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class StartFigures:
    """Figures of one start: seconds from exec, and memory in megabytes.

    Attributes:
        ready: seconds until the program reports readiness or, without a report, is connected.
        answered: seconds until the program has answered a message on each platform, sent when it is ready.
        cpu: CPU seconds of the process until the answer, without its children.
        rss, pss: resident and proportional memory after an idle pause.
    """

    ready: float
    answered: float
    cpu: float
    rss: float
    pss: float


def _create_platforms(name: str) -> list[SlackSoakPlatform | DiscordSoakPlatform]:
    platforms: list[SlackSoakPlatform | DiscordSoakPlatform] = [
        SlackSoakPlatform(SlackSimulator()),
        DiscordSoakPlatform(DiscordSimulator()),
    ]
    return [platform for platform in platforms if name in (platform.name, "both")]


async def measure(contender: StartContender, platform: str, *, idle: float = _IDLE_SECONDS) -> StartFigures:
    """Start a contender in a temporary folder; measure its start and first answers.

    At the end, also after an error, the program is killed and the folder deleted.

    Args:
        platform: "slack", "discord" or "both".
        idle: seconds between the answer and the measurement of the memory.

    Raises:
        TimeoutError: the program is not ready, or an answer is missing, `_TIMEOUT_SECONDS` after the start. The error's
            text has the program's last output.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        model = await stack.enter_async_context(ScriptedOpenAI(lambda _request: _ANSWER))
        settings = {"MODEL": "openai/scripted", "OPENAI_BASE_URL": model.base_url, "PORT": "0"}
        platforms = _create_platforms(platform)
        for local in platforms:
            await stack.enter_async_context(local.simulator)
            settings |= local.settings
            if isinstance(local, DiscordSoakPlatform):  # some clients do not ask Discord for the gateway's address
                settings["DISCORD_GATEWAY_URL"] = local.simulator.gateway_url
        command = contender.command(platform, folder, settings)
        environment = {**os.environ, "PYTHONPATH": ROOT, **settings, **contender.environment(folder)}
        output = folder / "output"
        out = os.open(output, os.O_WRONLY | os.O_CREAT)
        stack.callback(os.close, out)
        began = monotonic()
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environment, stdout=out, stderr=out)
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await (
                    _wait_for_output(output, contender.ready) if contender.ready else _wait_until_connected(platforms)
                )
                ready = monotonic() - began
                await asyncio.gather(*map(_wait_for_answer, platforms))
                answered, cpu = monotonic() - began, _read_cpu_seconds(process.pid)
            await asyncio.sleep(idle)
            return StartFigures(ready, answered, cpu, *_read_memory(process.pid))
        except TimeoutError as error:
            raise TimeoutError(f"{contender.name} on {platform}: {_read_output(output)[-2000:]}") from error
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _wait_until_connected(platforms: Sequence[SlackSoakPlatform | DiscordSoakPlatform]) -> None:
    for platform in platforms:
        await platform.simulator.wait_until_connected(_TIMEOUT_SECONDS)


async def _wait_for_answer(platform: SlackSoakPlatform | DiscordSoakPlatform) -> None:
    """Post a message in the simulator, and wait until the program answers it.

    Raises:
        TimeoutError: no answer came within `_TIMEOUT_SECONDS`.
    """
    place = platform.create_place(0)
    await place.post_message("hello")
    await platform.simulator.wait_for(lambda: _ANSWER in visible_text(place), timeout=_TIMEOUT_SECONDS)


async def _wait_for_output(output: Path, word: str) -> None:
    while word not in _read_output(output):  # noqa: ASYNC110 - a file sends no event
        await asyncio.sleep(0.01)


def _read_output(output: Path) -> str:
    return output.read_text(errors="replace")


def _read_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process without its children, from Linux's `/proc`."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def _read_memory(pid: int) -> tuple[float, float]:
    """Return RSS and PSS of a process in megabytes, from Linux's `/proc`."""
    sizes = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return int(sizes["Rss"].split()[0]) / 1024, int(sizes["Pss"].split()[0]) / 1024
