"""Tickets: jobs that another program finishes, with a key that only that program has."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.errors import TicketError, ToolError
from core.store.database import Database
from core.store.engine_options import normalize_database_url
from core.turns.automation.context import AutomationContext, find_automation, find_call
from core.turns.automation.jobs import (
    FinishResult,
    JobResult,
    JobStore,
    ToolInvocation,
    get_event_key,
    new_job_id,
    new_key,
)
from core.turns.claims import derive_turn_id

#: Beginning of the path at which `POST` finishes a ticket; the id follows.
TICKETS_PATH = "/tickets/"

#: Names of a ticket's id in the results of long-running tools.
_EXTERNAL_ID_NAMES = ("ticket_id", "ticket-id", "id")

_REFUSALS = {
    FinishResult.UNKNOWN: "there is no such ticket",
    FinishResult.WRONG_KEY: "the key is wrong",
    FinishResult.CANCELLED: "somebody cancelled it, or reset its conversation",
}


@dataclass(frozen=True, slots=True)
class Ticket:
    """Ticket of a tool call, for the program that finishes it.

    Attributes:
        key: the secret for the header `Authorization: Bearer KEY`; it is not stored.
        url: the address for `POST`; empty if `PUBLIC_URL` is not set.
    """

    id: str
    key: str = field(repr=False)
    url: str


class _RunningStore:
    """Holder of the job store of the bot in this process."""

    store: JobStore | None = None


def set_running_store(store: JobStore | None) -> None:
    """Set the store that `finish_ticket` uses in this process."""
    _RunningStore.store = store


async def get_ticket() -> Ticket:
    """Return the ticket of the running tool call, by which another program gives the result later.

    The tool hands the url and the key to that program, and returns `{"status": "pending"}`. The model never sees the
    key. A second call replaces the key.

    Raises:
        ToolError: no tool of a turn of Slack or Discord runs here, or too many jobs of the user run.
    """
    automation = find_automation()
    call = find_call()
    if automation is None or call is None:
        raise ToolError("get_ticket works within a tool call of a turn of Slack or Discord, and not in the background")
    key = new_key()
    id_ = await _create_job(automation, call, key=key)
    url = automation.jobs.public_url
    return Ticket(id_, key, f"{url}{TICKETS_PATH}{id_}" if url else "")


async def store_pending_call(result: Any) -> None:
    """Store a job for the running call if the result of its long-running tool says that it is pending.

    `finish_ticket` ends it by the tool's own id, as there is no key.
    """
    automation = find_automation()
    call = find_call()
    is_pending = isinstance(result, Mapping) and str(result.get("status", "")).lower() == "pending"
    if automation is None or call is None or not is_pending:
        return
    ids = (result.get(name) for name in _EXTERNAL_ID_NAMES)
    external_id = next((str(id_) for id_ in ids if id_), None)
    await _create_job(automation, call, external_id=external_id)


async def _create_job(
    automation: AutomationContext, call: ToolInvocation, *, key: str = "", external_id: str | None = None
) -> str:
    return await automation.jobs.store.create(
        new_job_id(),
        call,
        automation.message,
        target=automation.job_target,
        is_shared=automation.is_shared,
        key=key,
        external_id=external_id,
    )


async def cancel_ticket() -> None:
    """Cancel the ticket of the running call, if it has one: the tool failed."""
    automation = find_automation()
    call = find_call()
    if automation is not None and call is not None:
        await automation.jobs.store.cancel_ticket(call)


async def finish_ticket(
    ticket_id: str,
    result: Any = None,
    *,
    error: str | None = None,
    key: str | None = None,
    database_url: str | None = None,
) -> str:
    """Finish a ticket with a result, from any process, and return the id of the turn that answers it.

    A repeated call changes nothing.

    Args:
        ticket_id: the id of the ticket, or the id that a long-running tool returned as `ticket_id`, `ticket-id` or
            `id` beside `"status": "pending"`.
        result: JSON values.
        error: why there is no result; it replaces the result.
        key: the key of the ticket, to be checked; None for a caller that may finish each ticket.
        database_url: the bot's database; in the bot's process it is not needed. None for the variable `DATABASE_URL`.

    Raises:
        TicketError: the ticket is unknown or cancelled, or the key is wrong.
        StoreError: the database cannot be used.
    """
    outcome = JobResult(result) if error is None else JobResult(error, "failed")
    if (store := _RunningStore.store) is not None and database_url is None:
        return await _finish(store, ticket_id, outcome, key)
    url = database_url or os.environ.get("DATABASE_URL", "")
    if not url:
        raise TicketError("the bot does not run in this process: set DATABASE_URL, or give database_url")
    database = Database(normalize_database_url(url))
    try:
        return await _finish(JobStore(database), ticket_id, outcome, key)
    finally:
        await database.aclose()


async def _finish(store: JobStore, ticket_id: str, result: JobResult, key: str | None) -> str:
    finished = await store.finish(ticket_id, result, key=key)
    if finished is FinishResult.UNKNOWN and (own_id := await store.find_id(ticket_id)) is not None:
        ticket_id = own_id
        finished = await store.finish(ticket_id, result, key=key)
    if finished is not FinishResult.FINISHED:
        raise TicketError(f"ticket {ticket_id}: {_REFUSALS[finished]}")
    return derive_turn_id(get_event_key(ticket_id))
