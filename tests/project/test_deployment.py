"""Deployment files, which name existing commands, files, settings and metrics."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from typer.core import TyperGroup

from bot.app import SHUTDOWN_GRACE_SECONDS
from bot.cli.main import cli
from bot.server import LIVENESS_PATH
from bot.settings import Settings
from core.observability import metrics
from tests.processes.procfile import KILL_TIMEOUT_SECONDS

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "daylight"
UNIT = PROJECT / "parley@.service"


def list_commands() -> set[str]:
    command = typer.main.get_command(cli)
    assert isinstance(command, TyperGroup)
    return set(command.commands)


def list_instructions() -> list[tuple[str, str]]:
    """Return (instruction, arguments) of each line of the Dockerfile."""
    text = re.sub(r"\\\n\s*", "", (PROJECT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def load_compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((PROJECT / "compose.yaml").read_text())
    return found


def get_default(name: str) -> Any:
    return Settings.model_fields[name].default


def test_the_procfile_and_app_json_name_real_commands() -> None:
    procfile = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text().splitlines())
    assert procfile.keys() == {"release", "web", "worker"}
    commands = {command.removeprefix("python -m bot ") for command in procfile.values()}
    assert commands <= list_commands()
    app = json.loads((ROOT / "app.json").read_text())
    assert app["formation"].keys() <= procfile.keys() - {"release"}
    assert sum(one["quantity"] for one in app["formation"].values()) == 1
    assert [addon.partition(":")[0] for addon in app["addons"]] == ["heroku-postgresql"]
    assert app["buildpacks"] == [{"url": "heroku/python"}]
    assert app["stack"].startswith("heroku-")
    keys = {"GOOGLE_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"}
    assert all(app["env"][name]["required"] is False for name in keys), "any provider will do"
    for name, variable in app["env"].items():
        assert variable["description"], name
    assert get_default("shutdown_timeout_seconds") + SHUTDOWN_GRACE_SECONDS < KILL_TIMEOUT_SECONDS
    ran = (ROOT / "bin" / "post_compile").read_text()
    assert set(re.findall(r"python -m bot (\w+)", ran)) <= list_commands()
    assert (ROOT / "bin" / "post_compile").stat().st_mode & 0o111


def test_every_model_provider_is_installed_without_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = {re.split(r"[\[<>=]", requirement)[0] for requirement in project["dependencies"]}
    assert {"google-genai", "openai", "anthropic"} <= installed


def test_the_example_project_calls_real_commands() -> None:
    procfile = dict(line.split(": ", 1) for line in (PROJECT / "Procfile").read_text().splitlines())
    heroku = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text().splitlines())
    assert procfile == {name: command.replace("python -m bot", "parley") for name, command in heroku.items()}
    files = [PROJECT / name for name in ("Procfile", "Dockerfile", "compose.yaml", "bin/post_compile", UNIT.name)]
    called = {name for file in files for name in re.findall(r"\bparley ([a-z]+)$", file.read_text(), re.M)}
    assert called >= {"migrate", "run"}
    assert called <= list_commands()
    assert (PROJECT / "bin" / "post_compile").stat().st_mode & 0o111


def test_the_dockerfile_has_an_unprivileged_user() -> None:
    docker, lines = (PROJECT / "Dockerfile").read_text(), list_instructions()
    wanted = (PROJECT / ".python-version").read_text().strip()
    assert set(re.findall(r"^FROM python:(\S+)-slim", docker, re.M)) == {wanted}
    assert re.search(
        r"^ENV .*\bLISTEN_HOST=0\.0\.0\.0\b", docker, re.M
    )  # the loopback of a container is unreachable from outside
    assert ".env" in (PROJECT / ".dockerignore").read_text().splitlines()
    words = [word for word, _ in lines]
    assert words.count("CMD") == words.count("HEALTHCHECK") == words.count("USER") == 1
    assert ("USER", "parley") in lines
    assert words.index("USER") > max(i for i, word in enumerate(words) if word in ("COPY", "RUN")), "root makes all"
    assert words.index("USER") < words.index("CMD")
    assert not [line for line in lines if line[0] in ("ARG", "ENV") and re.search("TOKEN|SECRET|KEY|PASSWORD", line[1])]
    (health,) = [rest for word, rest in lines if word == "HEALTHCHECK"]
    (asks,) = json.loads(health.partition("CMD ")[2])[2:]
    compile(asks, "HEALTHCHECK", "exec")
    assert LIVENESS_PATH in asks
    assert ("CMD", '["parley", "run"]') in lines
    assert f"EXPOSE {get_default('port')}" in docker


def test_compose_migrates_the_database_before_the_bot_starts() -> None:
    services = load_compose()["services"]
    assert services.keys() == {"parley", "migrate", "postgres"}
    assert services["migrate"]["command"].split()[1] in list_commands()
    for service in ("parley", "migrate"):
        assert services[service]["environment"].keys() <= {name.upper() for name in Settings.model_fields}
        assert services[service]["build"] == "."
        assert not services[service].get("ports"), "a second worker could not have the same port"
    assert services["parley"]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert services["postgres"]["healthcheck"]["test"][:2] == ["CMD", "pg_isready"]
    assert not services["postgres"].get("ports"), "nobody outside has to reach it"
    assert ":" in services["postgres"]["image"]
    (volume,) = services["postgres"]["volumes"]
    assert volume.partition(":")[0] in load_compose()["volumes"]
    user = services["postgres"]["environment"]
    for service in ("parley", "migrate"):
        url = services[service]["environment"]["DATABASE_URL"]
        assert url.startswith(f"postgresql://{user['POSTGRES_USER']}:{user['POSTGRES_PASSWORD']}@postgres/")
        assert url.endswith(f"/{user['POSTGRES_DB']}")
    ends = get_default("shutdown_timeout_seconds") + SHUTDOWN_GRACE_SECONDS
    assert int(services["parley"]["stop_grace_period"].removesuffix("s")) > ends


def test_the_systemd_unit_runs_a_real_command_and_waits_for_shutdown() -> None:
    unit = UNIT.read_text()
    assert re.findall(r"^Exec\w+=/opt/my-bot/\.venv/bin/parley (\w+)$", unit, re.M) == ["migrate", "run"]
    ends = get_default("shutdown_timeout_seconds") + SHUTDOWN_GRACE_SECONDS
    assert int(re.findall(r"TimeoutStopSec=(\d+)", unit)[0]) > ends


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_accepts_the_unit_for_two_workers(tmp_path: Path) -> None:
    (tmp_path / UNIT.name).write_text(UNIT.read_text().replace("/opt/my-bot/.venv/bin/parley", sys.executable))
    for number in (1, 2):
        result = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / f"parley@{number}.service")],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, "")


def test_the_prometheus_rules_name_real_metrics() -> None:
    instruments = [each for name, each in vars(metrics).items() if not name.startswith("_")]
    counted = [
        instrument._name for instrument in instruments if hasattr(instrument, "_name")
    ]  # OpenTelemetry has no public access to it
    assert counted
    exported = {name.replace(".", "_") for name in counted}
    used_metrics = set(re.findall(r"parley_[a-z_]+", (ROOT / "deploy" / "rules.yaml").read_text()))
    page = set(re.findall(r"`(parley_[a-z_]+)", (ROOT / "docs" / "howto" / "monitor.md").read_text()))
    plain = {re.sub(r"_(total|seconds|bucket|seconds_bucket)$", "", name) for name in used_metrics | page}
    assert plain == exported


def test_the_prometheus_rules_filter_by_documented_labels() -> None:
    page = (ROOT / "docs" / "howto" / "monitor.md").read_text()
    rows = re.findall(r"^\| `(parley_[a-z_]+)` \| ([^|]*)\|", page, re.M)
    documented = {(metric, label) for metric, labels in rows for label in re.findall(r"`(\w+)`", labels)}
    filters = re.findall(r"(parley_[a-z_]+)\{(\w+)=", (ROOT / "deploy" / "rules.yaml").read_text())
    assert filters
    assert {(metric.removesuffix("_bucket"), label) for metric, label in filters} <= documented


def test_make_clean_keeps_data_and_distclean_asks_before_deleting(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    built = [tmp_path / name for name in (".venv/ready", ".parley/site/index.html", ".parley/tiktoken/vocabulary")]
    data = [tmp_path / name for name in (".parley/parley.db", ".parley/parley.db-wal", ".parley/simulator.log")]

    def run_make(target: str, answer: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", target], cwd=tmp_path, input=answer, capture_output=True, text=True, timeout=30, check=False
        )

    for file in (*built, *data):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert run_make("clean").returncode == 0
    assert [file for file in (*built, *data) if file.exists()] == data
    for answer in ("", "n\n", "\n"):
        result = run_make("distclean", answer)
        assert result.returncode != 0
        assert all(str(file.relative_to(tmp_path)) in result.stdout for file in data)
        assert all(file.exists() for file in data)
    assert run_make("distclean", "y\n").returncode == 0
    assert not (tmp_path / ".parley").exists()
