import pytest

from benchmarks.replies.cell import measure
from benchmarks.replies.contenders import nanobot, slack_runner
from benchmarks.replies.contenders.base import ReplyContender
from benchmarks.replies.contenders.parley import NAME
from benchmarks.replies.contenders.registry import CONTENDERS
from benchmarks.replies.floors import LIMITS, LimitWindow
from benchmarks.replies.load import Ending, Load
from chatrig.slack.api import limits

#: Speed for a test: the figures then depend on this machine.
QUICK_SPEED = 40.0

#: Contenders that cut a text that is too long for one message.
CUT = {("Chat SDK's policy", "discord"), (slack_runner.NAME, "slack")}


@pytest.mark.parametrize(
    "contender",
    [contender for contender in CONTENDERS if contender.name != nanobot.NAME],
    ids=lambda one: f"{one.name} on {one.platform}",
)
async def test_each_contender_that_does_not_cut_text_shows_a_single_reply_completely(contender: ReplyContender) -> None:
    cell = await measure(contender, Load(1, 1, Ending.SIMULTANEOUS, QUICK_SPEED))
    assert cell.failures == {}
    assert cell.wrong == ((contender.name, contender.platform) in CUT)
    assert cell.age >= cell.age_floor
    if not cell.wrong:
        assert cell.end_mean is not None
        assert cell.end_mean >= 0.99 * cell.end_mean_floor


@pytest.mark.parametrize("platform", ["slack", "discord"])
async def test_parley_loses_no_reply_of_a_staggered_load(platform: str) -> None:
    (parley,) = (contender for contender in CONTENDERS if (contender.name, contender.platform) == (NAME, platform))
    cell = await measure(parley, Load(4, 2, Ending.SUCCESSIVE, QUICK_SPEED))
    assert (cell.wrong, cell.failures) == (0, {})
    assert cell.age >= cell.age_floor


def test_the_limits_of_the_floors_equal_those_of_the_simulator() -> None:
    edits, appends, stops = (rate.max_calls for rate in (limits.TIER_3, limits.TIER_4, limits.TIER_2))
    assert LIMITS["slack"].edits == LimitWindow(edits + appends + stops, 60, is_sliding=True)
    assert LIMITS["slack"].endings == LimitWindow(edits + stops, 60, is_sliding=True)
