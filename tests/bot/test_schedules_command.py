"""Command of operators for schedules."""

import asyncio
import json
from dataclasses import replace

from typer.testing import CliRunner

from bot.cli.main import cli
from bot.cli.operations import UnknownIdError
from core.sessions.lifecycle import new_session_row
from core.store.database import Database
from core.store.migrate import migrate
from core.store.schema import sessions
from core.store.upsert import insert_or_ignore
from core.turns.automation.schedules import Schedule, ScheduleStore
from tests.fixtures.inbox_messages import inbound


async def create_schedule(url: str) -> None:
    database = Database(url)
    await migrate(database)
    message = replace(inbound("water the plants", author="U1"), address={"speaker": "Ada"})
    async with database.write() as connection:
        await insert_or_ignore(connection, sessions, new_session_row(message.session_id, "app", message.place))
    schedule = Schedule(
        "1a2b3c4d5e", message, True, False, "2030-01-01T09:00", "UTC", "FREQ=DAILY", None, "active", (), "t", 1.0
    )
    await ScheduleStore(database, wake=lambda: None).create(schedule, 1)
    await database.aclose()


def test_operators_list_and_delete_schedules(command_database: str) -> None:
    asyncio.run(create_schedule(command_database))
    runner = CliRunner()
    (listed,) = json.loads(runner.invoke(cli, ["schedules", "--json"]).output)
    assert (listed["id"], listed["user"], listed["text"]) == ("1a2b3c4d5e", "U1", "water the plants")
    assert (listed["next_at"], listed["rule"], listed["state"]) == ("2030-01-01T09:00:00Z", "FREQ=DAILY", "active")
    assert "water the plants" in runner.invoke(cli, ["schedules"], env={"COLUMNS": "200"}).output
    assert "deleted the schedule 1a2b3c4d5e" in runner.invoke(cli, ["schedules", "--delete", "1a2b3c4d5e"]).output
    assert json.loads(runner.invoke(cli, ["schedules", "--json"]).output) == []
    assert isinstance(runner.invoke(cli, ["schedules", "--delete", "1a2b3c4d5e"]).exception, UnknownIdError)
