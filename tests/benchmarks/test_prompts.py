from statistics import fmean

import pytest

from benchmarks.prompts import CONVERSATIONS, TARGET_SHARE, MeasuredConversation, measure, shared_parts


def test_the_shared_part_is_counted_from_the_first_character() -> None:
    assert shared_parts(["abcd", "abcdef", "abxdef", "ab"]) == [1.0, 2 / 6, 2 / 6]


@pytest.mark.parametrize(
    "conversation", [CONVERSATIONS[0], CONVERSATIONS[-1]], ids=lambda conversation: conversation.name
)
async def test_a_prompt_repeats_its_predecessor_unless_the_history_is_truncated(
    conversation: MeasuredConversation,
) -> None:
    parts = await measure(conversation, 43)
    assert fmean(parts) >= TARGET_SHARE
    assert sum(part < 0.99 for part in parts) == 1
