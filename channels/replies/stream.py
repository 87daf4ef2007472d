"""Stream of a growing message, with a card for each tool call above its text."""

from collections.abc import Sequence
from dataclasses import dataclass

from channels.base import Plan, ShownToolCall, ToolCallState
from channels.i18n.messages import PLACEHOLDER


@dataclass(frozen=True, slots=True)
class Card:
    """Card of a tool call, or of the placeholder; the title is plain text."""

    title: str
    state: ToolCallState = ToolCallState.RUNNING


@dataclass(frozen=True, slots=True)
class TaskCards:
    """Cards of a stream: one for each tool call, or a placeholder until the reply has text or a tool runs.

    Attributes:
        skipped: the number of the reply's first tool calls that have no card, because an earlier message has it.
    """

    skipped: int = 0
    shown: tuple[Card, ...] = ()
    is_placeholder: bool = False

    @property
    def is_final(self) -> bool:
        """True if each card is complete or failed. Slack shows others as failed when the stream has ended."""
        return all(card.state in (ToolCallState.DONE, ToolCallState.FAILED) for card in self.shown)

    def update(self, plan: Plan, *, is_silent: bool) -> "TaskCards":
        cards = tuple(_make_card(call, plan) for call in plan.tool_calls[self.skipped :])
        is_placeholder = not cards and (is_silent or self.is_placeholder)
        if is_placeholder:
            cards = (Card(f"{PLACEHOLDER}{plan.elapsed}") if is_silent else self.shown[0],)
        return TaskCards(self.skipped, cards, is_placeholder)

    def get_changes(self, before: "TaskCards") -> tuple[tuple[int, Card], ...]:
        return tuple(
            (number, card) for number, card in enumerate(self.shown, 1) if (card,) != before.shown[number - 1 : number]
        )


def _make_card(call: ShownToolCall, plan: Plan) -> Card:
    title = call.line.strip("_")
    if call.state is not ToolCallState.RUNNING:
        title = title.rstrip("…")
    elif call.line == plan.status:
        title += plan.elapsed
    return Card(title, call.state)


@dataclass(frozen=True, slots=True)
class StreamPart:
    """What one call adds to a stream: changed cards, each with its position from 1, then text."""

    cards: Sequence[tuple[int, Card]] = ()
    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.cards or self.text)


@dataclass(frozen=True, slots=True)
class MessageStream:
    """Open stream of a message, with the content that the platform has confirmed.

    Attributes:
        ends_at: the time of the event loop at which to stop the stream.
        size: what the stream's parts take of `StreamRules.max_size`.
        is_broken: whether the outcome of a call is unknown, or the platform has ended the stream.
    """

    text: str
    cards: TaskCards
    ends_at: float
    size: int
    is_broken: bool = False
