"""`check`: tries every setting for real."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from google.adk.apps import App
from google.adk.sessions import InMemorySessionService

from bot import output as tables
from bot import settings as configuration
from bot.agents import find_unusable_tools, make_choice, make_crew
from bot.settings import Settings
from bot.setup import probes as trials
from bot.setup.probes import Finding, Verdict, faults, good
from channels.discord import access as discord_access
from channels.slack import access as slack_access
from core.agents.runtime import AgentRuntime
from core.errors import ParleyError, SettingsError
from core.models.selection import ModelRegistry
from core.models.tokens import has_vocabulary
from core.tools.mcp import McpServer


async def check() -> AsyncGenerator[Finding, None]:
    """Try each setting, and tell what it shows as soon as it does; for what is wrong, a finding a fault."""
    for line in configuration.find_unknown_names():
        yield Finding(Verdict.NOTE, line)
    try:
        settings = configuration.load_settings()
    except SettingsError as error:
        for fault in faults(error):
            yield fault
        return
    for what, trial in _TRIALS.items():
        with tables.progress(f"trying {what}"):
            findings = await trials.found(trial(settings))
        for finding in findings:
            yield finding
    if settings.slack is None and settings.discord is None:
        yield Finding(Verdict.NOTE, f"{configuration.NO_TOKENS}: `run` starts the sandbox")


async def shown(*, as_json: bool = False) -> bool:
    """Show each finding as soon as it is there, or as JSON all of them in the end; whether nothing fails."""
    found = list[Finding]()
    async with aclosing(check()) as findings:
        async for finding in findings:
            found.append(finding)
            if not as_json:
                tables.verdict(finding.verdict.value, finding.line)
    if as_json:
        tables.dump([{"verdict": finding.verdict.value.lower(), "line": finding.line} for finding in found])
    return all(finding.verdict is not Verdict.FAIL for finding in found)


async def _slack(settings: Settings) -> list[Finding]:
    return [] if settings.slack is None else await trials.slack(settings.slack)


async def _discord(settings: Settings) -> list[Finding]:
    return [] if settings.discord is None else await trials.discord(settings.discord)


async def _access(settings: Settings) -> list[Finding]:
    """Return a failure for each listed id that its platform does not know, and a note if people have no rate limit."""
    wrong, notes = list[str](), list[Finding]()
    if settings.rate_limit_per_user is None and (settings.slack or settings.discord):
        line = "RATE_LIMIT_PER_USER: not set, so one person may ask without limit; 20/h is a good start"
        notes.append(Finding(Verdict.NOTE, line))
    for name, find in (("slack", slack_access.find_unknown_ids), ("discord", discord_access.find_unknown_ids)):
        named = {f"{name.upper()}_{kind}": getattr(settings, f"{name}_{kind.lower()}") for kind in ("ALLOW", "BLOCK")}
        login: Any = getattr(settings, name)
        if login is not None and any(named.values()):
            wrong += [f"{setting}: {line}" for setting, rules in named.items() for line in await find(login, rules)]
    return [*notes, *(Finding(Verdict.FAIL, fault) for fault in wrong)]


async def _database(settings: Settings) -> list[Finding]:
    return await trials.database(settings.database_address, settings.token_encryption_key)


async def _agent_and_models(settings: Settings) -> list[Finding]:
    try:
        choice = make_choice(settings)
    except SettingsError as error:
        return faults(error)
    findings, wrong = list[Finding](), list[str]()
    try:
        apps: Mapping[str, App] = {}
        try:
            apps = make_crew(settings, choice).apps
        except SettingsError as error:
            wrong += error.faults
        for name, (provider, model) in choice.handles.items():
            try:
                findings += await trials.model(name, provider, model)
            except ParleyError as error:
                wrong.append(f"{_who_asks(name, choice)}={name}: {error}")
        for app in apps.values():
            findings += good(_agent(app))
            findings += [Finding(Verdict.NOTE, line) for line in find_unusable_tools(app)]
            for server in getattr(app.root_agent, "tools", ()):
                if isinstance(server, McpServer):
                    findings.append(await _server(server))
            await AgentRuntime(app, InMemorySessionService()).aclose()
    finally:
        await choice.aclose()
    return [*findings, *(Finding(Verdict.FAIL, fault) for fault in wrong)]


def _who_asks(name: str, choice: ModelRegistry) -> str:
    """The setting that names a model."""
    if name == choice.default:
        return "MODEL"
    if name in choice.selectable:
        return "MODELS"
    return "MODEL_FALLBACKS" if name in choice.fallbacks.models else "the model of an agent"


async def _server(server: McpServer) -> Finding:
    try:
        tools = await server.fetch_tools()
    except Exception as error:  # whatever a foreign program does
        kind = type(error.__cause__ or error).__name__
        return Finding(Verdict.FAIL, f"MCP_FILE: the server [{server.name}] does not tell its tools ({kind})")
    return Finding(Verdict.OK, f"MCP server {server.name}: {', '.join(tool.name for tool in tools) or 'no tools'}")


def _agent(app: App) -> str:
    root = app.root_agent
    tools = [getattr(tool, "name", None) or getattr(tool, "__name__", "") for tool in getattr(root, "tools", ())]
    return f"agent: {app.name}; tools: {', '.join(filter(None, tools)) or 'none'}"


async def _vocabulary(settings: Settings) -> list[Finding]:
    if has_vocabulary(settings.vocabulary_dir):
        return good("tokens: counted exactly")
    estimated = "tokens: estimated, up to 40 % off; `parley warm` fetches what they are counted with"
    return [Finding(Verdict.NOTE, estimated)]


_TRIALS: Mapping[str, Callable[[Settings], Awaitable[list[Finding]]]] = {
    "Slack": _slack,
    "Discord": _discord,
    "who may speak": _access,
    "the database": _database,
    "the agent and its models": _agent_and_models,
    "how tokens are counted": _vocabulary,
}
