"""Rules that select the agent of a session."""

import pytest

from core.sessions.agent_routing import AgentProfile, AgentRouter

MODELS = ("one",)
DESK, LAW = AgentProfile("desk", MODELS), AgentProfile("law", MODELS, selectable_at=frozenset({"dm"}))
OPEN = AgentProfile("open", MODELS, "For all.", selectable_at=None)
ALL = AgentRouter("desk", {one.name: one for one in (DESK, LAW, OPEN)}, {"C1": "law", "T1": "open", "dm": "open"})


@pytest.mark.parametrize(
    ("places", "name"),
    [(("C1", "T1"), "law"), (("C2", "T1"), "open"), (("C2", "T2"), "desk"), (("D1", "dm", "T2"), "open"), ((), "desk")],
)
def test_the_narrowest_rule_selects_the_agent_and_the_default_is_last(places: tuple[str, ...], name: str) -> None:
    assert ALL.get_agent_at(places) == ALL.resolve_agent(None, places) == name


@pytest.mark.parametrize(
    ("chosen", "places", "name"),
    [
        ("open", ("C1", "T1"), "open"),
        ("law", ("D1", "dm"), "law"),
        ("law", ("C2", "T1"), "open"),
        ("desk", ("C1", "T1"), "law"),
        ("gone", ("C1", "T1"), "law"),
    ],
)
def test_a_chosen_agent_answers_while_it_is_selectable_there(chosen: str, places: tuple[str, ...], name: str) -> None:
    assert ALL.resolve_agent(chosen, places) == name


def test_a_place_lists_its_agent_first_then_the_selectable_ones() -> None:
    assert ALL.list_selectable(("C9", "T9")) == ["desk", "open"]
    assert ALL.list_selectable(("D1", "dm")) == ["open", "law"]
    assert ALL.get_description("open") == "For all."
    assert ALL.get_description("../open") == ""
