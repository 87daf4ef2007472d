"""Command of operators for connected accounts."""

import asyncio
import json

import sqlalchemy as sa
from typer.testing import CliRunner

from bot.cli.main import cli
from bot.cli.operations import UnknownIdError
from core.store.database import Database
from core.store.migrate import migrate
from core.store.schema import sign_ins


async def create_sign_in(url: str) -> None:
    database = Database(url)
    await migrate(database)
    row = {
        "id": "1a2b3c4d5e",
        "platform": "slack",
        "workspace": "T1",
        "person": "U1",
        "app": "parley",
        "credential_key": "key",
        "fingerprint": "f",
        "kind": "oauth",
        "label": "GitHub",
        "account": "ada-l",
        "scopes": ["repo"],
        "state": "active",
        "created_at": 1e9,
    }
    async with database.write() as connection:
        await connection.execute(sa.insert(sign_ins).values(row))
    await database.aclose()


def test_operators_list_and_disconnect_accounts(command_database: str) -> None:
    asyncio.run(create_sign_in(command_database))
    runner = CliRunner()
    (listed,) = json.loads(runner.invoke(cli, ["connections", "--json"]).output)
    assert (listed["id"], listed["user"], listed["label"]) == ("1a2b3c4d5e", "U1", "GitHub")
    assert (listed["created_at"], listed["used_at"], listed["scopes"]) == ("2001-09-09T01:46:40Z", None, ["repo"])
    assert "GitHub" in runner.invoke(cli, ["connections"], env={"COLUMNS": "200"}).output
    assert isinstance(runner.invoke(cli, ["connections", "--disconnect", "x"]).exception, UnknownIdError)
    assert "disconnected 1a2b3c4d5e" in runner.invoke(cli, ["connections", "--disconnect", "1a2b3c4d5e"]).output
    assert json.loads(runner.invoke(cli, ["connections", "--json"]).output) == []
    assert isinstance(runner.invoke(cli, ["connections", "--disconnect", "1a2b3c4d5e"]).exception, UnknownIdError)
