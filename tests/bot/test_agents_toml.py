"""File `agents.toml` with several agents, and the messages about its mistakes."""

from pathlib import Path

import pytest

from bot.agents import make_agents, make_model_registry
from bot.agents_toml import read_agents
from bot.settings import load_settings
from bot.setup.check import run_checks
from bot.setup.probes import CheckVerdict
from core.errors import SettingsError

BROUGHT = """
from google.adk.agents import LlmAgent
root_agent = LlmAgent(name="forecaster", model="openai/other", description="Knows the weather.")
"""

FULL_FILE = """
default = "desk"
[agents.desk]
description = "For everything."
[agents.clerk]
model = "openai/big"
instruction = "Be exact."
tools = ["core.tools:current_time"]
mcp = ""
choose = true
[agents.weather]
agent = "sky"
choose = ["dm", "C0123456"]
[places]
T0123456 = "clerk"
123456789012 = "weather"
"slack:dm" = "clerk"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the agent `sky` and no `agents.toml`; set a model."""
    (tmp_path / "sky").mkdir()
    (tmp_path / "sky" / "agent.py").write_text(BROUGHT)
    for name, value in {"MODEL": "openai/small", "OPENAI_BASE_URL": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


async def test_each_agent_of_the_file_has_its_own_settings_and_name(folder: Path) -> None:
    (folder / "agents.toml").write_text(FULL_FILE)
    settings = load_settings()
    choice = make_model_registry(settings)
    crew = make_agents(settings, choice)
    assert list(crew.apps) == ["desk", "clerk", "weather"]
    assert [app.name for app in crew.apps.values()] == list(crew.apps)
    assert [app.root_agent and app.root_agent.name for app in crew.apps.values()] == ["desk", "clerk", "forecaster"]
    assert {name: agent.models for name, agent in crew.agents.profiles.items()} == {
        "desk": ("openai/small",),
        "clerk": ("openai/big",),
        "weather": ("openai/other",),
    }
    assert crew.agents.get_agent_at(("1", "123456789012")) == "weather"
    assert crew.agents.list_selectable(("D1", "slack:dm", "dm", "T9")) == ["clerk", "weather"]
    await choice.aclose()


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("default = [,", ["agents.toml: it is not TOML: line 1, column 12"]),
        ("[agents.desk]", ["agents.toml: default is missing: write default = NAME"]),
        ('default = "desk"\nagents = {}', ["agents.toml: [agents] is empty: write a table"]),
        ('default = "ghost"\n[agents.desk]', ["agents.toml: default=ghost: it is not in [agents]: desk"]),
        ('default = "desk"\n[agents.desk]\n[agents."../up"]', ["[agents.../up] a name: it must begin with a letter"]),
        ('default = "desk"\n[agents.desk]\n[agents.user]', ["agents.toml: [agents.user] a name: it must begin"]),
        (
            'default = "desk"\n[agents.desk]\ntols = []',
            ["agents.toml: [agents.desk] tols: there is no such key: did you mean tools?"],
        ),
        ('default = "desk"\n[agents.desk]\nchoose = ["#general"]', ["[agents.desk] choose", "the id of a channel"]),
        (
            'default = "desk"\n[agents.desk]\n[places]\ngeneral = "desk"\nC0123456 = "ghost"',
            ["[places] general: it must be the id of a channel"],
        ),
        (
            'default = "desk"\n[agents.desk]\n[places]\nC0123456 = "ghost"',
            ["[places] C0123456=ghost: it is not in [agents]"],
        ),
        (
            'default = "desk"\n[agents.desk]\nagent = "sky"\nmodel = "openai/x"\ninstruction_file = "no.md"',
            [
                "[agents.desk] your own agent has these itself: remove model, inst",
                "instruction_file: no.md cannot",
            ],
        ),
    ],
)
def test_a_wrong_agents_file_is_reported_with_agent_and_remedy(folder: Path, text: str, faults: list[str]) -> None:
    (folder / "agents.toml").write_text(text)
    with pytest.raises(SettingsError) as error:
        read_agents(Path("agents.toml"))
    fault_text = " | ".join(error.value.faults)
    assert [fault for fault in faults if fault not in fault_text] == [], fault_text
    assert all(fault.startswith("agents.toml: ") for fault in error.value.faults)


async def test_check_reports_each_failing_agent_and_tries_the_others(folder: Path) -> None:
    (folder / "agents.toml").write_text(
        'default = "desk"\n[agents.desk]\ntools = ["no.such:tool"]\n[agents.far]\nagent = "../elsewhere/x"\n'
        '[agents.cold]\nmodel = "gemini-x"\n[agents.mcp]\nmcp = "gone.toml"\n'
    )
    lines = [finding.line async for finding in run_checks() if finding.verdict is CheckVerdict.FAIL]
    for begin in (
        "agents.toml: [agents.desk] tools: no.such:tool: there is no module no",
        "agents.toml: [agents.far] agent=../elsewhere/x: there is no such folder",
        "agents.toml: [agents.cold] GOOGLE_API_KEY",
        "agents.toml: [agents.mcp] MCP_FILE=gone.toml: it cannot be read",
    ):
        assert [line for line in lines if line.startswith(begin)], (begin, lines)


def test_an_agents_file_beside_a_single_agent_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "agents.toml").write_text(FULL_FILE)
    monkeypatch.setenv("AGENT", "sky")
    assert load_settings().agents_path is None
    monkeypatch.setenv("AGENTS_FILE", "agents.toml")
    with pytest.raises(SettingsError, match="AGENT and AGENTS_FILE are both set"):
        load_settings()
