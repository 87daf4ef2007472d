import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from channels import words
from channels.channel import Surface
from channels.intake import Call, Intake
from channels.receipts import Address, Receipts
from core.errors import StoreError, SurfaceError
from core.inbound import Inbound
from core.inbox import Accepted, Inbox

MESSAGE = Inbound(
    event_key="k", session_id="s", place="p", channel="c", address={"message": "1"}, author="a", text="hi", sent_at=1.0
)


class Memory:
    """An inbox that says what it is told to."""

    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.is_known = False
        self.becomes = Accepted.NEXT
        self.dropped: Sequence[Inbound] | None = ()
        self.error: StoreError | None = None

    async def is_session(self, _session_id: str) -> bool:
        return self.is_known

    async def accept(self, inbound: Inbound) -> Accepted:
        if self.error is not None:
            raise self.error
        self.accepted.append(inbound.event_key)
        return self.becomes

    async def reset(self, _inbound: Inbound) -> Sequence[Inbound] | None:
        return self.dropped


class Place:
    """An intake, and what is seen of it."""

    def __init__(self) -> None:
        self.inbox = Memory()
        self.signs: set[Any] = set()
        self.said: list[str] = []
        self.error: SurfaceError | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        receipts = Receipts(self._add, self._remove)
        self.intake = Intake(cast(Inbox, self.inbox), receipts, lambda _: cast(Surface, self))

    async def _add(self, address: Address) -> None:
        self.signs.add(address["message"])

    async def _remove(self, address: Address) -> None:
        self.signs.discard(address["message"])

    async def say(self, text: str) -> None:
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        self.said.append(text)

    async def take(self, *, is_called: bool = True, **about: Any) -> None:
        await self.intake.take(Call(replace(MESSAGE, **about), is_called))
        await self.intake.settle(1)


@pytest.fixture
def place() -> Place:
    return Place()


async def test_what_calls_the_bot_is_accepted_and_bears_a_sign_only_if_it_waits(place: Place) -> None:
    await place.take()
    assert (place.inbox.accepted, place.signs) == (["k"], set())
    place.inbox.becomes = Accepted.WAITS
    await place.take()
    assert place.signs == {"1"}


async def test_what_does_not_call_it_is_accepted_only_where_it_speaks(place: Place) -> None:
    await place.take(is_called=False)
    assert place.inbox.accepted == []
    place.inbox.is_known = True
    await place.take(is_called=False)
    assert place.inbox.accepted == ["k"]


async def test_a_reset_takes_the_signs_of_what_it_drops_away_and_is_confirmed_once(place: Place) -> None:
    place.inbox.becomes = Accepted.WAITS
    await place.take()
    place.inbox.dropped = [MESSAGE]
    await place.take(text="/reset")
    assert (place.signs, place.said) == (set(), [words.RESET_DONE])
    place.inbox.dropped = None
    await place.take(text="/reset")
    assert place.said == [words.RESET_DONE]


async def test_a_reset_in_passing_is_talk(place: Place) -> None:
    place.inbox.is_known = True
    await place.take(text="reset", is_called=False)
    assert (place.inbox.accepted, place.said) == (["k"], [])


async def test_a_confirmation_that_cannot_be_shown_is_told_in_the_log(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.error = SurfaceError("forbidden")
    await place.take(text="reset")
    assert "the reset cannot be confirmed: forbidden" in caplog.text


async def test_what_cannot_be_kept_is_told_to_the_adapter(place: Place) -> None:
    place.inbox.error = StoreError("out of reach")
    with pytest.raises(StoreError):
        await place.take()


async def test_settling_does_not_wait_longer_than_it_may(place: Place) -> None:
    shut = asyncio.Event()

    place.answers = shut
    async with asyncio.timeout(1):
        await place.intake.take(Call(replace(MESSAGE, text="reset"), True))
        await place.intake.settle(0.01)
    shut.set()
    await place.intake.settle(1)
