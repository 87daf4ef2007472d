import pytest
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.api import SlackApi
from channels.slack.people import People
from sandbox.slack import SlackSandbox


@pytest.fixture
def people(web: AsyncWebClient) -> People:
    return People(SlackApi(web, pauses=(0.01,)), patience=0.3)


async def test_people_are_known_by_the_name_that_they_show(slack: SlackSandbox, people: People) -> None:
    ada, grace = slack.people["ada"].id, slack.people["grace"].id
    assert await people.names(slack.team_id, [ada, grace]) == {ada: "ada", grace: "grace"}


async def test_a_name_is_asked_for_once(slack: SlackSandbox, people: People) -> None:
    ada = slack.people["ada"].id
    for _ in range(3):
        await people.names(slack.team_id, [ada])
    assert len(slack.calls) == 1


async def test_who_cannot_be_looked_up_goes_by_the_id_until_that_can_be_done(
    slack: SlackSandbox, people: People
) -> None:
    ada = slack.people["ada"].id
    slack.faults.fail("users.info", 2)
    assert await people.names(slack.team_id, [ada]) == {ada: ada}
    assert await people.names(slack.team_id, ["UNKNOWN"]) == {"UNKNOWN": "UNKNOWN"}
    assert (await people.names(slack.team_id, [ada]))[ada] == "ada"


async def test_a_slow_slack_holds_no_answer_up_for_a_name(slack: SlackSandbox, people: People) -> None:
    ada = slack.people["ada"].id
    slack.faults.delay("users.info", 0.6)
    assert await people.names(slack.team_id, [ada]) == {ada: ada}
