"""Installations without a clone's environment: an agent's project, `uvx`, and the wheels of a release."""

import asyncio
import re
import shlex
import shutil
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
import pytest
import yaml

from chatrig.discord import DiscordSimulator
from chatrig.models import CallTool, ReceivedRequest, Say, ScriptedOpenAI, ScriptedResponse
from chatrig.slack import SlackSimulator
from tests.acceptance.platforms import BotConversation, Discord, Platform, Slack
from tests.processes.procfile import Foreman, create_clean_environment

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "daylight"
REQUIREMENT = f"parley @ git+{ROOT.as_uri()}"
WITH_SIMULATOR = f"parley[simulator] @ git+{ROOT.as_uri()}"

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="these sources are no git repository"),
]


def find_uv() -> str:
    return shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")


def run(command: str, folder: Path, **settings: str) -> str:
    """Run a command of a page or file in a folder; return its output."""
    environment = {**create_clean_environment(), **settings}
    environment["PATH"] = f"{Path(find_uv()).parent}:{environment['PATH']}"
    environment.pop("VIRTUAL_ENV", None)
    result = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the example project, whose Parley comes from this repository's last commit."""
    folder = tmp_path_factory.mktemp("project") / "my-bot"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    run(f'uv add --no-sync --python {shlex.quote(sys.executable)} "{REQUIREMENT}"', folder)
    return folder


def answer_with_daylight(request: ReceivedRequest) -> ScriptedResponse:
    if not request.tool_results:
        return CallTool("get_daylight", {"city": "Seoul", "day": "2026-12-24"}, id="call-1")
    return Say("At 07:44." if "07:44" in str(request.tool_results[0].content) else "I do not know.")


def has_reply(conversation: BotConversation, text: str) -> bool:
    return [reply.text for reply in conversation.replies()] == [text]


async def test_the_image_of_a_project_answers_with_two_workers(
    project: Path, slack: SlackSimulator, discord: DiscordSimulator, postgres: str, tmp_path: Path
) -> None:
    dockerfile = (project / "Dockerfile").read_text()
    steps = [step for step in re.findall(r"^RUN (.+)$", dockerfile, re.M) if "apt-get" not in step]
    assert steps.pop().startswith("useradd ")
    for step in steps:
        await asyncio.to_thread(run, step.replace("/data", str(tmp_path / "data")), project)
    platforms: list[Platform] = [Slack(slack), Discord(discord)]
    async with ScriptedOpenAI(answer_with_daylight) as model:
        settings = {name: value for platform in platforms for name, value in platform.settings.items()}
        settings |= {"AGENT": "daylight", "MODEL": "openai/scripted", "OPENAI_BASE_URL": model.base_url}
        settings |= {"DATABASE_URL": postgres, "DATABASE_POOL_SIZE": "5", "DATA_DIR": str(tmp_path / "data")}
        foreman = Foreman(project / "Procfile", project, settings, path=project / ".venv" / "bin")
        release = await foreman.start("release")
        assert await release.wait_for_exit() == 0, foreman.log.read_text()
        workers = [await foreman.start("worker", number) for number in (1, 2)]
        try:
            for worker in workers:
                await worker.wait_until_ready("/readyz", timeout_seconds=120)
            for platform in platforms:
                conversation = platform.start_conversation()
                await conversation.say("When does the sun rise in Seoul on Christmas Eve?")
                await platform.wait_for(partial(has_reply, conversation, "At 07:44."))
            assert [await worker.terminate() for worker in workers] == [0, 0], foreman.log.read_text()
        finally:
            for worker in workers:
                await worker.kill()


def test_the_workflow_of_a_project_tests_its_agent(project: Path) -> None:
    workflow = yaml.safe_load((project / ".github" / "workflows" / "test.yml").read_text())
    for step in workflow["jobs"]["test"]["steps"]:
        if "run" in step:
            output = run(step["run"], project)
    assert "1 passed" in output


@asynccontextmanager
async def open_page(*command: str, folder: Path) -> AsyncIterator[str]:
    """Start the simulator by a command without a terminal; yield the address of its page."""
    environment = {**create_clean_environment(), "UV_PYTHON": sys.executable}
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environment, stdin=DEVNULL, stdout=PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(300):
            while (found := re.search(r"Open (http\S+)", line := (await process.stdout.readline()).decode())) is None:
                assert line, "the command has ended"
        yield found[1]
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def is_page(address: str) -> bool:
    async with aiohttp.ClientSession() as session, session.get(address) as response:
        return response.status == 200 and "<html" in await response.text()


async def test_uvx_opens_the_page_without_a_clone(tmp_path: Path) -> None:
    async with open_page(find_uv(), "tool", "run", "--from", WITH_SIMULATOR, "parley", folder=tmp_path) as address:
        assert await is_page(address)


def test_without_the_extra_the_command_that_opens_the_page_is_printed(tmp_path: Path) -> None:
    result = subprocess.run(
        [find_uv(), "tool", "run", "--from", REQUIREMENT, "parley"],
        cwd=tmp_path,
        env={**create_clean_environment(), "UV_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 2
    assert f'run `uvx --from "{WITH_SIMULATOR}" parley`' in result.stderr


async def test_the_wheels_of_a_release_install_from_their_folder_and_run(tmp_path: Path) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    build = next(step["run"] for step in workflow["jobs"]["release"]["steps"] if step.get("name") == "Build")
    await asyncio.to_thread(run, f"{build} --out-dir {shlex.quote(str(tmp_path / 'dist'))}", ROOT)
    wheels = {file.name.partition("-")[0]: file for file in (tmp_path / "dist").glob("*.whl")}
    assert wheels.keys() == {"parley", "chatrig"}
    install = f"uv pip install --python .venv '{wheels['parley']}[simulator]' {wheels['chatrig']}"
    await asyncio.to_thread(run, f"uv venv --python {shlex.quote(sys.executable)} .venv && {install}", tmp_path)
    async with open_page(str(tmp_path / ".venv" / "bin" / "parley"), folder=tmp_path) as address:
        assert await is_page(address)
