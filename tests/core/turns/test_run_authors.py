"""People whose words are in a run, after any chain of questions, answers, approvals and retries."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.inbox.store import InboxStore
from core.messages.identity import EVERYONE, User
from core.messages.inbox_message import InboxMessage
from core.tools.adk_confirmations import ConfirmationRequest
from core.tools.adk_requests import QuestionRequest
from core.tools.human_request_service import HumanRequestService
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import Worker
from tests.core.conftest import FailingDatabase
from tests.fixtures.inbox_messages import inbound

people = st.sampled_from(["ada", "grace", "linus"])
_numbers = itertools.count()


class Chain:
    """Runs of one session that continue each other.

    Attributes:
        turn: the newest turn.
        words: the people whose words must be in its run.
    """

    def __init__(self, inbox: InboxStore, turns: TurnStore, service: HumanRequestService) -> None:
        self.inbox = inbox
        self.turns = turns
        self.service = service
        self.session = f"place:{next(_numbers)}"
        self.words = set[str]()
        self.turn: Turn

    async def send(self, *messages: InboxMessage) -> None:
        """Send messages that one turn answers."""
        for message in messages:
            await self.inbox.accept(message)
        (self.turn,) = await self.turns.claim(1)

    async def ask(self, *, approval: bool) -> str:
        """Let the newest turn end with a request to everybody, and return the request's id."""
        run, call_id = self.turn.run or self.turn.origin, f"c{next(_numbers)}"
        request = (
            ConfirmationRequest(run, call_id, f"t{call_id}", "pay", {}, approvers=(EVERYONE,))
            if approval
            else QuestionRequest(run, call_id, "adk_request_input", {"message": "?"}, (EVERYONE,))
        )
        stored = await self.service.save_answer(self.turn, "text", {}, [request])
        await self.turns.end(self.turn, "done")
        await self.service.save_message_ids(stored[-1].id, [f"m{stored[-1].id}"], {})
        return stored[-1].id

    async def act(self, act: str, person: str) -> None:
        """Do one act of a person, which starts the next turn of the chain."""
        user = User(person, person)
        if act == "retry":
            await self.turns.end(self.turn, "failed")
            await self.inbox.request_rerun(self.turn.id, author=self.turn.newest_message.author, kind="retry")
            (self.turn,) = await self.turns.claim(1)
            return
        id_ = await self.ask(approval=act in ("approved", "denied"))
        if act == "message":
            await self.send(inbound("yes", session=self.session, author=person, replied_id=f"m{id_}"))
            answered = await self.service.answer_with_message(self.turn, [user], "yes")
            assert answered.answers[-1].run == self.turn.origin
        elif act == "form":
            await self.service.answer(id_, user, "yes")
            (self.turn,) = await self.turns.claim(1)
        else:
            await self.service.decide(id_, user, "approved" if act == "approved" else "denied")
            (self.turn,) = await self.turns.claim(1)
        self.words |= {person} if act in ("message", "form") else set()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@given(
    askers=st.lists(people, min_size=1, max_size=2),
    acts=st.lists(st.tuples(st.sampled_from(["message", "form", "approved", "denied", "retry"]), people), max_size=5),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_run_has_all_people_whose_words_are_in_it(
    database: FailingDatabase, inbox: InboxStore, turns: TurnStore, askers: list[str], acts: list[tuple[str, str]]
) -> None:
    chain = Chain(inbox, turns, HumanRequestService(database, turns, Worker(turns)))
    chain.words |= set(askers)
    await chain.send(*(inbound(session=chain.session, author=asker) for asker in askers))
    for act, person in acts:
        await chain.act(act, person)
        found = await turns.get_run_authors(chain.turn)
        assert found.is_complete
        assert found.ids == chain.words
        assert found.first_author_ids == set(askers)
    await turns.end(chain.turn, "failed")
