"""Runs of the cases: each has a fresh bot, platform, model and folder, and is repeated unless its verdict is `ok`."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from chatrig.conformance.answers import Answer, ScriptedAnswers, number_words
from chatrig.conformance.cases import CASES, Case, NotApplicableError
from chatrig.conformance.platforms import CasePlatform, PlatformName, create_platform
from chatrig.conformance.transcripts import write_transcript
from chatrig.conformance.verdicts import (
    FAILURES,
    Outcome,
    Question,
    Verdict,
    find_missing,
    judge,
    list_visible,
    merge_runs,
)
from chatrig.testing.process import Bot, BotError

RUNS = 3

#: Limit of a wait for an answer or a request that only prepares a case.
_PREPARATION_SECONDS = 60.0
_CONNECT_SECONDS = 60.0
_STOP_SECONDS = 30.0
#: Pause after the connection: a bot may not be ready as soon as its socket is.
_READY_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class BotCommand:
    """Command of a bot under test, and its surroundings.

    Attributes:
        command: the program and its arguments.
        env: further variables; `{folder}` is the new folder of a run, which survives restarts of the bot.
        is_echo: whether the bot repeats the words of a question and needs no model.
        claims_follow_up: whether it claims to answer in its threads without a mention.
        user: the system user that runs it; None for that of this process.
    """

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    is_echo: bool = False
    claims_follow_up: bool = False
    user: str | None = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Verdict on a case, with those of its runs and what people saw in each of them."""

    case: Case
    platform: PlatformName
    verdict: Verdict
    runs: Sequence[Verdict]
    transcripts: Sequence[str]


class RunningCase:
    """One run of a case: see `cases.CaseRun`."""

    def __init__(
        self, case: Case, bot_command: BotCommand, platform: CasePlatform, answers: ScriptedAnswers, folder: Path
    ) -> None:
        self.platform = platform
        self.claims_follow_up = bot_command.claims_follow_up
        self.questions: list[Question] = []
        self.log: list[tuple[float, str]] = []
        self._case = case
        self._is_echo = bot_command.is_echo
        self._answers = answers
        self.bot = Bot(
            *_create_command(bot_command),
            platforms=[platform.simulator],
            env={
                **answers.env,
                **{name: value.replace("{folder}", str(folder)) for name, value in bot_command.env.items()},
            },
            connect_seconds=_CONNECT_SECONDS,
        )

    async def start_bot(self) -> None:
        await self.bot.start()
        self._note("the bot is connected")
        self.restart_clocks()

    async def stop_bot(self, *, kill: bool) -> None:
        self._note("SIGKILL" if kill else "SIGTERM")
        await (self.bot.kill() if kill else self.bot.stop(_STOP_SECONDS))
        self._note(f"the bot has ended with exit code {self.bot.exit_code}")

    async def ask(
        self, letter: str = "", *, user: str = "ada", place: str = "general", answer: Answer | None = None
    ) -> Any:
        key, text, words = self._prepare(letter, answer)
        message = await self.platform.post(user, place, text)
        self.questions.append(self.platform.create_question(key, words, message))
        return message

    async def ask_follow_up(self, letter: str, question: Any) -> None:
        key, text, words = self._prepare(letter, None)
        message = await self.platform.post_follow_up("ada", question, text)
        self.questions.append(self.platform.create_question(key, words, message))

    async def post_unasked(self, letter: str, place: str) -> None:
        key, text, _ = self._prepare(letter, None)
        message = await self.platform.post("ada", place, text, mention=False)
        self.questions.append(self.platform.create_question(key, 0, message))

    def create_answer(self, letter: str = "", words: int = 12, **options: Any) -> Answer:
        return Answer(number_words(self._get_key(letter), words), words, **options)

    async def wait_for_answers(self) -> None:
        await self._wait_until_complete(monotonic() + _PREPARATION_SECONDS)

    async def wait_for_request(self, letter: str = "") -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._answers.requested[self._get_key(letter)].wait(), _PREPARATION_SECONDS)

    def restart_clocks(self) -> None:
        for key in find_missing(self.questions, list_visible(self.platform.versions)):
            next(question for question in self.questions if question.key == key).due = monotonic()

    async def run(self) -> Verdict:
        """Run the case with a bot that is started and stopped, and return the verdict."""
        try:
            await self.start_bot()
            await asyncio.sleep(_READY_SECONDS)
            await self._case.run(self)
            await self._settle()
        except NotApplicableError as reason:
            return Verdict(Outcome.NOT_APPLICABLE, str(reason))
        except BotError as error:
            return Verdict(Outcome.LOST, str(error))
        finally:
            await self.bot.stop(0)
        verdicts = [
            judge(question, self.platform.versions, allowed_seconds=self._case.allowed_seconds)
            for question in self.questions
        ]
        worst = max(verdicts, key=lambda verdict: (verdict.severity, verdict.seconds or 0))
        if worst.outcome is Outcome.OK and self.platform.has_pending_fault:
            return Verdict(Outcome.NOT_APPLICABLE, "the bot made no such call")
        if worst.outcome is Outcome.OK or len(verdicts) == 1:
            return worst
        count = sum(verdict.outcome is worst.outcome for verdict in verdicts)
        return Verdict(worst.outcome, f"{count} of {len(verdicts)} questions: {worst.note}", worst.seconds)

    def _get_key(self, letter: str) -> str:
        return f"c{self._case.number:02}{letter}"

    def _prepare(self, letter: str, answer: Answer | None) -> tuple[str, str, int]:
        """Add the answer to a question to the model; return the key, the text and the number of words."""
        key = self._get_key(letter)
        answer = answer or self.create_answer(letter)
        self._answers.add(key, answer)
        return key, f"Question {key}: {answer.text if self._is_echo else 'please answer.'}", answer.words

    async def _settle(self) -> None:
        """Wait until all is answered or the deadline is over, and then for a second answer."""
        await self._wait_until_complete(max(question.due for question in self.questions) + self._case.deadline_seconds)
        await self.platform.wait_for_acknowledgements()
        await asyncio.sleep(self._case.settle_seconds)

    async def _wait_until_complete(self, deadline: float) -> None:
        with suppress(TimeoutError):
            await self.platform.simulator.wait_for(
                lambda: not find_missing(self.questions, list_visible(self.platform.versions)),
                timeout=max(deadline - monotonic(), 0),
            )

    def _note(self, text: str) -> None:
        self.log.append((monotonic(), text))


