"""Downloads of the files of Slack messages."""

from chatrig.slack import SlackFile, SlackSimulator
from tests.channels.slack.conftest import WiredSlackBot


async def test_a_file_that_slack_hides_is_named_with_the_reason(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    file = SlackFile("F0OLD", "old.csv", b"a;b", is_hidden=True)
    await slack.post_message("ada", slack.open_dm("ada"), "read it", files=[file])
    await bot.wait_for_turns(1)
    reason = "F0OLD: Slack hides it: the workspace has reached its limit]"
    assert reason in bot.model.requests[-1]["messages"][-1]["content"]


async def test_a_file_of_another_organization_is_named_with_the_true_reason(
    slack: SlackSimulator, bot: WiredSlackBot
) -> None:
    file = SlackFile("F0ZIP", "old.zip", b"PK", is_from_other_org=True)
    await slack.post_message("ada", slack.open_dm("ada"), "read it", files=[file])
    await bot.wait_for_turns(1)
    assert "I cannot read files of this type]" in bot.model.requests[-1]["messages"][-1]["content"]
