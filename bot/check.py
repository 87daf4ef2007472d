"""`check`: tries every setting for real."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from google.adk.apps import App
from google.adk.sessions import InMemorySessionService
from sqlalchemy.engine import make_url

from bot import settings as configuration
from bot.agent import make_choice, make_crew
from bot.settings import Settings
from channels.discord import known as discord_known
from channels.discord import login as discord
from channels.slack import known as slack_known
from channels.slack import login as slack
from core.errors import ParleyError, SettingsError, StoreError, ToolError
from core.mcp import McpServer
from core.models.catalog import probe
from core.models.choice import Choice
from core.runtime import AgentRuntime
from core.store.database import Database
from core.store.migrate import pending
from core.tokens import is_warm
from core.tools import load_tools
from core.vault import Vault


class Verdict(Enum):
    """What to make of a finding; a `NOTE` tells of something that could be had and is not."""

    OK = "ok"
    NOTE = "note"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """What trying one setting has shown."""

    verdict: Verdict
    line: str

    def __str__(self) -> str:
        return f"{self.verdict.value:4} {self.line}"


async def check() -> list[Finding]:
    """Try each setting; at least one finding each, and for what is wrong one a fault."""
    try:
        settings = configuration.load()
    except SettingsError as error:
        return _faults(error)
    findings = []
    for trial in (_slack, _discord, _access, _database, _agent_and_models, _vocabulary):
        try:
            findings += await trial(settings)
        except SettingsError as error:
            findings += _faults(error)
        except ParleyError as error:
            findings.append(Finding(Verdict.FAIL, str(error)))
    if settings.slack is None and settings.discord is None:
        findings.append(Finding(Verdict.NOTE, f"{configuration.NO_TOKENS}: `run` starts the sandbox"))
    return findings


def _good(line: str) -> list[Finding]:
    return [Finding(Verdict.OK, line)]


def _faults(error: SettingsError) -> list[Finding]:
    return [Finding(Verdict.FAIL, fault) for fault in error.faults]


async def _slack(settings: Settings) -> list[Finding]:
    if settings.slack is None:
        return []
    return _good(f"Slack: {await slack.verify(slack.client(settings.slack), settings.slack.app_token)}")


async def _discord(settings: Settings) -> list[Finding]:
    if settings.discord is None:
        return []
    standing = await discord.verify(settings.discord)
    return [
        *_good(f"Discord: {standing.who}"),
        *(Finding(Verdict.NOTE, f"Discord: {line}") for line in standing.lacks),
        *(Finding(Verdict.FAIL, line) for line in standing.faults),
    ]


async def _access(settings: Settings) -> list[Finding]:
    """Whether the platforms know whom the lists of the door name."""
    faults = list[str]()
    for name, known in (("slack", slack_known.unknown), ("discord", discord_known.unknown)):
        named = {f"{name.upper()}_{kind}": getattr(settings, f"{name}_{kind.lower()}") for kind in ("ALLOW", "BLOCK")}
        login: Any = getattr(settings, name)
        if login is not None and any(named.values()):
            faults += [f"{setting}: {line}" for setting, rules in named.items() for line in await known(login, rules)]
    return [Finding(Verdict.FAIL, fault) for fault in faults]


async def _database(settings: Settings) -> list[Finding]:
    where = make_url(settings.database).render_as_string(hide_password=True)
    try:
        database = Database(settings.database)
        try:
            missing = await pending(database)
            if settings.vault_key and not missing:
                await Vault(database, settings.vault_key).verify()
        finally:
            await database.aclose()
    except StoreError as error:
        raise SettingsError(f"DATABASE_URL: {where}: {error}") from error
    return _good(f"database: {where}" + (f"; {len(missing)} migrations to apply: `parley migrate`" if missing else ""))


async def _agent_and_models(settings: Settings) -> list[Finding]:
    try:
        choice = make_choice(settings)
    except SettingsError as error:  # what is wrong with the tools is to be told as well
        return [*_faults(error), *([] if settings.agent or settings.several else _tools(settings))]
    findings, faults = list[Finding](), list[str]()
    try:
        apps: Mapping[str, App] = {}
        try:
            apps = make_crew(settings, choice).apps
        except SettingsError as error:
            faults += error.faults
        for name, (provider, model) in choice.asked.items():
            try:
                await probe(provider, model)
                findings += _good(f"model: {name} answers")
            except ParleyError as error:
                faults.append(f"{_who_asks(name, choice)}={name}: {error}")
        for app in apps.values():
            findings += _good(_agent(app))
            for server in getattr(app.root_agent, "tools", ()):
                if isinstance(server, McpServer):
                    findings.append(await _server(server))
            await AgentRuntime(app, InMemorySessionService()).aclose()
    finally:
        await choice.aclose()
    return [*findings, *(Finding(Verdict.FAIL, fault) for fault in faults)]


def _tools(settings: Settings) -> list[Finding]:
    try:
        load_tools(settings.tools)
    except ToolError as error:
        return [Finding(Verdict.FAIL, f"TOOLS: {error}")]
    return []


def _who_asks(name: str, choice: Choice) -> str:
    """The setting that names a model."""
    if name == choice.default:
        return "MODEL"
    if name in choice.offered:
        return "MODELS"
    return "MODEL_FALLBACKS" if name in choice.fallbacks.offered else "the model of an agent"


async def _server(server: McpServer) -> Finding:
    try:
        tools = await server.listed()
    except Exception as error:  # whatever a foreign program does
        kind = type(error.__cause__ or error).__name__
        return Finding(Verdict.FAIL, f"MCP_FILE: the server [{server.name}] does not tell its tools ({kind})")
    return Finding(Verdict.OK, f"MCP server {server.name}: {', '.join(tool.name for tool in tools) or 'no tools'}")


def _agent(app: App) -> str:
    root = app.root_agent
    tools = [getattr(tool, "name", None) or getattr(tool, "__name__", "") for tool in getattr(root, "tools", ())]
    return f"agent: {app.name}; tools: {', '.join(filter(None, tools)) or 'none'}"


async def _vocabulary(settings: Settings) -> list[Finding]:
    if is_warm(settings.vocabulary_dir):
        return _good("tokens: counted exactly")
    estimated = "tokens: estimated, up to 40 % off; `parley warm` fetches what they are counted with"
    return [Finding(Verdict.NOTE, estimated)]