async def run_suite(
    bot_command: BotCommand,
    platforms: Sequence[PlatformName],
    numbers: Iterable[int],
    *,
    jobs: int,
    report: Callable[[CaseResult], None],
) -> list[CaseResult]:
    """Start the bot once on each platform, and run cases, some at a time.

    Args:
        numbers: the numbers of the cases.
        report: called with each result.

    Returns:
        The results, ordered by platform and case.

    Raises:
        BotError: the bot does not start or connect.
    """
    chosen = [(case, platform) for platform in platforms for case in CASES if case.number in set(numbers)]
    limit = asyncio.Semaphore(jobs)

    async def run_one(case: Case, platform: PlatformName) -> CaseResult:
        result = await run_case(case, platform, bot_command, limit)
        report(result)
        return result

    for platform in platforms:
        await _check_start(platform, bot_command)
    results = await asyncio.gather(*(run_one(*pair) for pair in chosen))
    return sorted(results, key=lambda result: (platforms.index(result.platform), result.case.number))


async def run_case(case: Case, platform: PlatformName, bot_command: BotCommand, limit: asyncio.Semaphore) -> CaseResult:
    """Run a case, and twice more if its verdict is not `ok`."""
    if case.needs_model and bot_command.is_echo:
        verdict = Verdict(Outcome.NOT_APPLICABLE, "the bot has no model")
        return CaseResult(case, platform, verdict, [verdict], [""])

    async def run_limited() -> tuple[Verdict, str]:
        async with limit:
            return await _run_once(case, platform, bot_command)

    runs = [await run_limited()]
    if runs[0][0].outcome not in (Outcome.OK, Outcome.NOT_APPLICABLE):
        runs += await asyncio.gather(*(run_limited() for _ in range(RUNS - 1)))
    verdicts = [verdict for verdict, _ in runs]
    return CaseResult(case, platform, merge_runs(verdicts), verdicts, [transcript for _, transcript in runs])


async def _check_start(name: PlatformName, bot_command: BotCommand) -> None:
    async with create_platform(name) as platform, ScriptedAnswers() as answers, _create_folder(bot_command) as folder:
        run = RunningCase(CASES[0], bot_command, platform, answers, folder)
        async with run.bot:
            pass


async def _run_once(case: Case, name: PlatformName, bot_command: BotCommand) -> tuple[Verdict, str]:
    async with create_platform(name) as platform, ScriptedAnswers() as answers, _create_folder(bot_command) as folder:
        run = RunningCase(case, bot_command, platform, answers, folder)
        started_at = monotonic()
        verdict = await run.run()
        note = f" ({verdict.note})" if verdict.note else ""
        title = f"{name} {case.number}, {case.name}: {verdict}{note}"
        transcript = write_transcript(title, platform, log=run.log, output=run.bot.output, started_at=started_at)
        return verdict, transcript


def _create_command(bot_command: BotCommand) -> Sequence[str]:
    """Return the command of a bot, as a user without rights if it has one."""
    if bot_command.user is None:
        return bot_command.command
    ids = [f"--reuid={bot_command.user}", f"--regid={find_group(bot_command.user)}", "--clear-groups"]
    return ["setpriv", *ids, "--no-new-privs", "--", *bot_command.command]


def find_group(user: str) -> int | None:
    """Return the id of the main group of a system user; None if there is no such user."""
    import pwd  # noqa: PLC0415 - not on Windows

    try:
        return pwd.getpwnam(user).pw_gid
    except KeyError:
        return None


@asynccontextmanager
async def _create_folder(bot_command: BotCommand) -> AsyncIterator[Path]:
    """Yield a new folder that belongs to the user of the bot, and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="chatrig-"))
    try:
        if bot_command.user is not None:
            shutil.chown(folder, bot_command.user)
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def has_failed(results: Iterable[CaseResult]) -> bool:
    """Return whether an answer was lost, doubled or cut."""
    return any(result.verdict.outcome in FAILURES for result in results)
