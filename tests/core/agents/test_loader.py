"""Loader of users' agents in ADK's own folder layout."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.adk.agents import LlmAgent
from google.adk.models import LLMRegistry
from google.adk.models import registry as adks
from google.adk.tools.base_toolset import BaseToolset

from core.agents.config import find_env_file
from core.agents.factory import create_plugins
from core.agents.loader import list_llm_agents, load_app
from core.agents.requirements import describe_installation
from core.errors import SettingsError
from core.models.adapter import ModelAdapter, register_adapter
from core.models.selection import ModelRegistry
from core.models.vendors import VendorSettings
from core.signin.toolset import SignInToolset

AGENT = "from google.adk.agents import LlmAgent\n"
PLAIN = f"{AGENT}root_agent = LlmAgent(name='planner', instruction='Plan.')\n"
OWN_APP = f"""{AGENT}from google.adk.apps import App
from google.adk.plugins.logging_plugin import LoggingPlugin
app = App(name='planning', root_agent=LlmAgent(name='planner'), plugins=[LoggingPlugin()])
"""

Folder = Callable[..., Path]


@pytest.fixture(autouse=True)
def _restored_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the imports, environment and ADK globals that a test changes."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(LlmAgent, "_default_model", LlmAgent._default_model)
    monkeypatch.setattr(LlmAgent, "_default_live_model", LlmAgent._default_live_model)
    before, environment, known = set(sys.modules), dict(os.environ), dict(adks._llm_registry_dict)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("brought"):
            del sys.modules[name]
    os.environ.clear()
    os.environ.update(environment)
    adks._llm_registry_dict.clear()
    adks._llm_registry_dict.update(known)
    LLMRegistry.resolve.cache_clear()


@pytest.fixture(autouse=True)
def model_registry() -> ModelRegistry:
    chosen = ModelRegistry("openai/default", ["openai/other"], VendorSettings(openai_api_key="k"))
    register_adapter(chosen.make_adapter, default=chosen.default)
    return chosen


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Return a function that writes an agent's files, and returns their folder.

    An argument `agent__py="..."` is written to `agent.py`.
    """

    def write_files(name: str = "brought", **files: str) -> Path:
        for file, text in files.items():
            path = tmp_path / name / file.replace("__py", ".py").replace("__yaml", ".yaml").replace("env", ".env")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return tmp_path / name

    return write_files


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"agent__py": PLAIN}, "brought"),
        ({"__init____py": PLAIN}, "brought"),
        ({"__init____py": "from . import agent", "agent__py": PLAIN}, "brought"),
        ({"agent__py": OWN_APP}, "planning"),
        ({"root_agent__yaml": "name: planner\nmodel: openai/default\ninstruction: Plan.\n"}, "brought"),
    ],
    ids=["agent.py", "package", "both", "app", "yaml"],
)
def test_each_layout_of_adks_is_loaded_under_the_name_that_adk_gives_it(
    folder: Folder, files: dict[str, str], name: str
) -> None:
    plugins = create_plugins()
    app = load_app(str(folder(**files)), plugins)
    assert (app.name, [agent.name for agent in list_llm_agents(app)]) == (name, ["planner"])
    assert app.plugins[: len(plugins)] == plugins
    assert [plugin.name for plugin in app.plugins[len(plugins) :]] == (["logging_plugin"] if name == "planning" else [])


