"""Steps of a live check: each makes one call, and compares the response with what the bot reads from it."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.setup.live.recorder import Exchange, ExchangeRecorder
from bot.setup.probes import CheckResult, CheckVerdict
from channels.rate_limits.retries import RefusedError
from core.errors import ParleyError, SettingsError
from core.observability.secret_redaction import describe_failure

#: Seconds that a step may take, with the waits that the platform demands (Slack: up to a minute) and retries.
STEP_SECONDS = 90.0

#: Seconds before each retry of a call that failed for a temporary reason.
PAUSES = (0.5, 2.0)

#: Seconds that the running step has to end after Ctrl-C.
INTERRUPTED_SECONDS = 15.0

#: Remedy for a response that differs from what the bot expects.
REPORT_REMEDY = "Report it with the file of `--record`"

Report = Callable[[CheckResult], None]


class StepError(ParleyError):
    """The result of a step is not as expected; the message says what to do."""


@dataclass(frozen=True, slots=True)
class LiveStep:
    """One step.

    Attributes:
        name: unique on a platform, such as `edit`.
        call: the platform's name of the call.
        expected: for each dotted path in the response, the expected value, or its type.
        needs: the names of the steps without which this one is not tried.
        repeat_code: the error code of a repeated call, which succeeded before without a response.
        permission: Discord: the permission that the call needs.
    """

    name: str
    call: str
    run: Callable[[], Awaitable[object]]
    expected: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    posts: bool = False
    repeat_code: str = ""
    permission: str = ""


#: Returns the remedy for an error code of a platform; empty if there is none.
FindRemedy = Callable[[LiveStep, str, Any], str]


class StepRunner:
    """Runs the steps of one platform, and reports one line for each.

    Attributes:
        uncertain: the names of failed steps that may have posted a message nevertheless.
    """

    def __init__(
        self,
        platform: str,
        recorder: ExchangeRecorder,
        report: Report,
        find_remedy: FindRemedy,
        *,
        seconds: float = STEP_SECONDS,
    ) -> None:
        self._platform = platform
        self.recorder = recorder
        self._report = report
        self._find_remedy = find_remedy
        self._seconds = seconds
        self._done = set[str]()
        self.uncertain: set[str] = set()

    def report(self, verdict: CheckVerdict, line: str) -> None:
        self._report(CheckResult(verdict, f"{self._platform}: {line}"))

    def report_cleanup(self, place: str, marker: str, left: Sequence[str]) -> None:
        """Report the end of a check that wrote something, and what is `left` of it."""
        for item in left:
            self.report(CheckVerdict.FAIL, f"not deleted: {item}. Delete it by hand")
        if self.uncertain:
            names = " and ".join(sorted(self.uncertain))
            line = f'{names} may still take effect: if "{marker}" appears in {place}, delete it by hand'
            self.report(CheckVerdict.NOTE, line)
        elif not left:
            self.report(CheckVerdict.OK, "everything that the check wrote is deleted")

    async def run_all(self, steps: Sequence[LiveStep]) -> None:
        """Run steps in turn; report those that are not tried, since a step that they need failed, in one line."""
        skipped = []
        for step in steps:
            if self._done.issuperset(step.needs):
                await self.run(step)
            else:
                skipped.append(step.name)
        if skipped:
            self.report(CheckVerdict.NOTE, f"not tried after this failure: {', '.join(skipped)}")

    async def run(self, step: LiveStep) -> bool:
        """Run a step and report its result; return whether it succeeded.

        After a cancellation, the call has `INTERRUPTED_SECONDS` to end, so that its effect is known.
        """
        running = asyncio.create_task(self._run(step), name=step.name)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running], timeout=INTERRUPTED_SECONDS)
            await _cancel(running)
            raise

    async def _run(self, step: LiveStep) -> bool:
        first = len(self.recorder.exchanges)
        fault = ""
        is_unknown = False
        try:
            async with asyncio.timeout(self._seconds):
                await step.run()
        except RefusedError as error:
            if error.code != step.repeat_code or not _list_failures(self.recorder.exchanges[first:]):
                fault = self._describe_refusal(step, error.code)
        except (StepError, SettingsError) as error:
            fault = str(error)
        except TimeoutError:
            fault = f"no success within {self._seconds:g} s"
            is_unknown = True
        except ParleyError as error:
            fault = str(error)
            is_unknown = True
        except Exception as error:  # a response of another shape may break any code that reads it
            fault = f"the response cannot be read ({describe_failure(error)[0]}). {REPORT_REMEDY}"
            is_unknown = True
        exchanges = self.recorder.exchanges[first:]
        failures = _list_failures(exchanges)
        if is_unknown:
            fault += f"{failures}. Try again later"
            if step.posts:
                self.uncertain.add(step.name)
        if fault := fault or _compare(step, exchanges):
            self.report(CheckVerdict.FAIL, f"{step.name} ({step.call}): {fault}")
            return False
        self._done.add(step.name)
        fields = f" with {', '.join(step.expected)}" if step.expected else ""
        line = f"{step.name} ({step.call}): HTTP {exchanges[-1].status}{fields}, as expected{failures}"
        self.report(CheckVerdict.NOTE if failures else CheckVerdict.OK, line)
        return True

    def _describe_refusal(self, step: LiveStep, code: str) -> str:
        response = self.recorder.exchanges[-1].response
        text = response.get("message") if isinstance(response, dict) else None
        named = f"{code} ({text})" if isinstance(text, str) else code
        return f"{self._platform} says {named}. {self._find_remedy(step, code, response)}"


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _list_failures(exchanges: Sequence[Exchange]) -> str:
    counts = Counter(filter(None, (exchange.describe_failure() for exchange in exchanges)))
    named = [f"{failure} {f'({count} times)' if count > 1 else ''}".rstrip() for failure, count in counts.items()]
    return f", after {', '.join(named)}" if named else ""


def _compare(step: LiveStep, exchanges: Sequence[Exchange]) -> str:
    """Compare the last response to the call of a step; it has none if a look-up found the effect."""
    own = [exchange for exchange in exchanges if exchange.call == re.sub(r"{\w+}", "{}", step.call)]
    answered = [exchange for exchange in own or exchanges if 0 < exchange.status < 300]
    return _find_difference(step.expected, answered[-1].response) if answered else ""


def _find_difference(expected: Mapping[str, Any], response: Any) -> str:
    for path, wanted in expected.items():
        value = response
        for name in path.split("."):
            if isinstance(value, list) and name.isdigit():
                value = value[int(name)] if int(name) < len(value) else None
            else:
                value = value.get(name) if isinstance(value, dict) else None
        if not (isinstance(value, wanted) if isinstance(wanted, type) else value == wanted):
            named = wanted.__name__ if isinstance(wanted, type) else repr(wanted)
            shown = "nothing" if value is None else repr(value)[:80]
            return f"expected {path} ({named}), received {shown}. {REPORT_REMEDY}"
    return ""
