from typing import Any

import pytest

from channels.slack.admission import Admission
from channels.slack.private import team_of_deed

OURS, THEIRS = {"id": "U1", "team_id": "T1"}, {"id": "U2", "team_id": "T2"}


@pytest.mark.parametrize(
    ("body", "is_served"),
    [
        ({"command": "/help", "team_id": "T1", "user_id": "U1"}, True),
        ({"type": "block_actions", "team": {"id": "T1"}, "user": OURS}, True),
        ({"type": "block_actions", "team": {"id": "T1"}, "user": THEIRS}, False),
        ({"type": "block_actions", "team": {"id": "T2"}, "user": THEIRS, "message": {"team": "T1"}}, False),
        ({"type": "message_action", "team": {"id": "T1"}, "user": OURS, "message": {"team": "T2"}}, True),
    ],
)
async def test_what_people_from_outside_do_is_done_only_where_they_are_served(
    body: dict[str, Any], is_served: bool
) -> None:
    assert await Admission(None, external=False).of_deed(body) == is_served
    assert await Admission(None, external=True).of_deed(body)
    assert body.get("team_id") or team_of_deed(body) == "T1"
