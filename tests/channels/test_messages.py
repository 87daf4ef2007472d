from hypothesis import given
from hypothesis import strategies as st

from channels.channel import Chunk, Plan, Priority
from channels.messages import Edited, MessageSurface, Posted
from channels.pacer import Budget, Window

PLENTY = Budget(Window(calls=1000, seconds=1.0))


class Board(MessageSurface):
    """Messages in a dictionary; a tick goes as long as there is budget."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[str, str] = {}
        self.previous: dict[str, str | None] = {}
        self.calls = 0
        self.budget = 1000

    @property
    def _posts(self) -> Budget:
        return PLENTY

    @property
    def _edits(self) -> Budget:
        return PLENTY

    async def begun(self) -> None: ...

    def _may(self, priority: Priority) -> bool:
        self.calls += 1
        self.budget -= 1
        return priority is not Priority.TICK or self.budget >= 0

    async def _post(self, position: int, text: str, priority: Priority, previous: str | None) -> Posted | None:
        if not self._may(priority):
            return None
        new = f"m{self.calls}"
        self.messages[new], self.previous[new] = text, previous
        return Posted(new)

    async def _edit(self, message_id: str, text: str, priority: Priority) -> Edited:
        if not self._may(priority):
            return Edited.DROPPED
        if message_id not in self.messages:
            return Edited.GONE
        self.messages[message_id] = text
        return Edited.DONE

    async def _delete(self, message_id: str) -> None:
        self.messages.pop(message_id, None)

    async def _own(self) -> dict[int, str]:
        return dict(enumerate(self.messages))


class Known:
    """The ids of a reply's messages, as `Reply` keeps them."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def record(self, position: int, message_id: str) -> None:
        assert position <= len(self.ids)
        self.ids[position:] = [message_id, *self.ids[position + 1 :]]

    async def show(self, board: Board, texts: list[str], priority: Priority = Priority.FINAL) -> bool:
        shown = await board.show(Plan([Chunk(0, 0, t) for t in texts], priority), tuple(self.ids), self.record)
        if shown:
            del self.ids[len(texts) :]
        return shown


TEXTS = st.lists(st.sampled_from(["one", "two", "three"]), min_size=1, max_size=4)


@given(st.lists(st.tuples(TEXTS, st.integers(0, 3), st.booleans(), st.booleans()), max_size=6), TEXTS)
async def test_whatever_was_dropped_deleted_or_restarted_the_final_is_shown_and_nothing_else(
    steps: list[tuple[list[str], int, bool, bool]], final: list[str]
) -> None:
    board, known = Board(), Known()
    for texts, budget, is_deleted, is_restarted in steps:
        board.budget = budget
        await known.show(board, texts, Priority.TICK)
        if is_restarted:
            board._shown.clear()
        if is_deleted and known.ids:
            gone = known.ids[-1]
            board.messages.pop(gone, None)
            board._shown.pop(gone, None)  # it would be noticed with the next text, at the latest
    assert await known.show(board, final)
    assert [board.messages[message_id] for message_id in known.ids] == final
    assert len(board.messages) == len(final)


async def test_each_message_is_told_which_one_it_follows() -> None:
    board, known = Board(), Known()
    await known.show(board, ["one"])
    await known.show(board, ["one", "two", "three"])
    assert [board.previous[message_id] for message_id in known.ids] == [None, *known.ids[:2]]


async def test_what_stands_already_costs_no_call() -> None:
    board, known = Board(), Known()
    await known.show(board, ["one", "two"])
    before = board.calls
    assert await known.show(board, ["one", "two"])
    assert board.calls == before


async def test_a_word_of_its_own_is_a_message_of_its_own() -> None:
    board = Board()
    await board.say("hello")
    assert list(board.messages.values()) == ["hello"]
    assert await board.find() == list(board.messages)


async def test_a_place_that_was_waited_for_is_used_once_and_given_back_if_it_is_not_needed() -> None:
    board, known = Board(), Known()
    one = Budget(Window(calls=1, seconds=60.0))
    board._held = one
    assert board.is_admitted(one)
    assert not board.is_admitted(one)
    await one.admit(Priority.FINAL)
    board._held = one
    await known.show(board, ["one"])
    assert one.try_admit(Priority.FINAL)
