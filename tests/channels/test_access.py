from dataclasses import replace
from typing import Any

import pytest

from channels.access import DIRECT, Admission, Door, Rules
from core.identity import Actor, Location

HERE = Location("T1", "thread", ("C1", "cat"))
ALONE = Location("T1", "D1", is_direct=True)
GRACE = Actor("slack", "U2", workspaces=("T1",))
OUTSIDER = Actor("slack", "U9", workspaces=("T9",), is_external=True)
ROBOT = Actor("slack", "bot:B1", workspaces=("T1",))


def ada(*roles: str) -> Actor:
    return Actor("slack", "U1", roles=roles, workspaces=("T1",))


def rules(*allow: str, block: tuple[str, ...] = (), **more: Any) -> Rules:
    return replace(Rules(frozenset(allow), frozenset(block)), **more)


@pytest.mark.parametrize(
    ("rule", "visitor", "spot", "expected"),
    [
        (rules(), ada(), HERE, "ADMITTED"),
        (rules(), OUTSIDER, HERE, "NOT_YOU"),
        (rules(), ROBOT, HERE, "A_BOT"),
        (rules(external=True), OUTSIDER, HERE, "ADMITTED"),
        (rules(bots=True), ROBOT, HERE, "ADMITTED"),
        (rules(block=("user:B1",), bots=True), ROBOT, HERE, "NOT_YOU"),
        (rules("user:U1"), ada(), HERE, "ADMITTED"),
        (rules("user:U1"), GRACE, HERE, "NOT_YOU"),
        (rules("user:U2", "role:S1"), ada("S1"), HERE, "ADMITTED"),
        (rules("role:S1"), ada("S2"), HERE, "NOT_YOU"),
        (rules("user:U1", block=("role:S1",)), ada("S1"), HERE, "NOT_YOU"),
        (rules("channel:C1"), ada(), HERE, "ADMITTED"),
        (rules("channel:cat"), ada(), HERE, "ADMITTED"),
        (rules("channel:C2"), ada(), HERE, "NOT_HERE"),
        (rules("channel:C1", block=("channel:cat",)), ada(), HERE, "NOT_HERE"),
        (rules("channel:C1"), ada(), ALONE, "NOT_HERE"),
        (rules("channel:C1", DIRECT), ada(), ALONE, "ADMITTED"),
        (rules(block=(DIRECT,)), ada(), ALONE, "NOT_HERE"),
        (rules("channel:C1", "user:U1"), GRACE, HERE, "NOT_YOU"),
        (rules("workspace:T2"), ada(), HERE, "NOT_HERE"),
        (rules("workspace:T1", "workspace:T9"), OUTSIDER, HERE, "ADMITTED"),
        (rules("workspace:T1", "workspace:T9", block=("user:U9",)), OUTSIDER, HERE, "NOT_YOU"),
        (rules(block=("workspace:T9",), external=True), OUTSIDER, HERE, "NOT_YOU"),
    ],
)
def test_block_beats_allow_and_a_kind_of_which_none_is_named_is_open(
    rule: Rules, visitor: Actor, spot: Location, expected: str
) -> None:
    assert Door({"slack": rule}).admits(visitor, spot) is Admission[expected]
    assert Door({"discord": rules("user:1")}).admits(ada(), spot) is Admission.ADMITTED  # another platform's rules


@pytest.mark.parametrize(
    ("visitor", "spot", "expected"),
    [
        (Actor("discord", "1", workspaces=("7",)), Location("7", "70"), "ADMITTED"),
        (Actor("discord", "1", workspaces=("8",)), Location("8", "80"), "NOT_HERE"),
        (Actor("discord", "1", workspaces=("7",)), Location("", "90", is_direct=True), "ADMITTED"),
        (Actor("discord", "1"), Location("", "90", is_direct=True), "NOT_HERE"),
    ],
)
def test_where_servers_are_allowed_by_name_those_who_write_directly_must_be_in_one(
    visitor: Actor, spot: Location, expected: str
) -> None:
    assert Door({"discord": rules("guild:7")}).admits(visitor, spot) is Admission[expected]


def test_the_servers_that_are_served_say_nothing_of_direct_messages() -> None:
    door = Door({"discord": Rules(served=frozenset({"7"}))})
    assert door.admits(Actor("discord", "1"), Location("", "90", is_direct=True)) is Admission.ADMITTED
    assert door.admits(Actor("discord", "1", workspaces=("8",)), Location("8", "80")) is Admission.NOT_HERE
    assert (door.rules("discord").is_open("7"), door.rules("discord").is_open("8")) == (True, False)


@pytest.mark.parametrize("admin", ["U1", "S1"])
def test_admins_need_be_on_no_list_of_people_and_may_be_blocked_all_the_same(admin: str) -> None:
    open_to_grace = Door({"slack": rules("user:U2", "channel:C1")}, {admin})
    assert open_to_grace.is_admin(ada("S1"))
    assert open_to_grace.admits(ada("S1"), HERE) is Admission.ADMITTED
    assert open_to_grace.admits(ada("S1"), Location("T1", "C2")) is Admission.NOT_HERE
    assert Door({"slack": rules(block=("user:U1",))}, {admin}).admits(ada("S1"), HERE) is Admission.NOT_YOU
