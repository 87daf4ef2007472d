"""`parley check`: checks every setting against its service."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from google.adk.apps import App
from google.adk.sessions import InMemorySessionService

from bot import output as tables
from bot import settings as configuration
from bot.agents import find_unusable_tools, make_agents, make_model_registry
from bot.hooks_toml import read_hooks
from bot.routes.hooks import HOOKS_PATH
from bot.settings import Settings
from bot.setup import probes as trials
from bot.setup.probes import CheckResult, CheckVerdict, make_success, to_failures
from channels.discord import access as discord_access
from channels.slack import access as slack_access
from core.agents.instructions import find_unknown_variables
from core.agents.loader import list_llm_agents
from core.agents.runtime import AgentRuntime
from core.errors import ParleyError, SettingsError
from core.models.adapter import ModelAdapter
from core.models.selection import ModelRegistry
from core.models.tokens import has_vocabulary
from core.signin.toolset import SignInToolset
from core.tools.mcp import McpServer
from core.turns.automation.tickets import TICKETS_PATH


async def run_checks() -> AsyncGenerator[CheckResult, None]:
    """Check the settings against their services in turn; yield the results.

    A misspelt setting is a failure if it limits or protects, else a note. A removed one is a note. If `load_settings`
    fails, there is a failure for each fault, and no service is asked. The results of a service come as soon as its
    check ends.
    """
    for unknown in configuration.find_unknown_settings():
        yield CheckResult(CheckVerdict.FAIL if unknown.is_protective else CheckVerdict.NOTE, str(unknown))
    try:
        settings = configuration.load_settings()
    except SettingsError as error:
        for fault in to_failures(error):
            yield fault
        return
    for name, trial in _CHECKS.items():
        with tables.show_progress(f"checking {name}"):
            findings = await trials.run_check(trial(settings))
        for finding in findings:
            yield finding
    if settings.slack is None and settings.discord is None:
        yield CheckResult(CheckVerdict.NOTE, f"{configuration.NO_TOKENS}: `run` starts the simulator")


async def print_checks(*, as_json: bool = False) -> bool:
    """Print each result at once, or all as JSON at the end; return whether no check failed."""
    found = list[CheckResult]()
    async with aclosing(run_checks()) as findings:
        async for finding in findings:
            found.append(finding)
            if not as_json:
                tables.print_verdict(finding.verdict.value, finding.line)
    if as_json:
        tables.print_json([finding.to_json() for finding in found])
    return all(finding.verdict is not CheckVerdict.FAIL for finding in found)


async def _check_slack(settings: Settings) -> list[CheckResult]:
    return [] if settings.slack is None else await trials.check_slack(settings.slack)


async def _check_discord(settings: Settings) -> list[CheckResult]:
    return [] if settings.discord is None else await trials.check_discord(settings.discord)


async def _check_access(settings: Settings) -> list[CheckResult]:
    faults = list[str]()
    notes = list[CheckResult]()
    if settings.rate_limit_per_user is None and (settings.slack or settings.discord):
        line = "RATE_LIMIT_PER_USER is not set, so one user may send any number of messages; 20/h is a good start"
        notes.append(CheckResult(CheckVerdict.NOTE, line))
    for name, find_unknown in (("slack", slack_access.find_unknown_ids), ("discord", discord_access.find_unknown_ids)):
        named = {f"{name.upper()}_{kind}": getattr(settings, f"{name}_{kind.lower()}") for kind in ("ALLOW", "BLOCK")}
        login: Any = getattr(settings, name)
        if login is not None and any(named.values()):
            faults += [
                f"{setting}: {line}" for setting, rules in named.items() for line in await find_unknown(login, rules)
            ]
    return [*notes, *(CheckResult(CheckVerdict.FAIL, fault) for fault in faults)]


async def _check_hooks(settings: Settings) -> list[CheckResult]:
    hooks = read_hooks(settings)
    return [
        CheckResult(CheckVerdict.OK, f"hook {name}: POST {HOOKS_PATH}{name} begins turns in {hook.place}")
        for name, hook in hooks.items()
    ]


async def _check_tickets(settings: Settings) -> list[CheckResult]:
    if settings.public_url is None:
        return []
    return make_success(f"tickets: POST {settings.public_url}{TICKETS_PATH}ID finishes background jobs")


async def _check_port(settings: Settings) -> list[CheckResult]:
    if settings.hooks_path is None and settings.public_url is None:
        return []
    notes = await trials.find_port_warnings(settings.port, settings.listen_address)
    return [CheckResult(CheckVerdict.NOTE, f"requests from outside: {note}") for note in notes]


async def _check_sign_in(settings: Settings) -> list[CheckResult]:
    return await trials.check_sign_in(settings)


async def _check_database(settings: Settings) -> list[CheckResult]:
    return await trials.check_database(settings.database_address, settings.token_encryption_key)


async def _check_agents_and_models(settings: Settings) -> list[CheckResult]:
    try:
        registry = make_model_registry(settings)
    except SettingsError as error:
        return to_failures(error)
    findings = list[CheckResult]()
    faults = list[str]()
    try:
        apps: Mapping[str, App] = {}
        try:
            apps = make_agents(settings, registry).apps
        except SettingsError as error:
            faults += error.faults
        for name, (provider, model) in registry.handles.items():
            try:
                findings += await trials.check_model(name, provider, model)
            except ParleyError as error:
                faults.append(f"{_find_model_setting(name, registry)}={name}: {error}")
        for app in apps.values():
            findings += make_success(_describe_agent(app))
            findings += [CheckResult(CheckVerdict.NOTE, line) for line in find_unusable_tools(app)]
            for agent in list_llm_agents(app):
                if agent.model and not isinstance(agent.canonical_model, ModelAdapter):
                    findings.append(await trials.check_external_model(agent))
            for unknown in await find_unknown_variables(app):
                verdict = CheckVerdict.NOTE if unknown.may_be_set else CheckVerdict.FAIL
                findings.append(CheckResult(verdict, str(unknown)))
            for server in getattr(app.root_agent, "tools", ()):
                if isinstance(server, McpServer):
                    findings.append(await _check_mcp_server(server))
                if isinstance(server, SignInToolset):
                    findings += make_success(f"MCP server {server.name}: each person connects their own account")
            await AgentRuntime(app, InMemorySessionService()).aclose()
    finally:
        await registry.aclose()
    return [*findings, *(CheckResult(CheckVerdict.FAIL, fault) for fault in faults)]


def _find_model_setting(name: str, registry: ModelRegistry) -> str:
    if name == registry.default:
        return "MODEL"
    if name in registry.selectable:
        return "MODELS"
    return "MODEL_FALLBACKS" if name in registry.fallbacks.models else "the model of an agent"


async def _check_mcp_server(server: McpServer) -> CheckResult:
    try:
        names = ", ".join(tool.name for tool in await server.fetch_tools())
    except Exception as error:  # an MCP server may fail in any way
        kind = type(error.__cause__ or error).__name__
        return CheckResult(CheckVerdict.FAIL, f"MCP_FILE: the server [{server.name}] cannot list its tools ({kind})")
    return CheckResult(CheckVerdict.OK, f"MCP server {server.name}: {names or 'no tools'}")


def _describe_agent(app: App) -> str:
    root = app.root_agent
    tools = [getattr(tool, "name", None) or getattr(tool, "__name__", "") for tool in getattr(root, "tools", ())]
    return f"agent: {app.name}; tools: {', '.join(filter(None, tools)) or 'none'}"


async def _check_vocabulary(settings: Settings) -> list[CheckResult]:
    if has_vocabulary(settings.vocabulary_dir):
        return make_success("tokens: counted exactly")
    estimated = "tokens: estimated, up to 40 % off; run `parley warm` to count them exactly"
    return [CheckResult(CheckVerdict.NOTE, estimated)]


_CHECKS: Mapping[str, Callable[[Settings], Awaitable[list[CheckResult]]]] = {
    "Slack": _check_slack,
    "Discord": _check_discord,
    "access": _check_access,
    "hooks": _check_hooks,
    "tickets": _check_tickets,
    "sign-in": _check_sign_in,
    "the port": _check_port,
    "the database": _check_database,
    "agents and models": _check_agents_and_models,
    "the tokenizer": _check_vocabulary,
}
