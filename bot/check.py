"""`check`: tries every setting for real."""

from dataclasses import dataclass

from sqlalchemy.engine import make_url

from bot import settings as configuration
from bot.settings import Settings
from channels.slack.channel import client, verify
from core.errors import ParleyError, SettingsError
from core.models.catalog import make_provider, probe
from core.store.database import Database
from core.store.migrate import pending
from core.tokens import is_warm
from core.tools import load_tools


@dataclass(frozen=True, slots=True)
class Finding:
    """What trying one setting has shown."""

    is_good: bool
    line: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.is_good else 'FAIL'} {self.line}"


async def check() -> list[Finding]:
    """Try each setting; one finding each, and for what is wrong one a fault."""
    try:
        settings = configuration.load()
    except SettingsError as error:
        return [Finding(False, fault) for fault in error.faults]
    findings = []
    for trial in (_slack, _database, _model, _tools, _vocabulary):
        try:
            findings.append(Finding(True, await trial(settings)))
        except SettingsError as error:
            findings += [Finding(False, fault) for fault in error.faults]
        except ParleyError as error:
            findings.append(Finding(False, str(error)))
    return findings


async def _slack(settings: Settings) -> str:
    if settings.slack is None:
        return "Slack: no tokens set; `run` starts the sandbox"
    who = await verify(client(settings.slack), settings.slack.app_token)
    return f"Slack: {who}"


async def _database(settings: Settings) -> str:
    where = make_url(settings.database).render_as_string(hide_password=True)
    try:
        database = Database(settings.database)
        try:
            missing = await pending(database)
        finally:
            await database.aclose()
    except ParleyError as error:
        raise SettingsError(f"DATABASE_URL: {where}: {error}") from error
    return f"database: {where}" + (f"; {len(missing)} migrations to apply: `parley migrate`" if missing else "")


async def _model(settings: Settings) -> str:
    provider, model = make_provider(settings.model, settings.endpoints)
    try:
        await probe(provider, model)
    except ParleyError as error:
        raise SettingsError(f"MODEL={settings.model}: {error}") from error
    finally:
        await provider.aclose()
    return f"model: {settings.model} answers"


async def _tools(settings: Settings) -> str:
    try:
        tools = load_tools(settings.tools)
    except ParleyError as error:
        raise SettingsError(f"TOOLS: {error}") from error
    return f"tools: {', '.join(tool.name for tool in tools) or 'none'}"


async def _vocabulary(settings: Settings) -> str:
    if is_warm(settings.vocabulary_dir):
        return "tokens: counted exactly"
    return "tokens: estimated, up to 40 % off; `parley warm` fetches what they are counted with"
