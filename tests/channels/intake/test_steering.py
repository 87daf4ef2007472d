"""Messages that a running turn may read."""

from dataclasses import replace
from typing import Any

import pytest

from channels.access import AccessPolicy, AccessRules
from channels.intake.steering import may_be_steered, may_read
from core.messages.identity import Actor, User
from core.messages.inbox_message import InboxMessage
from core.turns.turn import Turn
from tests.fixtures.inbox_messages import inbound

ADA, GRACE = User("ada", "Ada"), User("grace", "Grace")


def message(*roles: str, author: str = "ada", **values: Any) -> InboxMessage:
    return inbound(author=author, actor=Actor("test", author, roles), **values)


def turn(**values: Any) -> Turn:
    question = message("staff")
    return replace(Turn("t1", question.session_id, 1, (question,), "message", "t1"), **values)


@pytest.mark.parametrize(
    ("values", "speakers", "expected"),
    [
        ({}, [ADA], True),
        ({}, [ADA, GRACE], False),
        ({}, [GRACE], False),
        ({}, [], False),
        ({"run": "t0", "kind": "decision"}, [ADA], False),
        ({"kind": "retry", "is_resumed": True}, [ADA], True),
    ],
)
def test_only_a_run_of_one_author_is_steered(values: dict[str, Any], speakers: list[User], *, expected: bool) -> None:
    assert may_be_steered(turn(**values), speakers) is expected


@pytest.mark.parametrize(
    ("further", "expected"),
    [
        (message("staff"), True),
        (message("staff", is_addressed=False), True),
        (message(), False),
        (message("staff", "admins"), False),
        (message("banned", "staff"), False),
    ],
)
def test_a_message_with_other_rights_waits(further: InboxMessage, *, expected: bool) -> None:
    policy = AccessPolicy({"test": AccessRules(block=frozenset({"role:banned"}))}, admins={"admins"})
    assert may_read(turn(), further, policy) is expected


def test_a_turn_that_may_stay_silent_reads_only_messages_that_need_no_answer() -> None:
    silent = turn(messages=(message("staff", is_addressed=False),))
    assert not may_read(silent, message("staff"), AccessPolicy())
    assert may_read(silent, message("staff", is_addressed=False), AccessPolicy())
