"""Loader of users' agents, in the layout of `adk web` and `adk run`."""

import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from types import MappingProxyType

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.auth.auth_schemes import CustomAuthScheme
from google.adk.plugins import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.load_memory_tool import LoadMemoryTool
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.adk.workflow import BaseNode, FunctionNode

from core.agents.config import find_agent_folder
from core.agents.requirements import describe_installation
from core.errors import ParleyError, SettingsError, SignInError
from core.observability.secret_redaction import redact_secrets
from core.signin.toolset import SignInToolset, replace_toolset
from core.tools.mcp import McpServer

#: Top-level packages of Parley and its repository, whose names an agent's project may use too.
_OWN_PACKAGES = ("bot", "channels", "chatrig", "core", "tests")

_LAYOUT_HINT = (
    "it must have `app` or `root_agent` in agent.py or __init__.py, or be described in root_agent.yaml: "
    "docs/howto/bring-your-own-agent.md"
)


def load_app(agent_path: str, plugins: Sequence[BasePlugin] = ()) -> App:
    """Return the ADK app of a user's agent, with `plugins` before its own plugins.

    ADK's loader reads the folder's `.env` too; it does not replace variables of the environment. If the agent defines a
    `root_agent` and no app, the app has the name of the folder, as with `adk web`.

    Raises:
        SettingsError: there is no agent, its import fails, or ADK rejects the app or one of its models.
    """
    try:
        with warnings.catch_warnings():  # ADK's advice is for the agent's author, not for the operator
            warnings.simplefilter("ignore")
            app = _load(agent_path)
            _resolve_models(agent_path, app)
            _replace_toolsets(agent_path, app)
            return app.model_copy(update={"plugins": [*plugins, *app.plugins]})
    except SettingsError:
        raise
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        raise SettingsError(f"AGENT={agent_path}: {_describe_error(error, agent_path)}") from error


def _load(agent: str) -> App:
    folder = find_agent_folder(agent)
    if folder is not None:
        found = _load_folder(agent, folder)
        name = folder.name
    elif os.sep in agent or agent.startswith((".", "~")):
        raise SettingsError(f"AGENT={agent}: there is no such folder")
    else:
        found = _load_module(agent)
        name = agent.removesuffix(".agent").rpartition(".")[2]
    return found if isinstance(found, App) else App(name=name, root_agent=found)


def _load_folder(agent: str, folder: Path) -> App | BaseNode:
    from google.adk.cli.utils.agent_loader import AgentLoader, is_single_agent_directory  # noqa: PLC0415 - takes long

    if not folder.name.isidentifier():
        raise SettingsError(f"AGENT={agent}: its folder's name must consist of letters, digits and underscores")
    if _is_shadowed(folder):
        raise SettingsError(f"AGENT={agent}: Python has another module of the name {folder.name}: rename the folder")
    if not any((folder / name).is_file() for name in ("agent.py", "__init__.py", "root_agent.yaml")):
        raise SettingsError(f"AGENT={agent}: there is no agent in it: {_LAYOUT_HINT}")
    shadowed = [name for name in _OWN_PACKAGES if _is_shadowed(folder.parent / name)]
    if (name := next((name for name in shadowed if _imports(folder, name)), None)) is not None:
        raise SettingsError(_describe_collision(agent, folder, name))
    loader = AgentLoader(str(folder if is_single_agent_directory(folder) else folder.parent))
    try:
        found = loader.load_agent(folder.name)
    except ImportError as error:  # another package of the project may import it
        name = (error.name or "").partition(".")[0]
        if name not in shadowed:
            raise
        raise SettingsError(_describe_collision(agent, folder, name)) from error
    assert isinstance(found, App | BaseNode)
    return found


def _is_shadowed(path: Path) -> bool:
    """Return whether a module at a path (without `.py`) exists, but Python imports another one of its name."""
    if not path.is_dir() and not path.with_suffix(".py").is_file():
        return False
    module = sys.modules.get(path.name)
    spec = PathFinder.find_spec(path.name, [str(path.parent), *sys.path]) if module is None else module.__spec__
    places = [*(spec.submodule_search_locations or ()), spec.origin or ""] if spec is not None else []
    return all(path.parent not in Path(place).parents for place in places)


