from dataclasses import replace
from typing import Any

import pytest

from channels.access import DM_RULE, AccessDecision, AccessPolicy, AccessRules
from core.messages.identity import Actor, Location

HERE = Location("T1", "thread", ("C1", "cat"))
ALONE = Location("T1", "D1", is_direct=True)
GRACE = Actor("slack", "U2", workspaces=("T1",))
OUTSIDER = Actor("slack", "U9", workspaces=("T9",), is_external=True)
ROBOT = Actor("slack", "bot:B1", workspaces=("T1",))


def create_ada(*roles: str) -> Actor:
    return Actor("slack", "U1", roles=roles, workspaces=("T1",))


def create_rules(*allow: str, block: tuple[str, ...] = (), **kwargs: Any) -> AccessRules:
    return replace(AccessRules(frozenset(allow), frozenset(block)), **kwargs)


@pytest.mark.parametrize(
    ("rule", "actor", "location", "expected"),
    [
        (create_rules(), create_ada(), HERE, "ALLOWED"),
        (create_rules(), OUTSIDER, HERE, "USER_DENIED"),
        (create_rules(), ROBOT, HERE, "BOT_DENIED"),
        (create_rules(allows_external=True), OUTSIDER, HERE, "ALLOWED"),
        (create_rules(allows_bots=True), ROBOT, HERE, "ALLOWED"),
        (create_rules(block=("user:B1",), allows_bots=True), ROBOT, HERE, "USER_DENIED"),
        (create_rules("user:U1"), create_ada(), HERE, "ALLOWED"),
        (create_rules("user:U1"), GRACE, HERE, "USER_DENIED"),
        (create_rules("user:U2", "role:S1"), create_ada("S1"), HERE, "ALLOWED"),
        (create_rules("role:S1"), create_ada("S2"), HERE, "USER_DENIED"),
        (create_rules("user:U1", block=("role:S1",)), create_ada("S1"), HERE, "USER_DENIED"),
        (create_rules("channel:C1"), create_ada(), HERE, "ALLOWED"),
        (create_rules("channel:cat"), create_ada(), HERE, "ALLOWED"),
        (create_rules("channel:C2"), create_ada(), HERE, "PLACE_DENIED"),
        (create_rules("channel:C1", block=("channel:cat",)), create_ada(), HERE, "PLACE_DENIED"),
        (create_rules("channel:C1"), create_ada(), ALONE, "PLACE_DENIED"),
        (create_rules("channel:C1", DM_RULE), create_ada(), ALONE, "ALLOWED"),
        (create_rules(block=(DM_RULE,)), create_ada(), ALONE, "PLACE_DENIED"),
        (create_rules("channel:C1", "user:U1"), GRACE, HERE, "USER_DENIED"),
        (create_rules("workspace:T2"), create_ada(), HERE, "PLACE_DENIED"),
        (create_rules("workspace:T1", "workspace:T9"), OUTSIDER, HERE, "ALLOWED"),
        (create_rules("workspace:T1", "workspace:T9", block=("user:U9",)), OUTSIDER, HERE, "USER_DENIED"),
        (create_rules(block=("workspace:T9",), allows_external=True), OUTSIDER, HERE, "USER_DENIED"),
    ],
)
def test_block_beats_allow_and_an_empty_allow_list_is_open(
    rule: AccessRules, actor: Actor, location: Location, expected: str
) -> None:
    assert AccessPolicy({"slack": rule}).check(actor, location) is AccessDecision[expected]
    assert (
        AccessPolicy({"discord": create_rules("user:1")}).check(create_ada(), location) is AccessDecision.ALLOWED
    )  # another platform's rules


@pytest.mark.parametrize(
    ("actor", "location", "expected"),
    [
        (Actor("discord", "1", workspaces=("7",)), Location("7", "70"), "ALLOWED"),
        (Actor("discord", "1", workspaces=("8",)), Location("8", "80"), "PLACE_DENIED"),
        (Actor("discord", "1", workspaces=("7",)), Location("", "90", is_direct=True), "ALLOWED"),
        (Actor("discord", "1"), Location("", "90", is_direct=True), "PLACE_DENIED"),
    ],
)
def test_with_allowed_servers_dms_need_a_member_of_one(actor: Actor, location: Location, expected: str) -> None:
    assert AccessPolicy({"discord": create_rules("guild:7")}).check(actor, location) is AccessDecision[expected]


def test_the_served_servers_do_not_restrict_dms() -> None:
    policy = AccessPolicy({"discord": AccessRules(guilds=frozenset({"7"}))})
    assert policy.check(Actor("discord", "1"), Location("", "90", is_direct=True)) is AccessDecision.ALLOWED
    assert policy.check(Actor("discord", "1", workspaces=("8",)), Location("8", "80")) is AccessDecision.PLACE_DENIED
    assert (
        policy.get_rules("discord").is_workspace_allowed("7"),
        policy.get_rules("discord").is_workspace_allowed("8"),
    ) == (True, False)


@pytest.mark.parametrize("admin", ["U1", "S1"])
def test_admins_need_no_allow_rule_and_may_be_blocked(admin: str) -> None:
    open_to_grace = AccessPolicy({"slack": create_rules("user:U2", "channel:C1")}, {admin})
    assert open_to_grace.is_admin(create_ada("S1"))
    assert open_to_grace.check(create_ada("S1"), HERE) is AccessDecision.ALLOWED
    assert open_to_grace.check(create_ada("S1"), Location("T1", "C2")) is AccessDecision.PLACE_DENIED
    assert (
        AccessPolicy({"slack": create_rules(block=("user:U1",))}, {admin}).check(create_ada("S1"), HERE)
        is AccessDecision.USER_DENIED
    )
