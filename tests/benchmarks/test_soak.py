from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from benchmarks.soak import run
from benchmarks.soak.outcome import Outcome, build_outcome
from benchmarks.soak.report import faults, table
from benchmarks.soak.run import SoakConfig
from benchmarks.soak.script import (
    CheckingModel,
    SessionVerdict,
    find_history_fault,
    find_names,
    find_out_of_order,
    get_answer_text,
    is_late,
    judge,
)
from benchmarks.soak.sessions import DiscordSoakPlatform, SlackSoakPlatform, SoakBotMessage, count_unfinished
from benchmarks.soak.users import UserSession
from channels.base import ContextMessage
from channels.i18n.messages import STOP
from channels.intake.context import build_context_quotes
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from core.sessions.prompt_text import build_quote
from tests.fixtures.inbox_messages import inbound

NAMES = ("s1-0", "s1-1", "s1-2")


class SilentPlace:
    """Place of a session in which nothing happens."""

    async def post_message(self, text: str, files: Mapping[str, str] | None = None) -> None: ...

    async def edit_message(self, message: object, text: str) -> None: ...

    def list_bot_messages(self) -> list[SoakBotMessage]:
        return []


def join_chunks(*answers: str) -> str:
    """Return answers as joined text with line breaks, as after a split into chunks."""
    return "\n".join(answers).replace("w1", "\nw1")


def test_single_answers_in_order_are_correct() -> None:
    assert judge(NAMES, join_chunks(get_answer_text(["s1-0"]), get_answer_text(["s1-1", "s1-2"]))) == SessionVerdict(
        2, (), (), (), ()
    )


def test_no_answer_means_lost_and_two_answers_mean_doubled() -> None:
    verdict = judge(NAMES, join_chunks(get_answer_text(["s1-0"]), get_answer_text(["s1-2"]), get_answer_text(["s1-2"])))
    assert (verdict.lost, verdict.doubled) == (("s1-1",), ("s1-2",))


def test_an_answer_before_the_answer_of_an_older_message_is_out_of_order() -> None:
    verdict = judge(NAMES[:2], join_chunks(get_answer_text(["s1-1"]), get_answer_text(["s1-0"])))
    assert verdict.out_of_order == (("s1-0", "s1-1"),)


def test_a_message_received_after_a_newer_turn_began_is_late() -> None:
    verdict = judge(NAMES[:2], join_chunks(get_answer_text(["s1-1"]), get_answer_text(["s1-0"])))
    (pair,) = verdict.out_of_order
    assert is_late(pair, {"s1-0": 3.0}, {"s1-1": 2.0})
    assert not is_late(pair, {"s1-0": 1.0}, {"s1-1": 2.0})
    assert not is_late(pair, {}, {"s1-1": 2.0})
    session = UserSession(1, "slack", SilentPlace(), list(NAMES[:2]))
    outcome = Outcome(1, 1.0, [(session, verdict)], frozenset(), frozenset(), [], 0, 0, Counter())
    assert faults(outcome) == ["slack s1: out of order: s1-0 after s1-1"]
    outcome = replace(outcome, late=frozenset(["s1-0"]))
    assert faults(outcome) == []
    assert "| sessions out of order | 0 |\n| delivered late | 1 |" in table(outcome)


@pytest.mark.parametrize(
    "text",
    [
        get_answer_text(["s1-0"])[:-9],
        get_answer_text(["s1-0"]) + "_Thinking_",
        "«s1-0» other «end»",
        get_answer_text(["s1-0"]) + get_answer_text(["s2-0"]),
    ],
)
def test_cut_and_additional_texts_are_wrong(text: str) -> None:
    assert len(judge(NAMES[:1], text).wrong) == 1


async def test_replies_outside_sessions_and_unfinished_replies_are_found() -> None:
    async with SlackSimulator() as slack, DiscordSimulator() as discord:
        in_slack, in_discord = SlackSoakPlatform(slack), DiscordSoakPlatform(discord)
        channel, thread = in_discord.create_place(1), in_slack.create_place(0)
        sessions = [UserSession(0, "slack", thread), UserSession(1, "discord", channel)]
        root = await thread.post_message("hello")
        caller = AsyncWebClient(slack.bot_token, base_url=slack.api_url)
        stop = {"type": "button", "action_id": "stop", "text": {"type": "plain_text", "text": STOP}}
        blocks = [{"type": "actions", "elements": [stop]}]
        channel_id, text = thread.channel.id, get_answer_text(["s0-0"])
        await caller.chat_postMessage(channel=channel_id, text=text, thread_ts=root.ts, blocks=blocks)

        def count_faults() -> tuple[int, int]:
            outcome = build_outcome(
                1,
                1.0,
                sessions,
                [in_slack, in_discord],
                CheckingModel(),
                set(),
                {},
                unexpected_exits=0,
                unfinished_work=0,
                counts=Counter(),
            )
            assert ("1 bot messages outside all sessions" in faults(outcome)) == bool(outcome.orphan_count)
            return outcome.orphan_count, count_unfinished(thread)

        assert count_faults() == (0, 1)
        await caller.chat_postMessage(channel=channel_id, text=text)
        assert count_faults() == (1, 1)


def test_a_valid_history_has_each_prompt_once_with_its_answer() -> None:
    well = [("user", "Ada: s1-0"), ("assistant", get_answer_text(["s1-0"])), ("user", "Ada: s1-1\n\nAda: s1-2")]
    assert find_history_fault(well) == ""
    assert find_history_fault([("user", build_quote("A summary", ["| They spoke of s1-0."])), *well]) == ""
    assert find_history_fault([("user", build_quote("What was said", ["| They spoke of s1-0."]))]) == ""
    assert find_history_fault([*well, well[-1]])
    assert find_history_fault([])
    assert find_history_fault([well[0], ("assistant", "no"), well[2]])
    assert find_out_of_order(["s1-1", "s1-2", "s1-0"]) == (("s1-0", "s1-1"), ("s1-0", "s1-2"))


async def test_a_context_message_is_not_a_prompt() -> None:
    async def count(text: str) -> int:
        return len(text)

    prompt, before = inbound("s1-1"), ContextMessage("ada", "Ada", "s1-0", sent_at=0.0)
    built = await build_context_quotes([prompt], [before], {"ada": "Ada"}, count=count, max_tokens=1_000)
    frames = built.quotes
    (build_quote,) = frames[prompt.event_key]
    assert "s1-0" in build_quote
    assert find_names(f"{build_quote}\n\nAda: s1-1") == ["s1-1"]


def test_messages_that_no_bot_received_are_counted_separately() -> None:
    verdict = judge(NAMES, "")
    session = UserSession(1, "discord", SilentPlace(), list(NAMES))
    outcome = Outcome(
        1, 1.0, [(session, verdict)], frozenset(NAMES[:2]), frozenset(), [], 0, 0, Counter({"kill -9": 1})
    )
    assert faults(outcome) == [
        "discord s1: lost: s1-2",
        "discord s1: not received: s1-0",
        "discord s1: not received: s1-1",
    ]
    assert "| not received | 2 |" in table(outcome)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("python")
async def test_a_soak_with_faults_loses_doubles_and_cuts_no_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PAUSE_SECONDS", (1.0, 1.5))  # on an overloaded machine a faster message may be overtaken
    outcome = await run.run_soak(
        SoakConfig(messages=80, sessions=20, concurrent_users=6, messages_per_fault=12), tmp_path
    )
    assert faults(outcome) == []
    assert outcome.counts.total() >= 2
