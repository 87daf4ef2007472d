from typing import Any

import pytest

from channels.intake.incoming import IncomingMessage
from channels.slack.events.parser import parse_change, parse_message
from channels.slack.session_ids import thread_ts_of
from channels.slack.text import TITLE_SIZE
from core.messages.inbox_message import Attachment

BOT = "UBOT"
_MESSAGE = {
    "type": "message",
    "channel": "C1",
    "channel_type": "channel",
    "user": "U1",
    "ts": "100.000200",
    "text": "hi",
}


def create_payload(event: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    authorizations = [{"team_id": "T1", "user_id": BOT, "is_bot": True}]
    return {"type": "event_callback", "team_id": "T1", "event": event, "authorizations": authorizations} | kwargs


def parse_event(**event: Any) -> IncomingMessage | None:
    message = {name: value for name, value in (_MESSAGE | event).items() if value is not None}
    return parse_message(create_payload(message))


def parse_message_event(**event: Any) -> IncomingMessage:
    found = parse_event(**event)
    assert found is not None
    return found


MENTION: dict[str, Any] = {"type": "app_mention", "channel_type": None, "text": f"<@{BOT}> hi"}
DIRECT: dict[str, Any] = {"channel": "D1", "channel_type": "im"}
FOLLOW_UP: dict[str, Any] = {"thread_ts": "90.000100"}


@pytest.mark.parametrize(
    ("event", "session", "is_mention"),
    [
        (MENTION, "slack:T1:C1:100.000200", True),
        ({"text": f"hi <@{BOT}|parley>"}, "slack:T1:C1:100.000200", True),
        (MENTION | FOLLOW_UP, "slack:T1:C1:90.000100", True),
        (DIRECT, "slack:T1:D1:100.000200", True),
        (DIRECT | FOLLOW_UP, "slack:T1:D1:90.000100", True),
        (DIRECT | {"channel_type": None}, "slack:T1:D1:100.000200", True),
        (FOLLOW_UP, "slack:T1:C1:90.000100", False),
        (FOLLOW_UP | {"subtype": "thread_broadcast"}, "slack:T1:C1:90.000100", False),
        (FOLLOW_UP | {"text": f"<@{BOT}2> hi"}, "slack:T1:C1:90.000100", False),
        (DIRECT | {"subtype": "file_share", "files": [{"name": "a.png"}]}, "slack:T1:D1:100.000200", True),
        (DIRECT | {"text": None}, "slack:T1:D1:100.000200", True),
        (DIRECT | {"subtype": "me_message"}, "slack:T1:D1:100.000200", True),
    ],
)
def test_messages_to_the_bot_are_parsed(event: dict[str, Any], session: str, is_mention: bool) -> None:
    found = parse_message_event(**event)
    assert (found.inbound.session_id, found.is_mention, found.command) == (session, is_mention, None)
    assert found.inbound.place == session.rpartition(":")[0]
    assert found.inbound.event_key == f"{found.inbound.place}:100.000200"
    assert found.inbound.sent_at == 100.0002
    assert found.inbound.address["thread_ts"] == session.rpartition(":")[2]


@pytest.mark.parametrize(
    "event",
    [
        {},
        MENTION | {"edited": {"user": "U1", "ts": "101.000000"}},
        {"text": f"<@{BOT}2> hi"},
        DIRECT | {"bot_id": "B1"},
        DIRECT | {"subtype": "bot_message", "bot_id": "B1", "user": None},
        DIRECT | {"user": BOT},
        DIRECT | {"subtype": "message_changed", "hidden": True, "message": {"text": "hi"}},
        DIRECT | {"subtype": "message_deleted", "hidden": True},
        DIRECT | {"hidden": True},
        {"subtype": "channel_join", "text": f"<@{BOT}> has joined"},
        {"subtype": "channel_topic", "text": f"<@{BOT}> set the topic"},
        DIRECT | {"user": None},
        DIRECT | {"ts": None},
        DIRECT | {"channel": None},
        {"type": "app_home_opened"},
        {"type": "reaction_added"},
        {"type": None},
    ],
)
def test_other_events_are_ignored(event: dict[str, Any]) -> None:
    assert parse_event(**event) is None


def test_a_payload_may_lack_an_event_or_an_authorization() -> None:
    assert parse_message({}) is None
    assert parse_message({"event": None}) is None
    found = parse_message(create_payload(_MESSAGE | DIRECT, authorizations=[]))
    assert found is not None
    assert found.inbound.address["team"] == "T1"


def test_both_events_of_one_message_have_one_key() -> None:
    mention, message = parse_message_event(**MENTION), parse_message_event(text=MENTION["text"])
    assert mention.inbound == message.inbound


def test_two_messages_have_two_keys() -> None:
    keys = {parse_message_event(**DIRECT, ts=ts).inbound.event_key for ts in ("100.000200", "100.000201")}
    assert len(keys | {parse_message_event(**DIRECT | {"channel": "D2"}).inbound.event_key}) == 3


def test_an_org_wide_installation_has_the_team_of_its_authorization() -> None:
    event = _MESSAGE | DIRECT
    for authorization, team in (({"team_id": "T2"}, "T2"), ({"team_id": None, "enterprise_id": "E1"}, "T1")):
        found = parse_message(create_payload(event, authorizations=[authorization]))
        assert found is not None
        assert found.inbound.address["team"] == team


@pytest.mark.parametrize("text", ["reset", "Reset!", "/reset", " RESET. ", f"<@{BOT}> reset", f"reset <@{BOT}>"])
def test_a_message_of_only_the_word_reset_is_a_command(text: str) -> None:
    assert parse_message_event(**DIRECT, text=text).command == ("reset", "")


def test_a_reset_without_a_mention_is_no_command() -> None:
    assert parse_message_event(**FOLLOW_UP, text="reset").command is None


def test_a_file_has_its_metadata_and_download_address() -> None:
    file = {"id": "F1", "url_private_download": "https://files.slack.com/F1"}
    hidden = {"id": "F2", "file_access": "check_file_info"}
    files = [{**file, "name": "plan.pdf", "mimetype": "application/pdf", "size": 9, "mode": "hosted"}, hidden, {}]
    assert parse_message_event(**DIRECT, subtype="file_share", files=files).inbound.attachments == (
        Attachment("plan.pdf", "application/pdf", 9, file),
        Attachment("F2", None, 0, hidden),
        Attachment("a file", None, 0, {}),
    )


def test_characters_that_databases_refuse_are_removed() -> None:
    assert parse_message_event(**DIRECT, text="a\0b\ud83d!").inbound.text == "ab\ufffd!"


def create_change_event(subtype: str, before: dict[str, Any] | None = None, /, **now: Any) -> dict[str, Any]:
    was = {"user": "U1", "ts": "100.000200", "text": "tow"} | (before or {})
    about = {"type": "message", "channel": "C1", "ts": "101.000000", "deleted_ts": "100.000200", "hidden": True}
    return create_payload(about | {"subtype": subtype, "previous_message": was, "message": was | now})


def test_an_edit_has_the_new_text_and_a_deletion_none() -> None:
    key = parse_message_event(**DIRECT | {"channel": "C1"} | MENTION).inbound.event_key
    for event, text in (
        (create_change_event("message_changed", text=f"<@{BOT}> two"), "two"),
        (create_change_event("message_deleted"), None),
        (create_change_event("message_changed", subtype="tombstone", text="gone"), None),
    ):
        change = parse_change(event, parse_message)
        assert change is not None
        assert (change.changed_key, change.text) == (key, text)
        assert (change.inbound.session_id, change.inbound.text) == (key, "")


@pytest.mark.parametrize(
    "event",
    [
        create_change_event("message_changed", text="tow"),
        create_change_event("message_changed", {"bot_id": "B1"}, text="two"),
        create_change_event("message_changed", {"user": BOT}, text="two"),
        create_change_event("message_deleted", {"subtype": "channel_join"}),
        create_change_event("thread_broadcast", text="two"),
        create_payload(_MESSAGE),
        create_payload({"type": "app_home_opened"}),
        {},
    ],
)
def test_changes_that_are_no_edit_of_a_person_are_ignored(event: dict[str, Any]) -> None:
    assert parse_change(event, parse_message) is None


def test_direct_messages_may_share_a_session_and_channels_may_not() -> None:
    for event, session, thread in (
        (DIRECT, "slack:T1:D1:dm", ""),
        (DIRECT | FOLLOW_UP, "slack:T1:D1:dm", "90.000100"),
        (MENTION, "slack:T1:C1:100.000200", "100.000200"),
    ):
        found = parse_message(
            create_payload({name: value for name, value in (_MESSAGE | event).items() if value}), "single"
        )
        assert found is not None
        assert (found.inbound.session_id, found.inbound.address["thread_ts"]) == (session, thread)
        assert thread_ts_of(found.inbound.session_id) == ("" if session.endswith("dm") else "100.000200")


def test_the_title_is_the_beginning_of_the_message() -> None:
    text = f"<@{BOT}> <@U2> why is <https://a.example|this>\n&amp; that " + "so " * 40
    title = parse_message_event(**MENTION | {"text": text}).inbound.address["title"]
    assert title.startswith("why is this (https://a.example) & that so")
    assert len(title) <= TITLE_SIZE
    assert "title" not in parse_message_event(**DIRECT, text=f"<@{BOT}>").inbound.address


OUTSIDE = {"user_team": "T2", "team": "T2"}


@pytest.mark.parametrize(
    ("event", "envelope", "is_ours"),
    [
        (OUTSIDE, {"is_ext_shared_channel": True}, False),
        ({"team": "T2"}, {"is_ext_shared_channel": True}, False),
        ({}, {"is_ext_shared_channel": True}, False),
        ({"team": "T1"}, {"is_ext_shared_channel": True}, True),
        (OUTSIDE, {}, False),
        (OUTSIDE, {"is_ext_shared_channel": False}, True),
        ({"user_team": "E1"}, {"is_ext_shared_channel": True, "enterprise_id": "E1"}, True),
        ({}, {}, True),
    ],
)
def test_authors_of_other_organizations_are_external(
    event: dict[str, Any], envelope: dict[str, Any], is_ours: bool
) -> None:
    found = parse_message(create_payload(_MESSAGE | MENTION | event, **envelope))
    assert found is not None
    assert found.inbound.actor_or_author.is_external != is_ours
    assert found.inbound.session_id == "slack:T1:C1:100.000200"
