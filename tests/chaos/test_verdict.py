"""The verdict accepts correct evidence only."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from google.adk.events.event import Event

from channels.i18n import messages as words
from tests.chaos.evidence import Evidence, find_violations
from tests.chaos.scenario import FIRST, LONG, SECOND, SHORT, TOOLS
from tests.chaos.verdict import is_complete, judge
from tests.core.sessions.events import answered, called, replied, said

APOLOGY = words.ENGLISH.format_error_with_id(words.TOO_MANY_ATTEMPTS, "0123456789")


def shown(platform: str) -> list[str]:
    """Return a first answer of two chunks, and the second answer."""
    text, cut = LONG[platform], LONG[platform].index("\n\n", 500)
    return [text[:cut], text[cut + 2 :], SHORT]


WELL = Evidence(
    shown={platform: shown(platform) for platform in LONG},
    tool_calls=[(f"{platform}:s", tool) for platform in LONG for tool in TOOLS],
    accepted=[
        (f"{platform}:s", text, turn)
        for platform in LONG
        for text, turn in ((f"{FIRST} on {platform}", "1"), (SECOND, "2"))
    ],
    stored=[
        (f"{platform}:s", role, text)
        for platform in LONG
        for role, text in (
            ("user", f"Ada: {FIRST} on {platform}"),
            ("assistant", LONG[platform]),
            ("user", f"Ada: {SECOND}"),
            ("assistant", SHORT),
        )
    ],
)


def showing(slack: list[str], *, without: int = 0) -> Evidence:
    """Return evidence with other Slack messages; `without`: the number of unstored answers."""
    gone = [("slack:s", "assistant", LONG["slack"]), ("slack:s", "assistant", SHORT)][:without]
    stored = [row for row in WELL.stored if row not in gone]
    return replace(WELL, shown={**WELL.shown, "slack": slack}, stored=stored)


def test_correct_evidence_passes_with_and_without_a_crash() -> None:
    for crashed in (True, False):
        verdict = judge(WELL, crashed=crashed)
        assert verdict.findings == []
        assert set(verdict.outcomes.values()) == {"answered"}


def test_one_apology_passes_only_after_a_crash() -> None:
    sorry = showing([APOLOGY, SHORT], without=1)
    verdict = judge(sorry)
    assert verdict.findings == []
    assert verdict.outcomes["slack", FIRST] == "apology"
    assert judge(sorry, crashed=False).findings


def test_an_apology_may_follow_a_partial_answer_() -> None:
    begun = f"{shown('slack')[0][:700]}\n\n{words.ENGLISH.format_error_with_id('Something went wrong.', '0123456789')}"
    assert judge(showing([begun, SHORT], without=1)).findings == []


def test_one_turn_with_one_apology_may_answer_two_messages() -> None:
    together = replace(WELL, accepted=[(session, text, "1") for session, text, _turn in WELL.accepted])
    assert judge(together).findings == []
    sorry = replace(showing([APOLOGY], without=2), accepted=together.accepted)
    assert judge(sorry).findings == []
    assert judge(sorry).outcomes["slack", SECOND] == "apology"
    assert judge(showing([APOLOGY], without=2)).findings


@pytest.mark.parametrize(
    ("what", "messages"),
    [
        ("a reply that is lost", shown("slack")[:2]),
        ("both lost", []),
        ("a reply that is doubled", [*shown("slack"), SHORT]),
        ("a first reply that is doubled", [*shown("slack")[:2], *shown("slack")]),
        ("a message of it that is doubled", [shown("slack")[0], *shown("slack")]),
        ("a reply that is cut", [shown("slack")[0], SHORT]),
        ("replies in the wrong order", [SHORT, *shown("slack")[:2]]),
        ("a placeholder that is left", [*shown("slack"), words.PLACEHOLDER]),
        ("an apology beside the answer", [*shown("slack"), APOLOGY]),
        ("an apology before the answer", [APOLOGY, *shown("slack")]),
        ("two apologies for one message", [APOLOGY, APOLOGY, SHORT]),
        ("an apology below what the model never said", [f"Nonsense. {APOLOGY}", SHORT]),
        ("another text", ["What?", SHORT]),
    ],
)
def test_wrong_visible_messages_are_found(what: str, messages: list[str]) -> None:
    assert not is_complete("slack", messages), what
    assert any("slack: to" in finding for finding in judge(showing(messages)).findings), what


@pytest.mark.parametrize(
    ("finding", "spoilt"),
    [
        ("pay is used 2 times", lambda: replace(WELL, tool_calls=[*WELL.tool_calls, ("slack:s", "pay")])),
        ("is accepted twice", lambda: replace(WELL, accepted=[*WELL.accepted, WELL.accepted[1]])),
        (
            "to be said in part 0 of ' is stored twice",
            lambda: replace(WELL, stored=[*WELL.stored, WELL.stored[1]]),
        ),
        (f"{SECOND!r} is stored twice", lambda: replace(WELL, stored=[*WELL.stored, WELL.stored[2]])),
        (f"the answer to {SECOND!r} is not stored", lambda: replace(WELL, stored=[*WELL.stored[:3], *WELL.stored[4:]])),
        (f"slack: {FIRST!r} is lost", lambda: replace(showing(shown("slack")[2:]), accepted=WELL.accepted[1:])),
        ("a turn is running", lambda: replace(WELL, unfinished=["a turn is running"])),
        ("no model takes it", lambda: replace(WELL, violations=["no model takes it"])),
        ("a process ended with 1", lambda: replace(WELL, exit_codes=["a process ended with 1"])),
    ],
)
def test_wrong_stored_rows_and_tool_calls_are_found(finding: str, spoilt: Callable[[], Evidence]) -> None:
    assert any(finding in found for found in judge(spoilt()).findings)


def test_an_unused_tool_is_found_without_a_crash() -> None:
    assert "mail is not used" in judge(replace(WELL, tool_calls=WELL.tool_calls[:-1]), crashed=False).findings


def test_a_valid_history_has_no_violation() -> None:
    history = [said("a"), called("1", "2"), answered("1", "2"), replied("b"), said("c")]
    assert list(find_violations(history, agent="bot")) == []
    assert list(find_violations(history, agent="another"))


@pytest.mark.parametrize(
    "history",
    [
        [replied("b")],
        [said("a"), called("1", "2"), answered("1"), replied("b")],
        [said("a"), answered("1"), replied("b")],
        [said("a"), called("1"), answered("1"), answered("1")],
        [said("a"), called("1"), answered("1"), called("1"), answered("1")],
        [said("a"), answered("1"), called("1")],
    ],
)
def test_an_invalid_history_has_a_violation(history: list[Event]) -> None:
    assert list(find_violations(history, agent="bot"))
