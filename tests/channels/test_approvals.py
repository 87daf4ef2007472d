"""Calls that people decide on, on either platform, through its real client."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from channels import words
from core.approvals import OTHERS
from core.store.schema import approvals, state
from core.tools import Tool
from sandbox.models import Asked, Call, Pause, Say
from tests.channels.benches import PLATFORMS, Talk, sandbox_of, shows, talking, texts
from tests.channels.wiring import Asking

RULED = [words.APPROVE, words.ALWAYS, words.DENY]


@pytest.fixture(params=PLATFORMS)
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with sandbox_of(request.param) as made:
        yield made


class Till:
    """A tool that asks first, and what it was called with."""

    def __init__(self, **more: Any) -> None:
        self.paid: list[Any] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.tool = Tool("pay", "Pays.", self._pay, SCHEMA, confirm=True, **more)

    async def _pay(self, arguments: dict[str, Any]) -> str:
        self.paid.append(arguments["to"])
        self.begun.set()
        await self.go_on.wait()
        return f"paid {arguments['to']}"


SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}}


def asking(till: Till, *tools: Any, **more: Any) -> Asking:
    return Asking((till.tool, *tools), **more)


def pays(to: str = "Grace") -> Call:
    return Call("pay", {"to": to})


async def rows(talk: Talk) -> list[Any]:
    async with talk.bot.database.read() as connection:
        found = await connection.execute(sa.select(approvals).order_by(approvals.c.asked_at, approvals.c.id))
        return list(found.all())


async def asked(talk: Talk, count: int = 1) -> list[Any]:
    """The messages that ask, once there are so many that can be decided."""
    await talk.sandbox.wait_for(lambda: sum(words.DENY in m.buttons for m in talk.replies()) >= count)
    return [message for message in talk.replies() if words.DENY in message.buttons]


async def test_a_call_is_shown_with_its_arguments_and_made_when_it_is_approved(sandbox: Any, tmp_path: Path) -> None:
    till = Till()
    async with talking(sandbox, tmp_path, [Say("I'd pay."), pays("@everyone")], "Done.", asking=asking(till)) as talk:
        await talk.say("pay!")
        (request,) = await asked(talk)
        (turn,) = await talk.bot.settled(1)
        assert turn.state == "done"
        assert texts(talk)[0] == "I'd pay."
        assert "pay" in request.text
        assert '"to"' in request.text
        assert "@everyone" not in request.text
        assert list(request.buttons) == RULED
        assert till.paid == []
        await talk.press(words.APPROVE, user="grace")
        await talk.sandbox.wait_for(lambda: talk.whispers("grace") == [words.NOT_YOURS_TO_DECIDE])
        assert [row.decision for row in await rows(talk)] == [None]
        await talk.press(words.APPROVE)
        await shows(talk, lambda found: found[-1] == "Done.")
        await talk.bot.settled(2)
        await talk.sandbox.wait_for(lambda: not talk.replies()[1].buttons)
        assert "✅" in texts(talk)[1]
        assert till.paid == ["@everyone"]
        (row,) = await rows(talk)
        assert (row.decision, row.decided_by) == ("approved", str(talk.sandbox.people["ada"].id))
        assert [one.event_key for one in await talk.bot.inbox_rows()][1] == f"approval:{row.id}"
