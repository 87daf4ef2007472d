"""Measurement of one cell of the benchmark: one contender under one load."""

import asyncio
import logging
import statistics
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any

from benchmarks.replies.contenders.base import ReplyContender, RunningContender
from benchmarks.replies.floors import LIMITS, best_end_delays, min_mean_age
from benchmarks.replies.load import Load, TokenStream, TokenStreamer
from benchmarks.replies.loop import LoopMonitor
from benchmarks.replies.measure import MeasuredReply, mean_drain, measure_replies, percentile
from benchmarks.replies.platforms import PLATFORMS, CellPlatform, MeasuredPrompt

log = logging.getLogger(__name__)

#: Platform seconds after the model's last word until an unfinished reply is given up.
REPLY_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Cell:
    """Figures of one contender under one load.

    Times are platform seconds; `late`, `busiest` and `word_late` are real seconds. A floor is the least possible value:
    see `floors`. An end is the time from the model's last word to the final text.

    Attributes:
        refused: the number of rate-limited calls by API method.
        wrong: the number of final texts that are missing, cut, doubled or mixed with other text.
        age: the mean age of the shown text: see `measure.mean_age`.
        end_mean: the mean end of the replies with a final text; None if there are none.
        end_median, end_p99: percentiles of the ends of all replies; None if too many have no final text.
        drain: the used fraction of the limit for final calls (edits, stops of streams) while replies waited for it; a
            post may also end a reply. None if no reply waited.
        cpu: CPU use of the process; 1.0 is one whole core.
        late: the 99th percentile of the event loop's delay.
        busiest: the longest CPU time of the event loop without a pause.
        word_late: the mean delay of the model's words, caused by a slow machine.
        failures: the number of replies that raised an error, by its class; "not in time" for cancelled ones.
    """

    platform: str
    contender: str
    replies: int
    channels: int
    ending: str
    speed: float
    calls: int
    refused: dict[str, int]
    wrong: int
    age: float
    age_floor: float
    end_mean: float | None
    end_median: float | None
    end_p99: float | None
    end_mean_floor: float
    end_median_floor: float
    end_p99_floor: float
    drain: float | None
    cpu: float
    late: float
    busiest: float
    word_late: float
    seconds: float
    failures: dict[str, int]

    @property
    def is_saturated(self) -> bool:
        """True if the machine was too slow for the load, which distorts the figures.

        That is over 90 % CPU, or a mean delay of the words over 50 ms of platform time.
        """
        return self.cpu > 0.9 or self.word_late * self.speed > 0.05

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def measure(contender: ReplyContender, load: Load) -> Cell:
    """Run a load against a contender in a new simulator, and return the figures.

    Errors of replies are not raised, but counted in `failures`. Replies that do not end within `REPLY_TIMEOUT_SECONDS`
    after the model's last word are cancelled, and count as "not in time".
    """
    async with PLATFORMS[contender.platform](load) as platform, contender.start(platform) as running:
        model = TokenStreamer(load)
        prompts: dict[int, MeasuredPrompt] = {}
        failures: Counter[str] = Counter()
        calls_before = len(platform.list_calls())
        async with LoopMonitor() as loop:
            began = monotonic()
            streaming = asyncio.create_task(model.run(), name="model")
            answers = [
                asyncio.create_task(_answer(platform, running, stream, model, prompts, failures))
                for stream in model.streams
            ]
            await streaming
            _, unfinished = await asyncio.wait(answers, timeout=REPLY_TIMEOUT_SECONDS / load.speed)
            for task in unfinished:
                failures["not in time"] += 1
                task.cancel()
            if unfinished:
                await asyncio.wait(unfinished, timeout=5)
            ended = monotonic()
        return _create_cell(contender, load, platform, model, prompts, failures, loop, calls_before, ended - began)


async def _answer(
    platform: CellPlatform,
    running: RunningContender,
    stream: TokenStream,
    model: TokenStreamer,
    prompts: dict[int, MeasuredPrompt],
    failures: Counter[str],
) -> None:
    await asyncio.sleep(model.prompt_delay(stream))
    prompt = prompts[stream.number] = await platform.post_prompt(stream.number)
    try:
        await running.answer(prompt, stream)
    except Exception as error:  # a failed reply is counted
        failures[type(error).__name__] += 1
        log.info("reply %s failed: %s", stream.number, error)


def _create_cell(
    contender: ReplyContender,
    load: Load,
    platform: CellPlatform,
    model: TokenStreamer,
    prompts: dict[int, MeasuredPrompt],
    failures: Counter[str],
    loop: LoopMonitor,
    calls_before: int,
    seconds: float,
) -> Cell:
    speed, limits = load.speed, LIMITS[contender.platform]
    replies = measure_replies(
        [prompts[stream.number] for stream in model.streams], model.streams, platform.list_versions()
    )
    ends = [reply.wait * speed for reply in replies if reply.wait is not None]
    all_ends = ends + [float("inf")] * (load.replies - len(ends))
    end_floors = best_end_delays(load, limits)
    calls = list(platform.list_calls())[calls_before:]
    return Cell(
        platform=contender.platform,
        contender=contender.name,
        replies=load.replies,
        channels=load.channels,
        ending=load.ending,
        speed=speed,
        calls=len(calls),
        refused=dict(Counter(name for name, _, refused in calls if refused)),
        wrong=sum(reply.final is None for reply in replies),
        age=statistics.mean(reply.age for reply in replies) * speed,
        age_floor=min_mean_age(load, limits),
        end_mean=statistics.mean(ends) if ends else None,
        end_median=_none_if_infinite(percentile(all_ends, 0.5)),
        end_p99=_none_if_infinite(percentile(all_ends, 0.99)),
        end_mean_floor=statistics.mean(end_floors),
        end_median_floor=percentile(end_floors, 0.5),
        end_p99_floor=percentile(end_floors, 0.99),
        drain=_measure_drain(replies, contender.platform, speed),
        cpu=loop.cpu,
        late=loop.delay_quantile(0.99),
        busiest=loop.max_busy,
        word_late=model.summed_delay / load.replies / len(model.streams[0].tokens),
        seconds=seconds * speed,
        failures=dict(failures),
    )


def _measure_drain(replies: list[MeasuredReply], platform: str, speed: float) -> float | None:
    """Return the mean `drain` of the replies; see `Cell.drain`.

    Replies that share a limit for final calls (a workspace on Slack, a channel on Discord) are one group of the mean.

    Args:
        speed: platform seconds in a real second.
    """
    limits = LIMITS[platform]
    groups: defaultdict[int, list[MeasuredReply]] = defaultdict(list)
    for reply in replies:
        groups[reply.channel if limits.edits_by_channel else 0].append(reply)
    until = max([reply.final or reply.ended for reply in replies])
    window = limits.endings
    return mean_drain(groups, window.calls / window.seconds * speed, window.seconds / speed, until)


def _none_if_infinite(seconds: float) -> float | None:
    return None if seconds == float("inf") else seconds