def test_a_module_or_a_file_can_be_loaded(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder("brought_pack", **{"__init____py": "", "agent__py": PLAIN})
    assert load_app(str(place / "agent.py")).name == "brought_pack"
    monkeypatch.syspath_prepend(place.parent)
    assert load_app("brought_pack").name == "brought_pack"
    assert load_app("brought_pack.agent").name == "brought_pack"


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"notes__py": ""}, "there is no agent in it: it must have `app` or `root_agent`"),
        ({"agent__py": "other = 1"}, "ADK rejects it (ValueError): it must have `app` or `root_agent`"),
        ({"agent__py": "root_agent = 'planner'"}, "ADK rejects it (ValueError)"),
        ({"agent__py": "import no_such_thing"}, "it needs the Python module `no_such_thing`, which is not installed"),
        ({"agent__py": "import no_such.thing"}, " no_such` (its package may have another name)"),
        ({"agent__py": "import no_such_tools", "no_such_tools__py": ""}, "import it as `from . import no_such_tools`"),
        ({"agent__py": "\nx = 'a"}, "agent.py, line 2: SyntaxError: unterminated string literal"),
        ({"agent__py": "if 1:\nx = 1"}, "agent.py, line 2: IndentationError: expected an indented block"),
        ({"agent__py": "from os import nope"}, "agent.py, line 1, raises ImportError: cannot import name 'nope' from"),
        (
            {"agent__py": "raise ImportError('no key sk-ant-api03-hidden-word')"},
            "agent.py, line 1, raises ImportError: no key [redacted]",
        ),
        ({"agent__py": "root_agent = Agnt()"}, "agent.py, line 1, raises NameError: name 'Agnt' is not defined"),
        ({"agent__py": "def (:"}, "agent.py, line 1: SyntaxError: invalid syntax"),
        ({"agent__py": "\nkey = {}['hidden-word']"}, "agent.py, line 2, raises KeyError"),
        ({"agent__py": "import sys\nsys.exit('hidden-word')"}, "agent.py, line 2, raises SystemExit"),
        ({"agent__py": f"{AGENT}root_agent = LlmAgent(name='two words')"}, "agent.py, line 2, raises ValidationError"),
        ({"root_agent__yaml": "name: [hidden-word"}, "it cannot be loaded (ParserError)"),
        (
            {"agent__py": f"{AGENT}root_agent = LlmAgent(name='x', model='gemini-2.5-flash')"},
            "the agent x: GOOGLE_API_KEY is not set",
        ),
        (
            {"agent__py": f"{AGENT}root_agent = LlmAgent(name='x', sub_agents=[LlmAgent(name='y', model='nobody-1')])"},
            "the agent y: ADK does not find the model nobody-1 (ValueError): name one as in MODEL",
        ),
    ],
)
def test_each_fault_of_an_agent_names_the_setting_and_a_remedy(
    folder: Folder, files: dict[str, str], fault: str
) -> None:
    place = str(folder(**files))
    with pytest.raises(SettingsError) as raised:
        load_app(place)
    assert [line.startswith(f"AGENT={place}: ") for line in raised.value.faults] == [True]
    assert fault in str(raised.value)
    assert "hidden-word" not in str(raised.value)


@pytest.mark.parametrize(
    ("agent", "fault"),
    [
        ("./nowhere", "there is no such folder"),
        ("/nowhere/at/all", "there is no such folder"),
        ("~0", "there is no such folder"),
        ("~nobody-has-this-name/agent", "there is no such folder"),
        ("./loop", "there is no such folder"),
        ("./" + "a" * 400, "there is no such folder"),
        ("no_such_module", "there is no such folder, and no module with an agent in it"),
        ("core.no_such_room", "no module with an agent in it"),
        ("core.errors", "no module with an agent in it"),
        ("..", "its folder's name must consist of letters"),
    ],
)
def test_a_path_without_an_agent_is_a_settings_error(
    agent: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a-b" / "c").mkdir(parents=True)
    (tmp_path / "a-b" / "c" / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path / "a-b" / "c")
    with pytest.raises(SettingsError) as raised:
        load_app(agent)
    assert str(raised.value).startswith(f"AGENT={agent}: ")
    assert fault in str(raised.value)


SIGN_IN = f"""{AGENT}import threading
from fastapi.openapi.models import APIKey, OAuth2, OAuthFlows
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_schemes import CustomAuthScheme
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from mcp import StdioServerParameters

class Locked(McpToolset):
    def __init__(self, **options):
        super().__init__(**options)
        self.lock = threading.Lock()

def http():
    return StreamableHTTPConnectionParams(url='http://mcp.box.example/mcp')

places = {{'authorizationUrl': 'https://a.example/a', 'tokenUrl': 'https://a.example/t', 'scopes': {{}}}}
place = {{'tokenUrl': 'https://a.example/t', 'scopes': {{}}}}
client = AuthCredential(auth_type='oauth2', oauth2=OAuth2Auth(client_id='c', client_secret='s'))
ready = AuthCredential(auth_type='oauth2', oauth2=OAuth2Auth(client_id='c', client_secret='s', access_token='t'))
key = AuthCredential(auth_type='apiKey', api_key='k')
root_agent = LlmAgent(name='root', sub_agents=[LlmAgent(name='reader', tools=[TOOLS])])
"""

BY_USER = "OAuth2(flows=OAuthFlows.model_validate({'authorizationCode': places}))"
BY_CLIENT = "OAuth2(flows=OAuthFlows.model_validate({'clientCredentials': place}))"


BY_PASSWORD = "OAuth2(flows=OAuthFlows.model_validate({'password': place}))"
HEADER = "APIKey.model_validate({'in': 'header', 'name': 'x'})"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (f"auth_scheme={BY_USER}, auth_credential=client", ["connect_mcp_box_example"]),
        (f"auth_scheme={BY_USER}, auth_credential=client, tool_name_prefix='box'", ["connect_box"]),
        (f"auth_scheme={HEADER}", ["connect_mcp_box_example"]),
        (f"auth_scheme={BY_USER}, auth_credential=ready", []),
        (f"auth_scheme={BY_CLIENT}, auth_credential=client", []),
        (f"auth_scheme={HEADER}, auth_credential=key", []),
        ("", []),
    ],
    ids=["sign-in", "prefix", "no key", "token", "client credentials", "key", "no scheme"],
)
async def test_a_toolset_that_needs_a_sign_in_offers_it(folder: Folder, options: str, names: list[str]) -> None:
    tools = f"McpToolset(connection_params=http(), {options})"
    app = load_app(str(folder(agent__py=SIGN_IN.replace("TOOLS", tools))))
    [toolset] = next(agent for agent in list_llm_agents(app) if agent.name == "reader").tools
    assert isinstance(toolset, BaseToolset)
    assert isinstance(toolset, SignInToolset) is bool(names)
    if names:
        assert toolset.get_auth_config() is None
        assert [tool.name for tool in await toolset.get_tools()] == names


