"""Database tables, for SQLite and PostgreSQL. `migrations/` creates them."""

import json
from typing import Any

import sqlalchemy as sa

from core.store.turn_states import ACTIVE_STATES

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    }
)

Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")


class UnreadableJson:
    """Value of a JSON column whose text is not JSON, so that only the use of it raises an error, not the query."""


def read_json(text: str) -> Any:
    """Return the value of a JSON column; `UnreadableJson` if it is not JSON, or is nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return UnreadableJson()


class JsonText(sa.TypeDecorator[Any]):
    """Column type of any JSON value, stored as text.

    In a SQLite column of the type JSON, numbers change (affinity NUMERIC): 1.0 becomes 1, and 2**63 a float.

    Args:
        none_as_null: whether None is stored as SQL's NULL instead of JSON's null.
    """

    impl = sa.Text
    cache_ok = True

    def __init__(self, *, none_as_null: bool = False) -> None:
        super().__init__()
        self.none_as_null = none_as_null

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        return None if value is None and self.none_as_null else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        return None if value is None else read_json(value)


#: Sessions. A reset begins a new `generation`. `updated_at`: the creation, the last reset, or the last change of the
#: state. `model`: the full name of the chosen model (null: the default). `agent`: the chosen agent (null: as the access
#: rules say). `is_muted`: the bot answers mentions only. A reset changes none of these three. `app`: the name of the
#: default agent, also if another agent answers. `user_id`: the place, as `InboxMessage.place`.
sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("app", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False, server_default="1"),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("model", sa.Text),
    sa.Column("agent", sa.Text),
    sa.Column("is_muted", sa.Boolean, nullable=False, server_default=sa.false()),
)
sa.Index("ix_sessions_app_user_id", sessions.c.app, sessions.c.user_id)

#: All that comes in: messages, edits, deletions, commands, presses, forms, decisions. `event_key`: the same for each
#: delivery. `message`: the message as JSON; a reset sets it to null, and the row stays. `edited_message`: the edited
#: message, if a turn had claimed the message before the edit. A rerun request has the turn to answer again as its
#: `parent`, and the kind of rerun as its `kind` (see `turns`). The kind `decision`: people have decided all requests of
#: the `parent`, so its run can continue. The kind `steering`: the turn was running when it claimed the message, and has
#: read it, or reads it before its next model call; see `core.turns.steering`. `outcome`: the reason why no turn answers
#: the message, see `core.messages.inbox_message.InboxOutcome`. A message that its author deleted after a turn had
#: claimed it has the outcome `deleted` and its turn. The outcome `forgotten` marks a tombstone: see
#: `core.privacy.deletion`. Rows of commands, of messages to other people and of tombstones have no text. An entry that
#: is no message has its `kind`, and the outcome `pending` until its `owner`, a worker, has handled it; until then,
#: `payload` has its encrypted data: see `core.inbox.entries`. The kinds of `core.messages.trigger` begin a turn without
#: a message of a person: see `core.inbox.triggered`.
inbox = sa.Table(
    "inbox",
    metadata,
    sa.Column("id", Serial, primary_key=True, autoincrement=True),
    sa.Column("event_key", sa.Text, nullable=False, unique=True),
    sa.Column("session", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("place", sa.Text, nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("message", sa.JSON(none_as_null=True)),
    sa.Column("sent_at", sa.Double, nullable=False),
    sa.Column("accepted_at", sa.Double, nullable=False),
    sa.Column("kind", sa.Text, nullable=False, server_default="message"),
    sa.Column("edited_message", sa.JSON(none_as_null=True)),
    sa.Column("parent", sa.Text),
    sa.Column("turn", sa.Text),
    sa.Column("outcome", sa.Text),
    sa.Column("payload", sa.Text),
    sa.Column("owner", sa.Text),
)
sa.Index("ix_inbox_session", inbox.c.session, inbox.c.sent_at)
sa.Index("ix_inbox_place_author", inbox.c.place, inbox.c.author, inbox.c.sent_at)
sa.Index("ix_inbox_author", inbox.c.author, inbox.c.sent_at)
sa.Index("ix_inbox_place", inbox.c.place, inbox.c.sent_at)
#: Only of messages with a turn: else SQLite would use this index, not `ix_inbox_waiting`, to find waiting messages.
sa.Index(
    "ix_inbox_turn", inbox.c.turn, sqlite_where=inbox.c.turn.is_not(None), postgresql_where=inbox.c.turn.is_not(None)
)
sa.Index("ix_inbox_accepted_at", inbox.c.accepted_at)
sa.Index(
    "ix_inbox_waiting",
    inbox.c.session,
    inbox.c.sent_at,
    sqlite_where=inbox.c.turn.is_(None) & inbox.c.outcome.is_(None),
    postgresql_where=inbox.c.turn.is_(None) & inbox.c.outcome.is_(None),
)
#: As a literal: neither database uses a partial index for a condition with a parameter.
IS_PENDING = inbox.c.outcome == sa.literal_column("'pending'")
sa.Index("ix_inbox_pending", inbox.c.id, sqlite_where=IS_PENDING, postgresql_where=IS_PENDING)

#: Turns: one run of the agent for all inbox messages that name it. A rerun has the turn before it as its `parent`, and
#: its `kind`: `retry` continues the stored part of a failed turn, `regenerate` begins after the prompt, `revise`
#: begins with the edited prompt. `origin`: the first turn in the line of parents, or the turn itself; its id is the
#: run id of stored events. A turn of the kind `decision` continues a run that waited for people: its `parent` is the
#: turn that asked, it is its own `origin`, and `run` is the run that it continues. `model`: the chosen model (null: the
#: default); `agent`: the name of the agent. `owner`: the worker that runs the turn; `claim_number`: the number of its
#: claim (the fencing token). `attempt` counts the workers that ran it and died. `cancel_reason`: why the turn is to
#: end. `text`: the text so far, or the final text. `chunks`: the platform's ids of the reply's messages. `usage`: the
#: model calls (`core.usage.meter`); `cost`: their price, once they are in `spending`. `run_record`: see
#: `core.agents.run_record`; a reset deletes it.
turns = sa.Table(
    "turns",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("session", sa.Text, nullable=False, index=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text, nullable=False, server_default="message"),
    sa.Column("parent", sa.Text),
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("run", sa.Text),
    sa.Column("model", sa.Text),
    sa.Column("agent", sa.Text, nullable=False, server_default=""),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="1"),
    sa.Column("claim_number", sa.Integer, nullable=False, server_default="1"),
    sa.Column("owner", sa.Text),
    sa.Column("cancel_reason", sa.Text),
    sa.Column("text", sa.Text),
    sa.Column("chunks", sa.JSON, nullable=False),
    sa.Column("usage", sa.JSON(none_as_null=True)),
    sa.Column("cost", sa.BigInteger),
    sa.Column("run_record", sa.JSON(none_as_null=True)),
    sa.Column("error", sa.Text),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("finished_at", sa.Double),
)
sa.Index(
    "ix_turns_one_active",
    turns.c.session,
    unique=True,
    sqlite_where=turns.c.state.in_(ACTIVE_STATES),
    postgresql_where=turns.c.state.in_(ACTIVE_STATES),
)

sa.Index("ix_turns_finished_at", turns.c.finished_at)
sa.Index(
    "ix_turns_uncounted",
    turns.c.finished_at,
    sqlite_where=turns.c.finished_at.is_not(None) & turns.c.cost.is_(None),
    postgresql_where=turns.c.finished_at.is_not(None) & turns.c.cost.is_(None),
)

#: Ratings of answers, `good` or `bad`: the last one of each author. A reset deletes them, and so does the deletion of
#: the turn.
feedback = sa.Table(
    "feedback",
    metadata,
    sa.Column("turn", sa.Text, sa.ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("author", sa.Text, primary_key=True),
    sa.Column("rating", sa.Text, nullable=False),
    sa.Column("rated_at", sa.Double, nullable=False),
)

#: Requests of runs to people. `kind`: `approval` (of a tool call) or `question`. `turn`: the turn that asks; `run`: the
#: ADK invocation that continues when all requests of the turn are decided. `call_id`: ADK's call that waits;
#: `tool_call_id`: the call to approve, or the call that asks; `arguments_hash`: see `tool_calls`. Arguments at
#: `secret_paths` are not shown. `tool_hash`: see `core.tools.adk_confirmations.ApprovalRule`. `authors`: the authors of
#: the messages that led to the call; `speakers`: all people whose words are in the run; `deciders`: see
#: `core.tools.human_requests`. `chunks`: the platform's ids of the request's message; `address`: the place of the
#: result. `decision` is null while the request is open; `decided_by` and `decided_by_name` are the id and the name of
#: the person. `answer`: the answer to a question; `answer_authors`: the users who gave it. If a message continues the
#: asking run, `answer` is null, and `answer_run` is the run of that message. `drafts`: the entries of each person in a
#: form, by user id. A row is deleted with its turn, and by a reset.
human_requests = sa.Table(
    "human_requests",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("turn", sa.Text, sa.ForeignKey("turns.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("session", sa.Text, nullable=False, index=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("call_id", sa.Text, nullable=False),
    sa.Column("tool_call_id", sa.Text, nullable=False),
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("arguments", sa.JSON, nullable=False),
    sa.Column("arguments_hash", sa.Text, nullable=False),
    sa.Column("hint", sa.Text, nullable=False),
    sa.Column("authors", sa.JSON, nullable=False),
    sa.Column("speakers", sa.JSON, nullable=False),
    sa.Column("deciders", sa.JSON, nullable=False),
    sa.Column("may_allow_always", sa.Boolean, nullable=False),
    sa.Column("secret_paths", sa.JSON, nullable=False),
    sa.Column("tool_hash", sa.Text, nullable=False),
    sa.Column("requested_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("chunks", sa.JSON, nullable=False),
    sa.Column("address", sa.JSON(none_as_null=True)),
    sa.Column("decision", sa.Text),
    sa.Column("decided_by", sa.Text),
    sa.Column("decided_by_name", sa.Text),
    sa.Column("decided_at", sa.Double),
    sa.Column("answer", JsonText(none_as_null=True)),
    sa.Column("answer_authors", sa.JSON, nullable=False),
    sa.Column("answer_run", sa.Text),
    sa.Column("drafts", sa.JSON, nullable=False),
    sa.Column("account", sa.JSON(none_as_null=True)),
)
sa.Index(
    "ix_human_requests_open",
    human_requests.c.expires_at,
    sqlite_where=human_requests.c.decision.is_(None),
    postgresql_where=human_requests.c.decision.is_(None),
)

#: Running processes. A worker is alive until `lease_expires_at`, by the database's clock, and renews its lease; other
#: workers take over its turns after that. `rate_limit_usage`: the worker's use of each platform rate limit: its replies
#: in progress and its calls. Until `no_shards_until` the worker connects no gateway shards.
workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("lease_expires_at", sa.Double, nullable=False),
    sa.Column("rate_limit_usage", sa.JSON, nullable=False),
    sa.Column("no_shards_until", sa.Double),
)

#: Notices of denials: until `expires_at` the user gets no further notice of this `kind`. `kind`: `access`, `rate` (too
#: many messages) or `command` (too many commands). `user_key`: the platform's name, a colon, and the platform's id of
#: the user.
denial_notices = sa.Table(
    "denial_notices",
    metadata,
    sa.Column("user_key", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("expires_at", sa.Double, nullable=False),
)

#: One row, written by health checks to see whether the database takes writes.
write_checks = sa.Table(
    "write_checks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("written_at", sa.Double, nullable=False),
)

#: Platforms over all workers, or their gateway shards. `owner`: the worker that is connected, where only one may be;
#: `watermark`: the time until which all messages are stored; `next_identify_at`: when the next gateway session may
#: begin. The table has its name from version 0.1.0.
platforms = sa.Table(
    "channels",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text),
    sa.Column("watermark", sa.Double),
    sa.Column("next_identify_at", sa.Double),
)

#: Tool calls, stored before they are made: `begun`, then `ended` with the result and the side effects (`actions`, such
#: as state changes). `run`: the ADK invocation; `arguments_hash`: the SHA-256 of the arguments as canonical JSON. A row
#: that stays `begun` is an interrupted call.
tool_calls = sa.Table(
    "tool_calls",
    metadata,
    sa.Column("session", sa.Text, primary_key=True),
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("arguments", sa.JSON, nullable=False),
    sa.Column("arguments_hash", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("result", JsonText(none_as_null=True)),
    sa.Column("actions", sa.JSON(none_as_null=True)),
    sa.Column("started_at", sa.Double, nullable=False, index=True),
)

#: Stored ADK events, each once by ADK's event id, with the columns for people and searches. `role`: user (begins a
#: run), steering (of a user, read by a run in progress), assistant, tool, or event (without text, such as a checkpoint,
#: a compaction, an error). `tokens`: an estimate for model calls.
#: `long_running_calls` keeps a row in the history: its long-running calls, each with whether it was answered, until the
#: turn after the last answer; empty for a summary; null for all others. `summarized_id`: of a summary, the last
#: message that it covers; earlier messages are not sent. `attribution`: of a message of users, its authors, see
#: `core.sessions.prompt_text`. `files`: of a user message, its `PromptFile`s; null without files. `search_text`: the
#: content for case-insensitive searches; null if it is ASCII or not searched, see `core.sessions.codec.fold_text`.
#: Secrets of the run are masked in all columns but `unmasked`, which only the run itself reads: see
#: `core.sessions.codec.mask_row`. It is null without secrets, and after `TURN_RETENTION_DAYS`.
messages = sa.Table(
    "messages",
    metadata,
    sa.Column("id", Serial, primary_key=True, autoincrement=True),
    sa.Column("session", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("invocation_id", sa.Text, nullable=False, server_default=""),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("author", sa.Text, nullable=False, server_default=""),
    sa.Column("content", sa.Text, nullable=False, server_default=""),
    sa.Column("search_text", sa.Text),
    sa.Column("tool_calls", sa.JSON, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
    sa.Column("long_running_calls", sa.JSON(none_as_null=True)),
    sa.Column("summarized_id", sa.BigInteger),
    sa.Column("attribution", sa.JSON(none_as_null=True)),
    sa.Column("files", sa.JSON(none_as_null=True)),
    sa.Column("event_id", sa.Text),
    sa.Column("event", sa.Text),
    sa.Column("unmasked", JsonText(none_as_null=True)),
    sa.Column("created_at", sa.Double, nullable=False),
)
#: Without the generation in the index, and without statistics, PostgreSQL reads and sorts the whole history.
sa.Index("ix_messages_history", messages.c.session, messages.c.id, messages.c.generation)
sa.Index("ix_messages_event_id", messages.c.session, messages.c.event_id, unique=True)
sa.Index(
    "ix_messages_long_running_calls",
    messages.c.session,
    messages.c.generation,
    messages.c.id,
    sqlite_where=messages.c.long_running_calls.is_not(None),
    postgresql_where=messages.c.long_running_calls.is_not(None),
)

sa.Index(
    "ix_messages_files",
    messages.c.session,
    messages.c.id,
    sqlite_where=messages.c.files.is_not(None),
    postgresql_where=messages.c.files.is_not(None),
)
sa.Index(
    "ix_messages_unmasked",
    messages.c.created_at,
    sqlite_where=messages.c.unmasked.is_not(None),
    postgresql_where=messages.c.unmasked.is_not(None),
)

#: As a literal: neither database uses a partial index for a condition with a parameter.
IS_USER_MESSAGE = messages.c.role == sa.literal_column("'user'")
sa.Index(
    "ix_messages_turns",
    messages.c.session,
    messages.c.generation,
    messages.c.id,
    messages.c.role,  # SQLite counts from the index alone only if all columns of the condition are in it
    sqlite_where=IS_USER_MESSAGE,
    postgresql_where=IS_USER_MESSAGE,
)

#: ADK's state by scope: `app` (owner: the app), `user` (owner: app and user as a JSON list), `session` (owner:
#: the session's id). A key may be there with the value null.
state = sa.Table(
    "state",
    metadata,
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", JsonText, nullable=False),
)

#: Files in a session's messages, by the SHA-256 of their bytes; the stored ADK events have only this hash.
blobs = sa.Table(
    "blobs",
    metadata,
    sa.Column("session", sa.Text, primary_key=True),
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

#: Secrets by name, encrypted together with the name by the operator's key. A row is valid until `expires_at`.
vault = sa.Table(
    "vault",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("ciphertext", sa.Text, nullable=False),
    sa.Column("expires_at", sa.Double),
)

#: Prompts of a turn's model calls, each encrypted together with the turn's id: see `core.privacy.prompts`. A deletion
#: sets `ciphertext` to null; the row stays until its turn is deleted, and tells that there was a prompt.
prompts = sa.Table(
    "prompts",
    metadata,
    sa.Column("id", Serial, primary_key=True, autoincrement=True),
    sa.Column("turn", sa.Text, sa.ForeignKey("turns.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("called_at", sa.Double, nullable=False),
    sa.Column("ciphertext", sa.Text),
)
sa.Index(
    "ix_prompts_called_at",
    prompts.c.called_at,
    sqlite_where=prompts.c.ciphertext.is_not(None),
    postgresql_where=prompts.c.ciphertext.is_not(None),
)

#: Files that tools made: each version, by name and owner (`scope` and `owner` as in `state`). `run`: the ADK invocation
#: that saved it in that `session`; `turn`: its turn; `part`: the ADK part without its bytes.
artifacts = sa.Table(
    "artifacts",
    metadata,
    sa.Column("id", Serial, primary_key=True, autoincrement=True),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("session", sa.Text),
    sa.Column("run", sa.Text),
    sa.Column("turn", sa.Text),
    sa.Column("mime_type", sa.Text),
    sa.Column("is_text", sa.Boolean, nullable=False),
    sa.Column("part", sa.Text, nullable=False),
    sa.Column("data", sa.LargeBinary),
    sa.Column("custom_metadata", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.UniqueConstraint("scope", "owner", "name", "version"),
)
sa.Index("ix_artifacts_session_run", artifacts.c.session, artifacts.c.run)

#: The ledger: one row per model call. The rows stay when the turns are deleted. `turn` is set only on estimated rows,
#: which are replaced when the turn ends: under spending limits, a running turn has them for its calls so far and for
#: the reserved cost of its next call. `day` is the day (UTC) on which the turn began. `author` is the author of the
#: turn's newest message, as the platform's name, a colon and the platform's id, and `name` is their name; both are
#: empty for people who were deleted. `cost` is in trillionths of a dollar; `unpriced` counts the tokens of models
#: without a known price, which are not in the cost.
spending = sa.Table(
    "spending",
    metadata,
    sa.Column("id", Serial, primary_key=True, autoincrement=True),
    sa.Column("turn", sa.Text),
    sa.Column("day", sa.Text, nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("place", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("input", sa.BigInteger, nullable=False),
    sa.Column("output", sa.BigInteger, nullable=False),
    sa.Column("cached", sa.BigInteger, nullable=False),
    sa.Column("cache_write", sa.BigInteger, nullable=False),
    sa.Column("unpriced", sa.BigInteger, nullable=False),
    sa.Column("cost", sa.BigInteger, nullable=False),
)
sa.Index("ix_spending_author", spending.c.author, spending.c.day)
sa.Index("ix_spending_place", spending.c.place, spending.c.day)
sa.Index("ix_spending_day", spending.c.day, spending.c.model, spending.c.cost)
sa.Index(
    "ix_spending_turn",
    spending.c.turn,
    sqlite_where=spending.c.turn.is_not(None),
    postgresql_where=spending.c.turn.is_not(None),
)

#: Memories of an agent (`app`) at a place (`user_id`), once per `key`. The memories of a `session` are deleted with it.
#: `search_text` as in `messages`.
memories = sa.Table(
    "memories",
    metadata,
    sa.Column("id", Serial, primary_key=True, autoincrement=True),
    sa.Column("app", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("session", sa.Text, index=True),
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("search_text", sa.Text),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.UniqueConstraint("app", "user_id", "key"),
)

#: Schedules of people. `state`: `proposed` until a person confirms it or the zone is known, `active`, or `paused`.
#: `message`: the `InboxMessage` that it sends, with the author's place; its text is a task, or shown as it is if
#: `is_plain`. `is_direct`: sent as a direct message to the author. `starts_at`: local time in ISO 8601, in `time_zone`
#: (IANA; null: unknown), or with an offset. `rule`: RRULE; null for once. `next_at`: the next time; null if it is not
#: active. `turn`: the `Turn.origin` that made it. `speakers`: the ids of the people who may confirm it; null:
#: anybody; empty: only a time zone is missing.
schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("session", sa.Text, nullable=False, index=True),
    sa.Column("place", sa.Text, nullable=False),
    sa.Column("platform", sa.Text, nullable=False),
    sa.Column("author", sa.Text, nullable=False, index=True),
    sa.Column("message", sa.JSON, nullable=False),
    sa.Column("is_plain", sa.Boolean, nullable=False),
    sa.Column("is_direct", sa.Boolean, nullable=False),
    sa.Column("starts_at", sa.Text, nullable=False),
    sa.Column("time_zone", sa.Text),
    sa.Column("rule", sa.Text),
    sa.Column("next_at", sa.Double),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("speakers", sa.JSON(none_as_null=True)),
    sa.Column("turn", sa.Text, nullable=False, index=True),
    sa.Column("created_at", sa.Double, nullable=False),
)
sa.Index(
    "ix_schedules_next_at",
    schedules.c.next_at,
    sqlite_where=schedules.c.next_at.is_not(None),
    postgresql_where=schedules.c.next_at.is_not(None),
)

#: Background jobs: tool calls whose result comes after their turn. `owner`: the worker that runs it; null if another
#: program finishes it by the ticket, whose key has the SHA-256 `key_hash`, or by the tool's own id of it
#: (`external_id`). `message`: the `InboxMessage` that begins the turn with the result; its text is the call. It is null
#: once the job has ended. `state`: `running`, `finished`, `cancelled`. `turn`: the turn that made it; `run`: the ADK
#: invocation, null once the run is discarded: the same call is then another job.
jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("session", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("place", sa.Text, nullable=False),
    sa.Column("platform", sa.Text, nullable=False),
    sa.Column("author", sa.Text, nullable=False, index=True),
    sa.Column("message", sa.JSON(none_as_null=True)),
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("turn", sa.Text, nullable=False),
    sa.Column("run", sa.Text),
    sa.Column("call_id", sa.Text, nullable=False),
    sa.Column("owner", sa.Text),
    sa.Column("key_hash", sa.Text),
    sa.Column("external_id", sa.Text),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("finished_at", sa.Double),
)
sa.Index("ix_jobs_call", jobs.c.session, jobs.c.run, jobs.c.call_id, unique=True)
#: As a literal: neither database uses a partial index for a condition with a parameter.
IS_RUNNING_JOB = jobs.c.state == sa.literal_column("'running'")
sa.Index("ix_jobs_running", jobs.c.owner, sqlite_where=IS_RUNNING_JOB, postgresql_where=IS_RUNNING_JOB)

#: Time zones (IANA) that people have chosen, by the platform's name, a colon, and the platform's id of the user.
time_zones = sa.Table(
    "time_zones",
    metadata,
    sa.Column("user_key", sa.Text, primary_key=True),
    sa.Column("zone", sa.Text, nullable=False),
)

#: Credentials that people gave for tools, which are in `vault`: see `core.signin.credentials`. `workspace`: empty on
#: Discord. `app`: the ADK app. `fingerprint`: see `SignInTarget`. `kind`: `CredentialKind`. `account`: its name at the
#: service; empty if unknown. `state`: `active`, `refreshing` (a worker does it since `refresh_started_at`), or `lost`:
#: the service does not accept it any more. `expires_at`: of the access token; null if unknown.
sign_ins = sa.Table(
    "sign_ins",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("platform", sa.Text, nullable=False),
    sa.Column("workspace", sa.Text, nullable=False),
    sa.Column("person", sa.Text, nullable=False),
    sa.Column("app", sa.Text, nullable=False),
    sa.Column("credential_key", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("scopes", sa.JSON, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("refresh_started_at", sa.Double),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("used_at", sa.Double),
    sa.Column("expires_at", sa.Double),
)
sa.Index(
    "ix_sign_ins_person",
    sign_ins.c.platform,
    sign_ins.c.person,
    sign_ins.c.workspace,
    sign_ins.c.app,
    sign_ins.c.credential_key,
    sign_ins.c.fingerprint,
    unique=True,
)
