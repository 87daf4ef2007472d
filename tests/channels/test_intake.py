import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from channels import words
from channels.channel import Surface
from channels.intake import Call, Intake
from channels.receipts import Address, Receipts
from core.again import Refused
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
        self.tried: tuple[Accepted, Inbound] | Refused = Refused.OVER
        self.pressed: list[tuple[str, str]] = []

    async def again(self, turn_id: str, *, author: str, kind: str) -> tuple[Accepted, Inbound] | Refused:
        if self.error is not None:
            raise self.error
        self.pressed.append((turn_id, author))
        return self.tried

    async def is_session(self, _session_id: str) -> bool:
        return self.is_known

    async def accept(self, inbound: Inbound) -> Accepted:
        if self.error is not None:
            raise self.error
        self.accepted.append(inbound.event_key)
        return self.becomes

    async def reset(self, _inbound: Inbound, *, is_late: bool = False) -> Sequence[Inbound] | None:
        return self.dropped


class Place:
    """An intake, and what is seen of it."""

    def __init__(self) -> None:
        self.inbox = Memory()
        self.signs: set[Any] = set()
        self.said: list[str] = []
        self.locale = ""
        self.error: SurfaceError | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        receipts = Receipts(self._add, self._remove)
        self.intake = Intake(cast(Inbox, self.inbox), receipts, lambda _: cast(Surface, self), self._locale)

    async def _add(self, address: Address) -> None:
        self.signs.add(address["message"])

    async def _remove(self, address: Address) -> None:
        self.signs.discard(address["message"])

    async def _locale(self, _message: Inbound) -> str:
        return self.locale

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


async def test_a_press_has_a_turn_tried_again_and_says_something_only_if_it_is_not(place: Place) -> None:
    place.inbox.tried = (Accepted.NEXT, MESSAGE)
    assert await place.intake.press("retry:t1", author="a", locale="") == ""
    assert (place.inbox.pressed, place.signs) == ([("t1", "a")], set())
    place.inbox.tried = (Accepted.WAITS, MESSAGE)
    assert await place.intake.press("retry:t1", author="a", locale="") == ""
    await place.intake.settle(1)
    assert place.signs == {"1"}
    for tried, word in ((Refused.NOT_THEIRS, words.NOT_YOURS), (Refused.OVER, words.OVER)):
        place.inbox.tried = tried
        assert await place.intake.press("retry:t1", author="b", locale="") == word
    place.inbox.error = StoreError("out of reach")
    assert await place.intake.press("retry:t1", author="a", locale="") == words.ENGLISH.sorry(StoreError.public)


async def test_what_is_heard_of_one_session_at_the_same_time_is_kept_in_that_order() -> None:
    place, slow = Place(), asyncio.Event()
    accept = place.inbox.accept

    async def first_is_slow(inbound: Inbound) -> Accepted:
        if inbound.event_key == "first":
            await slow.wait()
        return await accept(inbound)

    place.inbox.accept = first_is_slow  # type: ignore[method-assign]  # a database that takes its time
    calls = [Call(replace(MESSAGE, event_key=key), is_called=True) for key in ("first", "second")]
    elsewhere = Call(replace(MESSAGE, event_key="elsewhere", session_id="t"), is_called=True)
    taking = [asyncio.create_task(place.intake.take(call)) for call in (*calls, elsewhere)]
    await taking[-1]
    slow.set()
    await asyncio.gather(*taking)
    assert place.inbox.accepted == ["elsewhere", "first", "second"]
