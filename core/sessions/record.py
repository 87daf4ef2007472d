"""An ADK event as a row of `messages`, and a row as an ADK event."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from core.late import Late

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.genai import types
else:
    Event = Late("google.adk.events.event", "Event")
    types = Late("google.genai.types")

logger = logging.getLogger(__name__)

#: The author of what a model said when no root agent is named. ADK: an agent's name is an identifier.
DEFAULT_AGENT = "lango_agent"

#: Bytes larger than this are kept in `blobs`, once a session, instead of in each event that holds them.
INLINE_BYTES = 1024

#: What stands in the place of such bytes, before their SHA-256.
REFERENCE = b"parley-blob:sha256:"
_ROLES = {"", "user", "model", "assistant", "tool", "function", "system", "event"}

#: Fields that say where and when an event was, not what it brings.
_CIRCUMSTANCES = {
    "id",
    "timestamp",
    "invocation_id",
    "author",
    "branch",
    "isolation_scope",
    "node_info",
    "partial",
    "turn_complete",
    "long_running_tool_ids",
}


@dataclass(frozen=True, slots=True)
class Row:
    """What `messages` keeps of one event, beside whose it is and what it costs.

    Attributes:
        event: the event as JSON; None in what was imported or is older.
        tokens: what sending it costs.
        blobs: the bytes that the event refers to, by their SHA-256.
    """

    role: str
    author: str
    content: str
    tool_calls: list[dict[str, str]]
    created_at: float
    invocation_id: str = ""
    event_id: str | None = None
    event: str | None = None
    held: dict[str, bool] | None = None
    tokens: int = 0
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    id: int = 0


def is_state_only(event: Event) -> bool:
    """Whether an event brings nothing but a change of the state, or nothing at all."""
    if event.content is not None:
        return False
    rest = event.model_dump(
        exclude={**dict.fromkeys(_CIRCUMSTANCES, True), "actions": {"state_delta"}},
        exclude_none=True,
        exclude_defaults=True,
    )
    return not rest or rest == {"actions": {}}


def role_of(event: Event) -> str:
    """`user` for what a person said, `tool` for what tools answered, `assistant` for what an agent said or
    called, `event` for what carries no words.
    """
    if event.content is None or not event.content.parts:
        return "event"
    if event.get_function_responses():
        return "tool"
    return "user" if event.author == "user" else "assistant"


def stored(event: Event) -> tuple[Event, Row]:
    """An event as it can be stored, and its row.

    The event is the one given, or if that holds lone surrogates, which no UTF-8 can, a copy with U+FFFD in
    their places.
    """
    try:
        return event, to_row(event)
    except (PydanticSerializationError, UnicodeEncodeError):
        event = Event.model_validate(_cleaned(event.model_dump(exclude_none=True, exclude_defaults=True)))
        return event, to_row(event)


def jsonable(value: Any) -> Any:
    """What JSON can hold of a value: no NaN (null), no lone surrogates (U+FFFD), strangers by their `repr`."""
    return from_json(to_json(_cleaned(value), inf_nan_mode="null", serialize_unknown=True))


def to_row(event: Event) -> Row:
    """What is to be stored of an event: all but the text of a foreign error (`error_message`)."""
    blobs: dict[str, bytes] = {}

    def referred(data: bytes) -> bytes:
        if len(data) <= INLINE_BYTES and not data.startswith(REFERENCE):
            return data
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return REFERENCE + digest.encode()

    light = _with_bytes(event, referred)
    return Row(
        role=role_of(event),
        author=event.author,
        content=_content(event).replace("\0", "\ufffd"),  # PostgreSQL: a text cannot hold NUL
        tool_calls=_tool_calls(event),
        created_at=event.timestamp,
        invocation_id=event.invocation_id,
        event_id=event.id,
        event=light.model_dump_json(exclude_none=True, exclude_defaults=True, exclude={"error_message"}),
        held=_held(event),
        blobs=blobs,
    )


def columns(row: Row, tokens: int) -> dict[str, Any]:
    """What `messages` is told of an event, beside whose it is.

    Args:
        tokens: what sending it costs.
    """
    return {name: getattr(row, name) for name in _COLUMNS} | {"tokens": tokens}


#: What of a row is a column of its own in `messages`.
_COLUMNS = (
    "role",
    "author",
    "content",
    "tool_calls",
    "created_at",
    "invocation_id",
    "event_id",
    "event",
    "held",
)


def references(event: Event) -> set[str]:
    """The SHA-256 of each of the blobs that a stored event refers to."""
    return {data.removeprefix(REFERENCE).decode() for data in _all_bytes(event) if data.startswith(REFERENCE)}


def reference(digest: str) -> str:
    """How the JSON of a stored event refers to the blob with this SHA-256."""
    data: str = json.loads(types.Blob(data=REFERENCE + digest.encode()).model_dump_json(exclude_none=True))["data"]
    return data


def restored(event: Event, blobs: Mapping[str, bytes]) -> Event:
    """The event with its bytes in place.

    Raises:
        KeyError: a blob is missing.
    """

    def fetched(data: bytes) -> bytes:
        if not data.startswith(REFERENCE):
            return data
        return blobs[data.removeprefix(REFERENCE).decode()]

    return _with_bytes(event, fetched)


def parsed(event: str | None, id_: int) -> Event | None:
    """The event that the row `id_` holds, still with references; None, and a warning, if it cannot be read."""
    if event is None:
        return None
    try:
        return Event.model_validate_json(event)
    except ValueError:  # its text may quote what people said: it is not logged
        logger.warning("the event of message %s cannot be read: it is rebuilt from its columns", id_)
        return None


class Rebuilder:
    """Makes events of the columns of rows, in the order of the conversation.

    A tool's answer of the older kind, which does not say what it answers, belongs to the preceding
    assistant's calls by its position.
    """

    def __init__(self, agent: str = "") -> None:
        self._agent = agent or DEFAULT_AGENT
        self._unanswered: list[dict[str, str]] = []

    def passed(self, row: Row) -> None:
        """Take note of a row that needs no rebuilding."""
        if row.role in ("assistant", "model"):
            self._unanswered = list(row.tool_calls)
        elif row.role in ("tool", "function"):
            del self._unanswered[: max(1, len(row.tool_calls))]
        elif row.role == "user":
            self._unanswered = []

    def rebuilt(self, row: Row) -> Event:
        event = Event(
            id=f"message-{row.id}",
            timestamp=row.created_at,
            invocation_id=row.invocation_id,
            author=self._author(row),
            content=self._words(row),
        )
        self.passed(row)
        return event

    def _author(self, row: Row) -> str:
        if row.author not in _ROLES:
            return row.author
        return "user" if "user" in (row.author, row.role) else self._agent

    def _words(self, row: Row) -> types.Content | None:
        if row.role in ("tool", "function"):
            return self._answers(row)
        calls = [
            types.Part(
                function_call=types.FunctionCall(
                    id=call.get("id"), name=call.get("name"), args=_object(call.get("input"), "input")
                )
            )
            for call in row.tool_calls
            if "output" not in call
        ]
        text = [types.Part(text=row.content)] if row.content else []
        if not text and not calls:
            return None
        return types.Content(role="user" if row.role == "user" else "model", parts=text + calls)

    def _answers(self, row: Row) -> types.Content | None:
        answers = [call for call in row.tool_calls if "output" in call]
        if not answers and self._unanswered:
            answers = [{**self._unanswered[0], "output": row.content}]
        if not answers:
            return types.Content(role="user", parts=[types.Part(text=row.content)]) if row.content else None
        parts = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=answer.get("id"), name=answer.get("name"), response=_object(answer["output"], "output")
                )
            )
            for answer in answers
        ]
        return types.Content(role="function", parts=parts)


class CallIds:
    """Ids for calls that came without: `call_` and the tool's name, repeats counted."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def take(self, id_: str | None, name: str | None) -> str:
        wanted = id_ or f"call_{name or 'tool'}"
        self._taken[wanted] += 1
        count = self._taken[wanted]
        if count == 1:
            return wanted
        return self.take(f"{wanted}_{count}", name)


