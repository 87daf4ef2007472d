"""Verdict on evidence: it accepts correct evidence only."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from google.adk.events.event import Event

from channels.i18n import messages as words
from tests.chaos.evidence import Evidence, find_violations
from tests.chaos.scenario import FIRST, LONG, SECOND, SHORT, TOOLS
from tests.chaos.verdict import is_complete, judge
from tests.core.sessions.events import call_event, model_event, response_event, user_event

APOLOGY = words.ENGLISH.format_error_with_id(words.TOO_MANY_ATTEMPTS, "0123456789")


def visible_texts(platform: str) -> list[str]:
    """Return the bot's texts of a correct run: a first answer in two chunks, a second."""
    text, cut = LONG[platform], LONG[platform].index("\n\n", 500)
    return [text[:cut], text[cut + 2 :], SHORT]


CORRECT = Evidence(
    visible_texts={platform: visible_texts(platform) for platform in LONG},
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


def replace_slack_texts(slack: list[str], *, missing_answers: int = 0) -> Evidence:
    """Return correct evidence, but with these visible texts in Slack.

    Args:
        missing_answers: the number of answers that are not stored.
    """
    missing = [("slack:s", "assistant", LONG["slack"]), ("slack:s", "assistant", SHORT)][:missing_answers]
    stored = [row for row in CORRECT.stored if row not in missing]
    return replace(CORRECT, visible_texts={**CORRECT.visible_texts, "slack": slack}, stored=stored)


def test_correct_evidence_passes_with_and_without_a_crash() -> None:
    for crashed in (True, False):
        verdict = judge(CORRECT, crashed=crashed)
        assert verdict.findings == []
        assert set(verdict.outcomes.values()) == {"answered"}


def test_one_apology_passes_only_after_a_crash() -> None:
    apologized = replace_slack_texts([APOLOGY, SHORT], missing_answers=1)
    verdict = judge(apologized)
    assert verdict.findings == []
    assert verdict.outcomes["slack", FIRST] == "apology"
    assert judge(apologized, crashed=False).findings


def test_an_apology_may_follow_a_partial_answer() -> None:
    apology = words.ENGLISH.format_error_with_id("Something went wrong.", "0123456789")
    partial = f"{visible_texts('slack')[0][:700]}\n\n{apology}"
    assert judge(replace_slack_texts([partial, SHORT], missing_answers=1)).findings == []


def test_one_turn_with_one_apology_may_answer_two_messages() -> None:
    joined = replace(CORRECT, accepted=[(session, text, "1") for session, text, _turn in CORRECT.accepted])
    assert judge(joined).findings == []
    apologized = replace(replace_slack_texts([APOLOGY], missing_answers=2), accepted=joined.accepted)
    assert judge(apologized).findings == []
    assert judge(apologized).outcomes["slack", SECOND] == "apology"
    assert judge(replace_slack_texts([APOLOGY], missing_answers=2)).findings


@pytest.mark.parametrize(
    ("case", "messages"),
    [
        ("a reply that is lost", visible_texts("slack")[:2]),
        ("both lost", []),
        ("a reply that is doubled", [*visible_texts("slack"), SHORT]),
        ("a first reply that is doubled", [*visible_texts("slack")[:2], *visible_texts("slack")]),
        ("a message of it that is doubled", [visible_texts("slack")[0], *visible_texts("slack")]),
        ("a reply that is cut", [visible_texts("slack")[0], SHORT]),
        ("replies in the wrong order", [SHORT, *visible_texts("slack")[:2]]),
        ("a placeholder that is left", [*visible_texts("slack"), words.PLACEHOLDER]),
        ("an apology beside the answer", [*visible_texts("slack"), APOLOGY]),
        ("an apology before the answer", [APOLOGY, *visible_texts("slack")]),
        ("two apologies for one message", [APOLOGY, APOLOGY, SHORT]),
        ("an apology below another text", [f"Nonsense. {APOLOGY}", SHORT]),
        ("another text", ["What?", SHORT]),
    ],
)
def test_wrong_visible_messages_are_found(case: str, messages: list[str]) -> None:
    assert not is_complete("slack", messages), case
    assert any("slack: to" in finding for finding in judge(replace_slack_texts(messages)).findings), case


@pytest.mark.parametrize(
    ("finding", "create_evidence"),
    [
        ("pay is called 2 times", lambda: replace(CORRECT, tool_calls=[*CORRECT.tool_calls, ("slack:s", "pay")])),
        ("is accepted twice", lambda: replace(CORRECT, accepted=[*CORRECT.accepted, CORRECT.accepted[1]])),
        (
            "part 0 of the first an' is stored twice",
            lambda: replace(CORRECT, stored=[*CORRECT.stored, CORRECT.stored[1]]),
        ),
        (f"{SECOND!r} is stored twice", lambda: replace(CORRECT, stored=[*CORRECT.stored, CORRECT.stored[2]])),
        (
            f"the answer to {SECOND!r} is not stored",
            lambda: replace(CORRECT, stored=[*CORRECT.stored[:3], *CORRECT.stored[4:]]),
        ),
        (
            f"slack: {FIRST!r} is lost",
            lambda: replace(replace_slack_texts(visible_texts("slack")[2:]), accepted=CORRECT.accepted[1:]),
        ),
        ("a turn is running", lambda: replace(CORRECT, unfinished=["a turn is running"])),
        ("an invalid request", lambda: replace(CORRECT, violations=["an invalid request"])),
        ("a process ended with 1", lambda: replace(CORRECT, faults=["a process ended with 1"])),
    ],
)
def test_wrong_stored_rows_and_tool_calls_are_found(finding: str, create_evidence: Callable[[], Evidence]) -> None:
    assert any(finding in found for found in judge(create_evidence()).findings)


def test_an_unused_tool_is_found_without_a_crash() -> None:
    assert "mail is not called" in judge(replace(CORRECT, tool_calls=CORRECT.tool_calls[:-1]), crashed=False).findings


def test_a_valid_history_has_no_violation() -> None:
    history = [user_event("a"), call_event("1", "2"), response_event("1", "2"), model_event("b"), user_event("c")]
    assert list(find_violations(history, agent="bot")) == []
    assert list(find_violations(history, agent="another"))


@pytest.mark.parametrize(
    "history",
    [
        [model_event("b")],
        [user_event("a"), call_event("1", "2"), response_event("1"), model_event("b")],
        [user_event("a"), response_event("1"), model_event("b")],
        [user_event("a"), call_event("1"), response_event("1"), response_event("1")],
        [user_event("a"), call_event("1"), response_event("1"), call_event("1"), response_event("1")],
        [user_event("a"), response_event("1"), call_event("1")],
    ],
)
def test_an_invalid_history_has_a_violation(history: list[Event]) -> None:
    assert list(find_violations(history, agent="bot"))
