"""What a deploy does to those who are talking, and the files that others run the bot with."""

import asyncio
import os
import re
import signal
import socket
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest
import typer.main
import yaml
from typer.core import TyperGroup

from bot.cli import cli
from bot.probes import ALIVE
from bot.settings import Settings
from core import metrics
from core.worker import CLOSING_SECONDS
from sandbox.discord import DiscordSandbox
from sandbox.models import Asked, Say, ScriptedOpenAI, Turn
from sandbox.slack import SlackSandbox
from tests.acceptance.platforms import Discord, Platform, Slack
from tests.environment import inherited

ROOT = Path(__file__).parents[2]

#: Heroku: what is told to end is killed after so many seconds.
KILLED_AFTER = 30.0


class Dyno:
    """Runs what the Procfile says, as Heroku does: each command by a shell, in a group of its own that is told to end
    with SIGTERM, and killed 30 seconds later.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        lines = (ROOT / "Procfile").read_text().splitlines()
        self._commands = dict(line.split(": ", 1) for line in lines)
        self._folder = folder
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**inherited(), "PATH": path, "PYTHONPATH": str(ROOT), **settings}
        self.log = folder / "dyno.log"

    async def start(self, name: str) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_shell(
                f"exec {self._commands[name]}",
                cwd=self._folder,
                env={**self._environment, "DYNO": f"{name}.1"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def ends(self) -> int:
        """The exit code of what ends by itself."""
        return await asyncio.wait_for(self._process.wait(), 60)

    async def stop(self) -> int:
        """The exit code; negative, if it had to be killed."""
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            return await asyncio.wait_for(self._process.wait(), KILLED_AFTER)
        except TimeoutError:
            self.kill()
            return await self._process.wait()

    def kill(self) -> None:
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def probed(port: int, path: str) -> tuple[int, str]:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, await answer.text()
    except aiohttp.ClientError:
        return 0, ""


def says_it_again(asked: Asked) -> Turn:
    """Slowly, so that a restart finds it in the middle."""
    return Say(f"You said {re.findall(r'word-[a-z]+-[0-9]+-[0-9]+', asked.text)[-1]} to me.", pieces=8, pace=0.15)


@pytest.mark.long
async def test_two_deploys_under_load_lose_nothing_and_say_nothing_twice(
    slack: SlackSandbox, discord: DiscordSandbox, postgres: str, tmp_path: Path
) -> None:
    port = free_port()
    platforms: list[Platform] = [Slack(slack), Discord(discord)]
    async with ScriptedOpenAI(says_it_again) as model:
        settings = {
            **{name: value for platform in platforms for name, value in platform.settings.items()},
            "MODEL": "openai/scripted",
            "OPENAI_BASE_URL": model.base_url,
            "DATABASE_URL": postgres,
            "DATABASE_CONNECTIONS": "5",
            "PORT": str(port),
            "STOP_SECONDS": "1",
        }
        dyno = Dyno(tmp_path, settings)
        await dyno.start("release")
        assert await dyno.ends() == 0, dyno.log.read_text()
        try:
            await _start(dyno, port)
            asked: list[asyncio.Task[None]] = []
            for platform in platforms:
                for number in range(3):
                    asked.append(asyncio.create_task(_talk(platform, number)))
            for _ in range(2):
                await asyncio.sleep(2.0)  # whatever is being said by then
                assert await dyno.stop() == 0, dyno.log.read_text()[-4000:]
                await _start(dyno, port)
            try:
                await asyncio.wait_for(asyncio.gather(*asked), 45)
            except TimeoutError:
                raise TimeoutError(dyno.log.read_text()[-6000:]) from None
            assert await dyno.stop() == 0
        finally:
            dyno.kill()


async def _start(dyno: Dyno, port: int) -> None:
    """Heroku has a web process listen within 60 seconds. It does so at once, and says when it is ready."""
    await dyno.start("web")
    async with asyncio.timeout(60):
        while (await probed(port, "/healthz"))[0] != 200:  # noqa: ASYNC110 - a probe is asked, and tells nobody
            await asyncio.sleep(0.02)
        assert await probed(port, "/readyz") in ((503, "starting\n"), (200, "ready\n"))
        while (await probed(port, "/readyz"))[0] != 200:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)


async def _talk(platform: Platform, number: int) -> None:
    """Say three things, each when the one before is answered; each is answered once."""
    talk, expected = platform.talk(), list[str]()
    for question in range(3):
        word = f"word-{platform.name}-{number}-{question}"
        await talk.say(word)
        expected.append(f"You said {word} to me.")
        await platform.wait_for(lambda: [reply.text for reply in talk.replies()] == expected, timeout=90)


def test_the_files_for_docker_and_systemd_name_what_there_is() -> None:
    """There is no Docker here: this reads them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    docker = (ROOT / "Dockerfile").read_text()
    wanted = (ROOT / ".python-version").read_text().strip()
    assert set(re.findall(r"^FROM python:(\S+)-slim", docker, re.M)) == {wanted}
    for packages in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert f"COPY {packages} {packages}" in docker
        assert f"!{packages}" in (ROOT / ".dockerignore").read_text()
    for name in re.findall(r"^COPY ((?:[\w.]+ )+)\S+$", docker, re.M):
        assert all((ROOT / each).exists() for each in name.split()), name
    assert docker.count("uv sync --locked --no-dev --no-group local") == 2
    assert {"dev", "local"} == set(project["tool"]["uv"]["default-groups"])
    assert "USER parley" in docker
    assert "/healthz" in docker
    assert ALIVE == "/healthz"
    assert 'CMD ["parley", "run"]' in docker
    assert "parley" in project["project"]["scripts"]
    command = typer.main.get_command(cli)
    assert isinstance(command, TyperGroup)
    known = set(command.commands)

    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    assert compose["services"]["migrate"]["command"].split()[1] in known
    assert compose["services"].keys() == {"parley", "migrate", "postgres"}
    for service in ("parley", "migrate"):
        assert compose["services"][service]["environment"].keys() <= {name.upper() for name in Settings.model_fields}
    port = Settings.model_fields["port"].default
    assert f"EXPOSE {port}" in docker
    assert compose["services"]["parley"]["ports"] == [f"127.0.0.1:{port}:{port}"]

    unit = (ROOT / "deploy" / "parley.service").read_text()
    commands = re.findall(r"^Exec\w+=/opt/parley/\.venv/bin/python -m bot (\w+)$", unit, re.M)
    assert commands == ["migrate", "run"]
    assert set(commands) <= known
    ends = Settings.model_fields["stop_seconds"].default + CLOSING_SECONDS
    assert int(re.findall(r"TimeoutStopSec=(\d+)", unit)[0]) > ends
    assert int(compose["services"]["parley"]["stop_grace_period"].removesuffix("s")) > ends


def test_the_rules_for_prometheus_ask_for_metrics_that_there_are() -> None:
    instruments = [each for name, each in vars(metrics).items() if not name.startswith("_")]
    counted = [each._name for each in instruments if hasattr(each, "_name")]  # OpenTelemetry has no public name for it
    assert counted
    told = {name.replace(".", "_") for name in counted}
    asked = set(re.findall(r"parley_[a-z_]+", (ROOT / "deploy" / "rules.yaml").read_text()))
    page = set(re.findall(r"`(parley_[a-z_]+)", (ROOT / "docs" / "howto" / "watch-it.md").read_text()))
    plain = {re.sub(r"_(total|seconds|bucket|seconds_bucket)$", "", name) for name in asked | page}
    assert plain == told
