"""The twenty cases: the questions of people, and the obstacle that is injected meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any, Protocol

from chatrig.conformance.answers import Answer, create_document
from chatrig.conformance.platforms import CasePlatform
from chatrig.models import Fail, Pause, Say, Stall

_SHORT_WORDS = 12
_QUESTIONS_AT_ONCE = 10


class NotApplicableError(Exception):
    """The case does not apply to this bot or platform; the text says why."""


class CaseRun(Protocol):
    """Running case: the bot, its platform and its model.

    Attributes:
        claims_follow_up: whether the bot claims to answer in its threads without a mention.
    """

    platform: CasePlatform
    claims_follow_up: bool

    async def ask(
        self, letter: str = "", *, user: str = "ada", place: str = "general", answer: Answer | None = None
    ) -> Any:
        """Ask a question with a mention, or in the place `dm`, and return its message."""

    async def ask_follow_up(self, letter: str, question: Any) -> None:
        """Ask a question without a mention, in the conversation of an earlier one."""

    async def post_unasked(self, letter: str, place: str) -> None:
        """Post a question without a mention, which the bot must not answer."""

    def create_answer(self, letter: str = "", words: int = _SHORT_WORDS, **options: Any) -> Answer: ...

    async def wait_for_answers(self) -> None:
        """Wait until the questions so far are answered; return after a minute at the latest."""

    async def wait_for_request(self, letter: str = "") -> None:
        """Wait until the model gets a request about a question; return after a minute at the latest."""

    async def stop_bot(self, *, kill: bool) -> None:
        """Stop the bot by SIGKILL, or by SIGTERM and 30 seconds of patience."""

    async def start_bot(self) -> None:
        """Start the bot after a stop; delays of open questions count from then on."""

    def restart_clocks(self) -> None:
        """Let the delay of each question count from now on."""


@dataclass(frozen=True, slots=True)
class Case:
    """Case of the suite.

    Attributes:
        run: asks the questions and injects the obstacle.
        needs_model: whether a bot without a model cannot have the case.
        deadline_seconds: seconds after the last question or obstacle until an open answer counts as lost.
        allowed_seconds: the delay that is not late.
        settle_seconds: seconds after the last answer in which a second one would still be seen.
    """

    number: int
    name: str
    run: Callable[[CaseRun], Awaitable[None]]
    needs_model: bool = False
    deadline_seconds: float = 75.0
    allowed_seconds: float = 30.0
    settle_seconds: float = 5.0


async def _ask_in_channel(run: CaseRun) -> None:
    await run.ask()


async def _ask_in_dm(run: CaseRun) -> None:
    await run.ask(place="dm")


async def _follow_up(run: CaseRun) -> None:
    if not run.claims_follow_up:
        raise NotApplicableError("the bot does not claim to answer without a mention")
    question = await run.ask("a")
    await run.wait_for_answers()
    await run.ask_follow_up("b", question)


async def _post_without_mention(run: CaseRun) -> None:
    await run.post_unasked("a", "random")
    await run.ask("b")  # its answer proves that the bot was there


async def _long_answer(run: CaseRun) -> None:
    await run.ask(answer=run.create_answer(words=390, pieces=20))


async def _document(run: CaseRun) -> None:
    await run.ask(answer=create_document("c06"))


async def _many_deltas(run: CaseRun) -> None:
    await run.ask(answer=run.create_answer(words=200, pieces=200, pace=0.04))


async def _ten_in_one_channel(run: CaseRun) -> None:
    users = [f"user{letter}" for letter in ascii_lowercase[:_QUESTIONS_AT_ONCE]]
    for user in users:
        run.platform.simulator.add_user(user)
    await asyncio.gather(*(run.ask(letter, user=user) for letter, user in zip(ascii_lowercase, users, strict=False)))


async def _ten_channels(run: CaseRun) -> None:
    letters = ascii_lowercase[:_QUESTIONS_AT_ONCE]
    for letter in letters:
        run.platform.simulator.add_channel(f"room-{letter}")
    await asyncio.gather(*(run.ask(letter, place=f"room-{letter}") for letter in letters))


async def _limit_post(run: CaseRun) -> None:
    run.platform.add_fault("rate_limit", "post")
    await run.ask()


async def _limit_last_edit(run: CaseRun) -> None:
    gate = asyncio.Event()
    answer = run.create_answer(words=60)
    head, tail = answer.text[: len(answer.text) * 3 // 4], answer.text[len(answer.text) * 3 // 4 :]
    steps = [Say(head, pieces=10, pace=0.2), Pause(gate), Say(tail)]
    await run.ask(answer=run.create_answer(words=60, first=[steps]))
    await run.wait_for_request()
    await asyncio.sleep(5)
    run.platform.add_fault("rate_limit", "edit")
    gate.set()


async def _fail_post(run: CaseRun) -> None:
    run.platform.add_fault("fail", "post")
    await run.ask()


async def _lose_response(run: CaseRun) -> None:
    run.platform.add_fault("lose_response", "post")
    await run.ask()


async def _deliver_twice(run: CaseRun) -> None:
    question = await run.ask()
    await asyncio.sleep(1)
    if not await run.platform.redeliver(question):
        raise NotApplicableError("the platform never delivers an event twice")
    await run.wait_for_answers()
    await run.platform.redeliver(question)


async def _cut_socket(run: CaseRun) -> None:
    await run.platform.simulator.drop_sockets()
    await run.ask()


async def _freeze_socket(run: CaseRun) -> None:
    await run.platform.simulator.freeze_sockets()
    await run.ask()


async def _kill(run: CaseRun) -> None:
    await _interrupt(run, kill=True)


async def _terminate(run: CaseRun) -> None:
    await _interrupt(run, kill=False)


async def _interrupt(run: CaseRun, *, kill: bool) -> None:
    """Stop the bot in the middle of an answer, which the model goes on with a second later, and start it again."""
    gate = asyncio.Event()
    answer = run.create_answer(words=60)
    half = len(answer.text) // 2
    steps = [Say(answer.text[:half], pieces=5, pace=0.2), Pause(gate), Say(answer.text[half:])]
    await run.ask(answer=run.create_answer(words=60, first=[steps]))
    await run.wait_for_request()
    await asyncio.sleep(4)
    stop = asyncio.create_task(run.stop_bot(kill=kill))
    await asyncio.sleep(1)
    gate.set()
    await stop
    await run.start_bot()


async def _ask_while_down(run: CaseRun) -> None:
    await run.ask("a")
    await run.wait_for_answers()
    await run.stop_bot(kill=False)
    await run.ask("b")
    await run.platform.end_redeliveries()
    await run.start_bot()


async def _failing_model(run: CaseRun) -> None:
    await run.ask("a", answer=run.create_answer("a", first=[Fail(500), Fail(500)]))
    await run.wait_for_answers()
    answer = run.create_answer("b", words=60)
    stalling = [Say(answer.text[: len(answer.text) // 2], pieces=5, pace=0.2), Stall()]
    await run.ask("b", place="dm", answer=run.create_answer("b", words=60, first=[stalling]))


CASES = (
    Case(1, "one mention", _ask_in_channel),
    Case(2, "one direct message", _ask_in_dm),
    Case(3, "follow-up in the thread, without a mention", _follow_up),
    Case(4, "no mention: silence", _post_without_mention),
    Case(5, "answer of 3,000 characters", _long_answer, needs_model=True),
    Case(6, "answer of 15,000 characters with a table and code", _document, needs_model=True),
    Case(7, "streamed answer of 200 deltas", _many_deltas, needs_model=True),
    Case(8, "ten questions at once in one channel", _ten_in_one_channel, allowed_seconds=60),
    Case(9, "ten channels at once", _ten_channels, allowed_seconds=60),
    Case(10, "429 on the first post", _limit_post),
    Case(11, "429 on the last edit", _limit_last_edit, needs_model=True),
    Case(12, "500 or 502 on a post", _fail_post),
    Case(13, "response of a post lost", _lose_response),
    Case(14, "event delivered twice", _deliver_twice),
    Case(15, "socket cut before the question", _cut_socket),
    # Discord: a client sees it after up to two heartbeats of 41 s.
    Case(16, "socket frozen, no close frame", _freeze_socket, deadline_seconds=180, allowed_seconds=120),
    Case(17, "SIGKILL during the answer, restart", _kill, needs_model=True),
    Case(18, "SIGTERM during the answer, restart", _terminate, needs_model=True),
    Case(19, "asked while the bot is down, longer than any redelivery", _ask_while_down),
    Case(
        20,
        "model fails twice, then answers; stalls in the middle",
        _failing_model,
        needs_model=True,
        deadline_seconds=240,
        allowed_seconds=60,
    ),
)
