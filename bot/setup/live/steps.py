"""Steps of a live check: each makes one call, and compares the response with what the bot reads from it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.setup.live.recorder import Exchange, ExchangeRecorder
from bot.setup.probes import CheckResult, CheckVerdict
from channels.rate_limits.caller import RefusedError
from core.errors import ParleyError, SettingsError
from core.secret_redaction import describe_failure

#: Seconds that a step may take, with the waits that the platform demands (Slack: up to a minute) and retries.
STEP_SECONDS = 90.0

#: Seconds before each retry of a call that failed for a temporary reason.
PAUSES = (0.5, 2.0)

#: Seconds that the running step has to end after Ctrl-C.
INTERRUPTED_SECONDS = 15.0

_REPORT_REMEDY = "Report it with the file of `--record`"

Report = Callable[[CheckResult], None]


@dataclass(frozen=True, slots=True)
class LiveStep:
    """One step.

    Attributes:
        name: unique on a platform, such as `edit`.
        call: the platform's name of the call.
        run: makes the call.
        expected: for each dotted path in the response, the expected value, or its type.
        needs: the name of the step without which this one is not tried; empty for none.
        permission: Discord: the permission that the call needs.
    """

    name: str
    call: str
    run: Callable[[], Awaitable[object]]
    expected: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    permission: str = ""


#: Returns the remedy for an error code of a platform; empty if there is none.
FindRemedy = Callable[[LiveStep, str, Any], str]


class StepRunner:
    """Runs the steps of one platform, and reports one line for each.

    Args:
        platform: `Slack` or `Discord`.
        recorder: sees the calls of the steps.
        report: called with each result.
        find_remedy: see `FindRemedy`; called with the step, the error code and the JSON of the response.
        seconds: the time limit of each step.

    Attributes:
        recorder: see above.
        uncertain: the names of the failed steps whose calls may have taken effect.
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
        self._done = {""}
        self.uncertain: list[str] = []

    def report(self, verdict: CheckVerdict, line: str) -> None:
        self._report(CheckResult(verdict, f"{self._platform}: {line}"))

    def report_cleanup(self, place: str, marker: str, left: Sequence[str]) -> None:
        """Report the end of a check that wrote something.

        Args:
            left: descriptions of what could not be deleted.
        """
        for item in left:
            self.report(CheckVerdict.FAIL, f"not deleted: {item}. Delete it by hand")
        if self.uncertain:
            names = ", ".join(dict.fromkeys(self.uncertain))
            line = f'without an answer: {names}. If "{marker}" appears in {place} later, delete it by hand'
            self.report(CheckVerdict.NOTE, line)
        elif not left:
            self.report(CheckVerdict.OK, "everything that the check wrote is deleted")

    async def run_all(self, steps: Sequence[LiveStep]) -> None:
        """Run steps in turn; report those that are not tried, since a step that they need failed, in one line."""
        skipped = []
        for step in steps:
            if step.needs in self._done:
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
        first, line = len(self.recorder.exchanges), f"{step.name} ({step.call}): "
        fault = ""
        try:
            async with asyncio.timeout(self._seconds):
                await step.run()
        except RefusedError as error:
            fault = self._describe(step, error.code, self.recorder.exchanges[first:])
        except TimeoutError:
            self.uncertain.append(step.name)
            fault = f"no success within {self._seconds:g} s{_list_attempts(self.recorder.exchanges[first:])}. Try later"
        except SettingsError as error:
            fault = str(error)
        except ParleyError as error:
            self.uncertain.append(step.name)
            fault = f"{error}{_list_attempts(self.recorder.exchanges[first:])}. Try later"
        except Exception as error:  # a response of another shape may break any code that reads it
            self.uncertain.append(step.name)
            fault = f"the response cannot be read ({describe_failure(error)[0]}). {_REPORT_REMEDY}"
        exchanges = self.recorder.exchanges[first:]
        if not fault:
            fault = _find_difference(step.expected, exchanges[-1].response if exchanges else None)
        if fault:
            self.report(CheckVerdict.FAIL, line + fault)
            return False
        self._done.add(step.name)
        paths = ", ".join(step.expected) or "no fields"
        line += f"HTTP {exchanges[-1].status} with {paths}, as expected"
        earlier = _list_attempts([exchange for exchange in exchanges if not 0 < exchange.status < 400])
        self.report(CheckVerdict.NOTE if earlier else CheckVerdict.OK, line + earlier)
        return True

    def _describe(self, step: LiveStep, code: str, exchanges: Sequence[Exchange]) -> str:
        response = exchanges[-1].response if exchanges else None
        remedy = self._find_remedy(step, code, response)
        text = response.get("message", "") if isinstance(response, dict) else ""
        return (
            f"{self._platform} says {code}{f' ({text})' if isinstance(text, str) and text else ''}. {remedy}".rstrip()
        )


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _list_attempts(exchanges: Sequence[Exchange]) -> str:
    """Return the outcomes of calls as the end of a line; empty for no calls."""
    outcomes = [
        "no response"
        if not exchange.status
        else f"HTTP {exchange.status}" + (f" (wait {exchange.retry_after:g} s)" if exchange.status == 429 else "")
        for exchange in exchanges
    ]
    return f", after {', '.join(outcomes)}" if outcomes else ""


def _find_difference(expected: Mapping[str, Any], response: Any) -> str:
    """Return a sentence on the first difference of a response from the expected fields; empty for none."""
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
            return f"expected {path} ({named}), received {shown}. {_REPORT_REMEDY}"
    return ""