def _imports(folder: Path, package: str) -> bool:
    statement = re.compile(rf"^[ \t]*(?:from|import)[ \t]+{package}\b", re.MULTILINE)
    return any(statement.search(file.read_text(errors="replace")) for file in folder.rglob("*.py"))


def _describe_collision(agent: str, folder: Path, package: str) -> str:
    return (
        f"AGENT={agent}: its project has a package `{package}`, and Python imports Parley's package of that name: "
        f"rename yours, or move it into the folder {folder.name}"
    )


def _load_module(agent: str) -> App | BaseNode:
    """Import a module or, as ADK's loader does, its submodule `agent`; return its `app` or `root_agent`."""
    for name in (agent, f"{agent}.agent"):
        try:
            module = import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
                raise  # the module exists, and one of its own imports does not
            continue
        for candidate, kind in ((getattr(module, "app", None), App), (getattr(module, "root_agent", None), BaseNode)):
            if isinstance(candidate, kind):
                return candidate
    raise SettingsError(f"AGENT={agent}: there is no such folder, and no module with an agent in it: {_LAYOUT_HINT}")


def _resolve_models(agent: str, app: App) -> None:
    """Resolve the models of all agents, so that a wrong one fails at startup."""
    faults = []
    for each in list_llm_agents(app):
        try:
            _ = each.canonical_model
        except SettingsError as error:
            faults += [f"AGENT={agent}: the agent {each.name}: {fault}" for fault in error.faults]
        except (ValueError, ImportError) as error:
            model = each.model or "its parent's model"
            faults.append(
                f"AGENT={agent}: the agent {each.name}: ADK does not find the model {model} ({type(error).__name__}): "
                "name one as in MODEL, leave it out to have MODEL's, or bring a model object"
            )
    if faults:
        raise SettingsError(*dict.fromkeys(faults))


def _replace_toolsets(agent: str, app: App) -> None:
    """Replace the toolsets whose credentials only people have: with ADK's, each run would end before the model runs."""
    faults = list[str]()
    replaced = dict[int, BaseToolset]()  # agents may share a toolset
    for node in list_nodes(app):
        if isinstance(node, FunctionNode) and node.auth_config is not None:
            faults.append(f"the node {node.name} has an auth_config: let an agent's tool request the credential")
        if not isinstance(node, LlmAgent):
            continue
        for index, tool in enumerate(node.tools):
            where = f"the agent {node.name}: {getattr(tool, 'name', None) or type(tool).__name__}"
            if isinstance(_get_auth_scheme(tool), CustomAuthScheme):
                faults.append(f"{where}: its auth_scheme keeps one account for all people of a channel: use OAuth2")
            elif isinstance(tool, BaseToolset):
                try:
                    node.tools[index] = replaced[id(tool)] = replaced.get(id(tool)) or replace_toolset(tool)
                except SignInError as error:
                    faults.append(f"{where} needs a user's sign-in: {error}")
    for name, toolsets in _group_by_connect_name(replaced.values()).items():
        for number, toolset in enumerate(toolsets[1:], 2):
            toolset.connect_name = f"{name}_{number}"
    if faults:
        raise SettingsError(*(f"AGENT={agent}: {fault}" for fault in faults))


def _group_by_connect_name(toolsets: Iterable[BaseToolset]) -> Mapping[str, list[SignInToolset]]:
    groups = dict[str, list[SignInToolset]]()
    for toolset in toolsets:
        if isinstance(toolset, SignInToolset):
            groups.setdefault(toolset.connect_name, []).append(toolset)
    return groups


def _get_auth_scheme(tool: object) -> object:
    """Return the scheme of a tool or toolset. ADK 2.13: no public attribute of every kind has it."""
    if isinstance(tool, BaseToolset) and (config := tool.get_auth_config()) is not None:
        return config.auth_scheme
    config = getattr(getattr(tool, "_credentials_manager", None), "_auth_config", None)
    return (
        getattr(config, "auth_scheme", None)
        or getattr(tool, "auth_scheme", None)
        or getattr(tool, "_auth_scheme", None)
    )


