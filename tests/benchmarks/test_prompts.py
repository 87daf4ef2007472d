from statistics import fmean

import pytest

from benchmarks.prompts import CONVERSATIONS, TARGET_FRACTION, MeasuredConversation, measure


@pytest.mark.parametrize(
    "conversation", [CONVERSATIONS[0], CONVERSATIONS[-1]], ids=lambda conversation: conversation.name
)
async def test_a_prompt_repeats_its_predecessor_unless_the_history_is_truncated(
    conversation: MeasuredConversation,
) -> None:
    fractions = await measure(conversation, 43)
    assert fmean(fractions) >= TARGET_FRACTION
    assert sum(fraction < 0.99 for fraction in fractions) == 1