def test_toolsets_of_one_host_have_different_names(folder: Folder) -> None:
    one = f"McpToolset(connection_params=http(), auth_scheme={HEADER})"
    app = load_app(str(folder(agent__py=SIGN_IN.replace("TOOLS", f"*[{one}, {one}], *[{one}] * 2"))))
    names = [tool.connect_name for agent in list_llm_agents(app) for tool in agent.tools]  # type: ignore[union-attr]
    first = "connect_mcp_box_example"
    assert names == [first, f"{first}_2", f"{first}_3", f"{first}_3"]


@pytest.mark.parametrize(
    ("tools", "fault"),
    [
        (f"McpToolset(connection_params=http(), auth_scheme={BY_USER})", "its OAuth client has no client_id"),
        (
            f"McpToolset(connection_params=http(), auth_scheme={BY_PASSWORD}, auth_credential=client)",
            "use OAuth2 with the authorization code flow",
        ),
        (
            "McpToolset(connection_params=http(), auth_scheme=APIKey.model_validate({'in': 'query', 'name': 'x'}))",
            "only in a header: write in=header",
        ),
        (
            "McpToolset(connection_params=StdioConnectionParams(server_params=StdioServerParameters(command='x')), "
            f"auth_scheme={HEADER})",
            "connect to it by a URL",
        ),
        (
            f"Locked(connection_params=http(), auth_scheme={HEADER})",
            "it cannot be copied for each person: cannot pickle '_thread.lock' object",
        ),
        ("McpToolset(connection_params=http(), auth_scheme=CustomAuthScheme(type='own'))", "use OAuth2"),
        (
            "AuthenticatedFunctionTool(func=print, auth_config=AuthConfig(auth_scheme=CustomAuthScheme(type='own')))",
            "use OAuth2",
        ),
    ],
    ids=["no client", "password", "query", "stdio", "locked", "custom", "custom of a tool"],
)
def test_a_sign_in_that_nobody_can_complete_is_a_settings_error(folder: Folder, tools: str, fault: str) -> None:
    place = str(folder(agent__py=SIGN_IN.replace("TOOLS", tools)))
    with pytest.raises(SettingsError) as raised:
        load_app(place)
    (line,) = raised.value.faults
    assert line.startswith(f"AGENT={place}: the agent reader: ")
    assert line.endswith(fault)


def test_a_node_that_needs_a_sign_in_is_a_settings_error(folder: Folder) -> None:
    node = (
        "\nfrom google.adk.workflow import FunctionNode, START, Workflow"
        "\ndef work(): pass"
        f"\nscheme = {BY_USER}"
        "\nconfig = AuthConfig(auth_scheme=scheme, raw_auth_credential=client)"
        "\nnode = FunctionNode(func=work, rerun_on_resume=True, auth_config=config)"
        "\nroot_agent = Workflow(name='root', edges=[(START, node)])"
    )
    with pytest.raises(SettingsError, match="the node work has an auth_config: let an agent's tool request"):
        load_app(str(folder(agent__py=SIGN_IN.replace("TOOLS", "") + node)))