def list_llm_agents(app: App) -> Iterator[LlmAgent]:
    """Yield the `LlmAgent`s of an app, which call models, each once, the root first."""
    return (node for node in list_nodes(app) if isinstance(node, LlmAgent))


def list_nodes(app: App) -> Iterator[BaseNode]:
    """Yield the nodes of an app, each once, the root first, with those of workflows and agents that are tools."""
    return _walk_nodes(app.root_agent, set())


def _walk_nodes(node: object, seen: set[int]) -> Iterator[BaseNode]:
    if not isinstance(node, BaseNode) or id(node) in seen:
        return
    seen.add(id(node))
    yield node
    if isinstance(node, LlmAgent):
        for tool in node.tools:
            yield from _walk_nodes(tool.agent if isinstance(tool, AgentTool) else tool, seen)
    for child in node._iter_static_children():  # ADK: no public attribute has the children of every kind of node
        yield from _walk_nodes(child, seen)


def _describe_error(error: BaseException, agent: str) -> str:
    """Return why an agent cannot be loaded, as a phrase for the operator.

    The text of the exception is left out, because it may contain secrets, except for a `ParleyError` and for errors
    whose text is Python's.
    """
    cause = error.__cause__ or error
    if isinstance(cause, ModuleNotFoundError) and cause.name:
        return f"it needs the Python module `{cause.name}`, which is not installed: {_find_remedy(cause.name, agent)}"
    if isinstance(cause, SyntaxError) and cause.filename:
        reason = _get_reason(cause.msg).removesuffix(f" (detected at line {cause.lineno})")
        return f"{Path(cause.filename).name}, line {cause.lineno}: {type(cause).__name__}: {reason}"
    if isinstance(cause, ParleyError):
        return str(cause)
    kind = type(cause).__name__
    if isinstance(cause, ImportError | NameError | AttributeError):
        kind += f": {_get_reason(str(cause))}"
    folder = find_agent_folder(agent)
    for frame in reversed(traceback.extract_tb(cause.__traceback__)):
        if folder is not None and folder in Path(frame.filename).parents:
            return f"{Path(frame.filename).relative_to(folder)}, line {frame.lineno}, raises {kind}"
    if isinstance(cause, ValueError):
        return f"ADK rejects it ({kind}): {_LAYOUT_HINT}"
    return f"it cannot be loaded ({kind}): {_LAYOUT_HINT}"


def _get_reason(text: str) -> str:
    """Return the text of an exception without secrets, and without the words that ADK's loader puts before it."""
    return redact_secrets(re.sub(r"^Fail to load '[^']*' module\. ", "", text))


def _find_remedy(module: str, agent: str) -> str:
    folder = find_agent_folder(agent)
    top = module.partition(".")[0]
    if folder is not None and ((folder / top).is_dir() or (folder / f"{top}.py").is_file()):
        return f"it is in the agent's folder, so import it as `from . import {top}`"
    return describe_installation(top, agent)


def has_memory_tool(app: App) -> bool:
    kinds = (LoadMemoryTool, PreloadMemoryTool)
    return any(isinstance(tool, kinds) for agent in list_llm_agents(app) for tool in agent.tools)


#: Lines that are shown while Parley's and ADK's built-in tools run. Names in braces stand for arguments of the call.
BUILTIN_PROGRESS_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "current_time": "Checking the time",
        "search_history": "Searching the conversation",
        "read_page": "Reading {url}",
        "make_file": "Writing {name}",
        "transfer_to_agent": "Transferring to {agent_name}",
        "load_memory": "Searching memory",
        "load_artifacts": "Loading files",
        "google_search": "Searching the web",
    }
)


def get_progress_texts(app: App) -> dict[str, str]:
    """Return the texts to show while an app's tools run, by tool name; tools without a text are left out."""
    texts = dict[str, str]()
    for tool in (tool for agent in list_llm_agents(app) for tool in agent.tools):
        if isinstance(tool, McpServer | SignInToolset):
            texts |= tool.progress_texts
            continue
        name = tool.name if isinstance(tool, BaseTool) else getattr(tool, "__name__", "")
        for marked in (tool, getattr(tool, "func", None)):
            if isinstance(line := getattr(marked, "progress", None), str) and line:
                texts[name] = line
    return texts