def media_size(event: Event) -> int:
    """The bytes of media that came with an event."""
    return sum(map(len, _all_bytes(event)))


def parts_of(event: Event) -> Sequence[types.Part]:
    """What an event consists of."""
    return (event.content and event.content.parts) or ()


def _content(event: Event) -> str:
    pieces = [part.text for part in parts_of(event) if part.text and not part.thought]
    pieces += [as_json(response.response or {}) for response in event.get_function_responses()]
    return "\n".join(pieces)


def _tool_calls(event: Event) -> list[dict[str, str]]:
    entries = []
    ids = CallIds()
    for call in event.get_function_calls():
        id_ = ids.take(call.id, call.name)
        entries.append({"id": id_, "name": call.name or "", "input": as_json(call.args or {})})
    ids = CallIds()
    for answer in event.get_function_responses():
        id_ = ids.take(answer.id, answer.name)
        entries.append({"id": id_, "name": answer.name or "", "output": as_json(answer.response or {})})
    return entries


def _held(event: Event) -> dict[str, bool] | None:
    if event.actions.compaction is not None:
        return {}
    return dict.fromkeys(sorted(event.long_running_tool_ids or ()), False) or None


def _all_bytes(event: Event) -> Iterator[bytes]:
    for part in parts_of(event):
        media: list[types.Blob | types.FunctionResponseBlob | None] = [part.inline_data]
        if part.function_response:
            media += [item.inline_data for item in part.function_response.parts or ()]
        yield from (item.data for item in media if item is not None and item.data)


def _with_bytes(event: Event, changed: Callable[[bytes], bytes]) -> Event:
    """The event, or if it holds bytes a copy with them changed that shares all else."""
    if event.content is None or next(_all_bytes(event), None) is None:
        return event
    parts = [_part_with_bytes(part, changed) for part in parts_of(event)]
    return event.model_copy(update={"content": event.content.model_copy(update={"parts": parts})})


def _part_with_bytes(part: types.Part, changed: Callable[[bytes], bytes]) -> types.Part:
    update: dict[str, Any] = {}
    if part.inline_data and part.inline_data.data:
        update["inline_data"] = part.inline_data.model_copy(update={"data": changed(part.inline_data.data)})
    if part.function_response and part.function_response.parts:
        items = []
        for item in part.function_response.parts:
            if (media := item.inline_data) and media.data:
                media = media.model_copy(update={"data": changed(media.data)})
                items.append(item.model_copy(update={"inline_data": media}))
            else:
                items.append(item)
        update["function_response"] = part.function_response.model_copy(update={"parts": items})
    return part.model_copy(update=update) if update else part


def as_json(value: Any) -> str:
    """A value as the JSON that a model or a person reads."""
    return json.dumps(jsonable(value), ensure_ascii=False)


def _object(text: str | None, key: str) -> dict[str, Any]:
    """A JSON object; anything else becomes the one value of an object."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {key: text}
    return value if isinstance(value, dict) else {key: value}


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value