@pytest.mark.parametrize("package", ["core", "bot", "channels", "chatrig", "tests"])
@pytest.mark.parametrize("importer", ["brought", "brought_lib"])
def test_a_package_of_the_project_that_collides_is_a_settings_error(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, package: str, importer: str
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    folder(package, x__py="X = 1")
    folder("brought_lib", **{"__init____py": f"from {package}.x import X" if importer == "brought_lib" else ""})
    mine = f"import brought_lib\nfrom {package if importer == 'brought' else 'brought_lib'} import *\n{PLAIN}"
    place = folder(agent__py=mine)
    with pytest.raises(SettingsError) as raised:
        load_app(str(place))
    assert raised.value.faults == (
        f"AGENT={place}: its project has a package `{package}`, and Python imports Parley's package of that name: "
        "rename yours, or move it into the folder brought",
    )


def test_a_package_of_the_project_that_the_agent_does_not_import_is_no_fault(folder: Folder) -> None:
    folder("core", **{"__init____py": ""})
    assert load_app(str(folder(agent__py=PLAIN))).name == "brought"


@pytest.mark.parametrize(
    ("name", "fault"),
    [("user", "ADK rejects it"), ("core", "another module of the name"), ("tests", "another module of the name")],
)
def test_a_folder_with_a_reserved_or_used_name_is_a_settings_error(folder: Folder, name: str, fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        load_app(str(folder(name, agent__py=PLAIN)))


def test_a_model_by_name_is_ours_and_a_model_object_stays(folder: Folder) -> None:
    source = f"""{AGENT}from google.adk.models import Gemini
from google.adk.tools.agent_tool import AgentTool
root_agent = LlmAgent(
    name='root',
    model='openai/named',
    tools=[AgentTool(LlmAgent(name='asked', model='openai/asked'))],
    sub_agents=[LlmAgent(name='heir'), LlmAgent(name='own', model=Gemini(model='gemini-2.5-flash'))],
)
"""
    app = load_app(str(folder(agent__py=source)))
    found = {agent.name: agent.canonical_model for agent in list_llm_agents(app)}
    assert list(found) == ["root", "asked", "heir", "own"]
    models = {name: (type(model).__name__, model.model) for name, model in found.items()}
    assert models["own"] == ("Gemini", "gemini-2.5-flash")
    assert models["root"] == models["heir"] == ("RegisteredAdapter", "openai/named")
    assert isinstance(found["asked"], ModelAdapter)
    assert found["asked"].is_fixed
    assert found["asked"].retry_delays


def test_an_agent_without_a_model_uses_the_default_or_the_chosen_one(
    folder: Folder, model_registry: ModelRegistry
) -> None:
    (agent,) = list_llm_agents(load_app(str(folder(agent__py=PLAIN))))
    model = agent.canonical_model
    assert isinstance(model, ModelAdapter)
    assert agent.canonical_live_model.model == "openai/default"
    assert (model.model, model.is_fixed, set(model.selectable)) == (
        "openai/default",
        False,
        set(model_registry.selectable),
    )


def test_an_unused_default_model_needs_no_key() -> None:
    assert list(ModelRegistry("gemini-x", [], VendorSettings(), is_required=False).selectable) == []


def test_the_folders_env_file_fills_unset_variables(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"import os\n{AGENT}root_agent = LlmAgent(name='x', instruction=os.environ['BROUGHT_WORD'])"
    place = folder(agent__py=source, env="BROUGHT_WORD=mine\n")
    assert find_env_file(str(place)) == place / ".env"
    (agent,) = list_llm_agents(load_app(str(place)))
    assert agent.instruction == "mine"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a project with a lock, whose environment is this process's."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "bot" / ".venv"))
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/uv")
    for name in ("uv.lock", "pyproject.toml", "weather/agent.py"):
        (tmp_path / "bot" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bot" / name).touch()
    monkeypatch.chdir(tmp_path / "bot")
    return tmp_path / "bot"


def test_a_missing_package_is_added_to_the_project_of_the_environment(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert describe_installation("requests", "weather") == "run `uv add requests` (its package may have another name)"
    monkeypatch.chdir(project / "weather")
    assert describe_installation("requests", ".").startswith("run `uv add --project .. requests`")
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "`uv add " in describe_installation("requests", ".")
    (project / ".uv" / "bin").mkdir(parents=True)
    (project / ".uv" / "bin" / "uv").touch()
    assert "`../.uv/bin/uv add " in describe_installation("requests", ".")


def test_files_that_list_an_agents_packages_are_named(project: Path) -> None:
    other = project.parent / "my work" / "weather"
    other.mkdir(parents=True)
    (other / "agent.py").touch()
    (other.parent / "pyproject.toml").touch()
    assert describe_installation("requests", str(other)) == "run `uv add --editable '../my work'`"
    (other / "requirements.txt").touch()
    expected = "run `uv add --requirements '../my work/weather/requirements.txt'`"
    assert describe_installation("requests", str(other)) == expected


def test_an_environment_without_a_lock_gets_no_uv_command(project: Path) -> None:
    (project / "uv.lock").unlink()
    expected = "install `requests` (its package may have another name) beside Parley"
    assert describe_installation("requests", "weather") == expected
