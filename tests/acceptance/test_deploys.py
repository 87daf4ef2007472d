"""What a deploy does to those who are talking, and the files that others run the bot with."""

import asyncio
import re
import sys
import tomllib
from pathlib import Path

import pytest
import typer.main
import yaml
from typer.core import TyperGroup

from bot.cli import cli
from bot.probes import ALIVE, READY
from bot.settings import Settings
from core import metrics
from core.worker import CLOSING_SECONDS
from sandbox.discord import DiscordSandbox
from sandbox.foreman import Dyno, Foreman
from sandbox.models import Asked, Say, ScriptedOpenAI, Turn
from sandbox.slack import SlackSandbox
from tests.acceptance.platforms import Discord, Platform, Slack

ROOT = Path(__file__).parents[2]


def says_it_again(asked: Asked) -> Turn:
    """Slowly, so that a restart finds it in the middle."""
    return Say(f"You said {re.findall(r'word-[a-z]+-[0-9]+-[0-9]+', asked.text)[-1]} to me.", pieces=8, pace=0.15)


@pytest.mark.long
async def test_two_deploys_under_load_lose_nothing_and_say_nothing_twice(
    slack: SlackSandbox, discord: DiscordSandbox, postgres: str, tmp_path: Path
) -> None:
    platforms: list[Platform] = [Slack(slack), Discord(discord)]
    async with ScriptedOpenAI(says_it_again) as model:
        settings = {
            **{name: value for platform in platforms for name, value in platform.settings.items()},
            "MODEL": "openai/scripted",
            "OPENAI_BASE_URL": model.base_url,
            "DATABASE_URL": postgres,
            "DATABASE_CONNECTIONS": "5",
            "STOP_SECONDS": "1",
            "PYTHONPATH": str(ROOT),
        }
        foreman = Foreman(ROOT / "Procfile", tmp_path, settings, path=Path(sys.executable).parent)
        release = await foreman.start("release")
        assert await release.ends() == 0, foreman.log.read_text()
        dyno = await _start(foreman)
        try:
            asked: list[asyncio.Task[None]] = []
            for platform in platforms:
                for number in range(3):
                    asked.append(asyncio.create_task(_talk(platform, number)))
            for _ in range(2):
                await asyncio.sleep(2.0)  # whatever is being said by then
                assert await dyno.stop() == 0, foreman.log.read_text()[-4000:]
                dyno = await _start(foreman)
            try:
                await asyncio.wait_for(asyncio.gather(*asked), 45)
            except TimeoutError:
                raise TimeoutError(foreman.log.read_text()[-6000:]) from None
            assert await dyno.stop() == 0
        finally:
            await dyno.kill()


async def _start(foreman: Foreman) -> Dyno:
    """Heroku has a web process listen within 60 seconds. It does so at once, and says when it is ready."""
    dyno = await foreman.start("web")
    await dyno.listens(ALIVE)
    assert await dyno.probe(READY) in ((503, "starting\n"), (200, "ready\n"))
    await dyno.listens(READY)
    return dyno


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
