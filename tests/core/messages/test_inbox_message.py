import json

from hypothesis import given
from hypothesis import strategies as st

from core.messages.inbox_message import Attachment, InboxMessage, storable_text

names = st.text(max_size=20)
values = st.recursive(st.none() | st.booleans() | st.integers() | names, lambda inner: st.lists(inner, max_size=3))
addresses = st.dictionaries(names, values, max_size=4)
files = st.builds(Attachment, name=names, mime_type=st.none() | names, size=st.integers(min_value=0), source=addresses)
inbounds = st.builds(
    InboxMessage,
    event_key=names,
    session_id=names,
    place=names,
    platform=names,
    address=addresses,
    author=names,
    text=names,
    sent_at=st.floats(allow_nan=False, allow_infinity=False),
    attachments=st.lists(files, max_size=3).map(tuple),
)


@given(inbounds)
def test_a_message_survives_json(inbound: InboxMessage) -> None:
    assert InboxMessage.from_json(json.loads(json.dumps(inbound.to_json()))) == inbound


@given(inbounds)
def test_a_stored_message_has_the_keys_of_version_0_1_0(inbound: InboxMessage) -> None:
    assert inbound.to_json()["channel"] == inbound.platform


@given(st.text())
def test_a_valid_text_is_stored_unchanged_except_for_nul(text: str) -> None:
    assert storable_text(text) == text.replace("\0", "")


@given(st.text(st.characters(exclude_categories=[]) | st.sampled_from(["\ud83d", "\ude00", "\0"])))
def test_every_text_becomes_one_that_can_be_encoded_and_stays_so(text: str) -> None:
    stored = storable_text(text)
    assert "\0" not in stored
    assert stored.encode().decode() == stored
    assert storable_text(stored) == stored


def test_the_two_halves_of_a_surrogate_pair_become_one_character() -> None:
    assert storable_text("\ud83d\ude00") == "😀"
    assert storable_text("\ud83d") == "\ufffd"
