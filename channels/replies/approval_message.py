"""What is shown of a call that waits for a person's word: what it would do, who may decide, and what was decided."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import regex  # type: ignore[import-untyped]  # it comes without types

from channels.base import Button, Channel, Priority
from channels.i18n import messages as words
from channels.i18n.messages import Words
from channels.replies.buttons import under_request
from channels.replies.reply import Reply
from core.identity import EVERYONE
from core.inbox_message import storable
from core.secret_redaction import masked, redact
from core.tools.approvals import ASKER, OTHERS, Approval, Approvals

#: The most that is shown of a call's arguments, of why its tool asks, and of the tool's name, in characters.
MOST, MOST_HINT, MOST_NAME = 1200, 300, 100

#: How much is shown of each text in the arguments, where they are too long together.
_CUTS = (300, 100, 30)

#: What Markdown gives a meaning, in the names of people.
_MARKS = regex.compile(r"[\\`*_~|<>\[\]()#]")

#: What is not seen where it stands, or has something else seen: marks that turn the text round, joints and fillers
#: without a width, spaces that are not what they look like.
_UNSEEN = regex.compile(r"[\p{C}\p{Zl}\p{Zp}\p{Zs}\u115f\u1160\u3164\uffa0--[ \n\u3000]]", regex.VERSION1)


async def show_request(channel: Channel, approvals: Approvals, approval: Approval, *, is_void: bool = False) -> None:
    """Show a request as it stands, in its message: see `Answerer.reask`."""
    address = approval.inbound.address

    async def keep(ids: Sequence[str]) -> None:
        await approvals.shown(approval.id, ids, channel.below(address, ids[0]) if ids else address)

    surface = channel.surface(channel.apart(address, approval.id), turn_id=approval.id)
    say = words.of(await words.told(channel.locale(approval.inbound)))
    known = tuple(await surface.find(approval.chunks))
    controls = request_buttons(approval, say, is_void=is_void)
    async with Reply(surface, known=known, keep=keep, say=say, controls=controls) as reply:
        await reply.close(request_text(approval, say, is_void=is_void), Priority.APPROVAL, controls=controls)


def request_text(approval: Approval, say: Words, *, is_void: bool = False) -> str:
    """A request in words; no secret, and nothing in the arguments that is more than text.

    Args:
        is_void: whether there is nothing to decide any more, though nobody has.
    """
    given = _written(approval.arguments)
    shown = _fitting(given, approval.arguments)
    more = len(given) - len(shown)
    fence = "`" * max(3, 1 + max(map(len, regex.findall("`+", shown)), default=0))
    parts = [
        say(words.MAY_I, tool=" ".join(_UNSEEN.sub(" ", storable(approval.tool)).replace("`", "").split())[:MOST_NAME]),
        plain(redact(storable(approval.hint)))[:MOST_HINT],
        f"{fence}json\n{shown}\n{fence}",
        say(words.NOT_SHOWN, count=f"{more:,}") if more > 0 else "",
        say(words.VOID) if is_void else _state(approval, say),
    ]
    return "\n\n".join(part for part in parts if part)


def request_buttons(approval: Approval, say: Words, *, is_void: bool = False) -> Sequence[Button]:
    """What can be pressed under it, as long as it is to be decided. What is not shown whole is not allowed for good."""
    if is_void or approval.verdict is not None:
        return ()
    is_whole = len(_written(approval.arguments)) <= MOST
    return under_request(approval.id, say, may_always=approval.may_always and is_whole)


def _written(arguments: Mapping[str, Any]) -> str:
    """Arguments as they are: what cannot be seen is written out."""
    text = redact(storable(json.dumps(masked(dict(arguments)), ensure_ascii=False, indent=2)))
    seen: str = _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return seen


def _fitting(given: str, arguments: Mapping[str, Any]) -> str:
    """As much of them, as they are written, as there is room for. Where that is not all, no text hides the others: each
    is cut.
    """
    shown = given
    for most in _CUTS:
        if len(shown) <= MOST:
            break
        shown = _written(_cut(masked(dict(arguments)), most))
    return shown[:MOST]


def _cut(value: Any, most: int) -> Any:
    match value:
        case str() if len(value) > most:
            return f"{value[:most]}…"
        case dict():
            return {name: _cut(item, most) for name, item in value.items()}
        case list():
            return [_cut(item, most) for item in value]
        case _:
            return value


def _state(approval: Approval, say: Words) -> str:
    facts = {"name": plain(approval.decider) or say(words.SOMEBODY), "when": moment(approval.decided_at)}
    match approval.verdict:
        case "approved":
            return say(words.APPROVED, **facts)
        case "always":
            return say(words.APPROVED_ALWAYS, **facts)
        case "denied":
            return say(words.DENIED, **facts)
        case "expired":
            return say(words.EXPIRED)
    sentences = {EVERYONE: words.ALL_DECIDE, OTHERS: words.OTHERS_DECIDE, ASKER: words.ASKER_DECIDES}
    named = [sentences.get(rule, words.NAMED_DECIDE) for rule in approval.approvers]
    return say(named[0] if len(set(named)) == 1 else words.NAMED_DECIDE, until=moment(approval.expires_at))


def moment(at: float) -> str:
    """A time (seconds since the epoch, UTC) as people read it."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def plain(text: str) -> str:
    """A name or a sentence on one line, as it is read."""
    seen: str = _MARKS.sub("", " ".join(_UNSEEN.sub(" ", text).split()))
    return seen
