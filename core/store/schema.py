"""The tables. One schema for SQLite and PostgreSQL; `migrations/` says how a database comes to have it."""

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


class JsonText(sa.TypeDecorator[Any]):
    """Any JSON value, kept as text.

    SQLite gives a column of the type JSON the affinity NUMERIC, which changes numbers: 1.0 becomes 1, 2**63 a float.
    A damaged value is read as None, as in other JSON columns.

    Args:
        none_as_null: store None as NULL instead of JSON's null.
    """

    impl = sa.Text
    cache_ok = True

    def __init__(self, *, none_as_null: bool = False) -> None:
        super().__init__()
        self.none_as_null = none_as_null

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        return None if value is None and self.none_as_null else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        try:
            return None if value is None else json.loads(value)
        except ValueError:
            return None


#: A conversation. A reset begins a new generation of it; `generation` and `created_at` together tell one life
#: of a conversation from every other, even from that of a deleted one under the same id. `updated_at` is when it was
#: begun or reset, or its state changed; its messages know their own times. `model` is the one that was chosen for it,
#: by its full name (null: the default), `agent` the agent (null: as the rules on places say), and `muted` keeps the bot
#: from answering there uncalled: a reset changes none of them. `app` is the default agent's, whichever answers.
#: `folder` is the worker that is making a summary of what was said there.
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
    sa.Column("summarizing_worker", sa.Text),
)
sa.Index("ix_sessions_app_user_id", sessions.c.app, sessions.c.user_id)

#: One accepted message of a platform, under a key that a second delivery has as well. `inbound` is the message; a reset
#: takes it away, and the key stays. `revised` is the message as it was edited when a turn had taken it already. A row
#: that asks for the messages of a turn to be answered once more has that turn for its `parent`, and for its `kind` how
#: (see `turns`); so has one that says that all was decided which a turn had asked for (`approval`). `outcome` is why
#: no turn answers it: `core.inbox_message.InboxOutcome`.
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
)
sa.Index("ix_inbox_session", inbox.c.session, inbox.c.sent_at)
sa.Index("ix_inbox_place_author", inbox.c.place, inbox.c.author, inbox.c.sent_at)
sa.Index("ix_inbox_author", inbox.c.author, inbox.c.accepted_at)
sa.Index("ix_inbox_place", inbox.c.place, inbox.c.accepted_at)
#: Without what no turn has taken: SQLite would look there for what waits, among all that is never answered.
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

#: One run of the agent on its way to an answer, for all messages that name it. A turn that answers them once more has
#: the turn before it for a `parent`, and for its `kind` how it does: `retry` goes on with what the one that failed has
#: stored, `regenerate` begins behind the question, `revise` with the question as it was edited. `origin` is the first
#: in the line of parents, the turn itself if it has none: what its run stores is stored under that. One that goes on
#: with what another turn had asked a person for (`approval`) has that turn for a `parent`, but is the first in a line
#: of its own; `run` is what it stores under. `model` is the one that was chosen for it (null: the default), `agent` the
#: name of the one that answers. `owner` is the worker that runs it, by the `claims`-th claim (the fencing token);
#: `attempt` is one more than the leases that expired while a worker had it; `cancel` is why it is to be ended.
#: `usage` is what it has asked of models (`core.usage.meter`), and `cost` what that came to (`spending`), once it is
#: counted there. `receipt` is what it was made of, as far as its run can tell (`core.agents.run_record`); it
#: goes with what was said when the session is reset.
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

#: What a reader thinks of a turn's answer, `good` or `bad`: the newest word of each. It goes with the turn, and with
#: what was said when the session is reset.
feedback = sa.Table(
    "feedback",
    metadata,
    sa.Column("turn", sa.Text, sa.ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("author", sa.Text, primary_key=True),
    sa.Column("rating", sa.Text, nullable=False),
    sa.Column("rated_at", sa.Double, nullable=False),
)

#: One call of a tool that waits for a person's word. `turn` is the one that asks, `run` the ADK invocation that goes on
#: when all that the turn asks for is decided; `call` is ADK's call that asks, `asks_for` the tool's own, and `hash`
#: that of its arguments (see `tool_calls`). Arguments at `secret_paths` are not shown. `askers` are the authors of what
#: led to it, and `approvers` who may decide: see `core.tools.approvals`.
#: `chunks` are the platform's ids of the message that shows it, and `address` where the result is shown. `decision` is
#: null as long as there is none; `decided_by` and `decider` are the id and the name of the person who made it. The row
#: is deleted with its turn, and when the session is reset.
approvals = sa.Table(
    "approvals",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("turn", sa.Text, sa.ForeignKey("turns.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("session", sa.Text, nullable=False, index=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("confirmation_call_id", sa.Text, nullable=False),
    sa.Column("tool_call_id", sa.Text, nullable=False),
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("arguments", sa.JSON, nullable=False),
    sa.Column("arguments_hash", sa.Text, nullable=False),
    sa.Column("hint", sa.Text, nullable=False),
    sa.Column("authors", sa.JSON, nullable=False),
    sa.Column("approvers", sa.JSON, nullable=False),
    sa.Column("can_allow_always", sa.Boolean, nullable=False),
    sa.Column("secret_paths", sa.JSON, nullable=False),
    sa.Column("requested_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("chunks", sa.JSON, nullable=False),
    sa.Column("address", sa.JSON(none_as_null=True)),
    sa.Column("decision", sa.Text),
    sa.Column("decided_by", sa.Text),
    sa.Column("decided_by_name", sa.Text),
    sa.Column("decided_at", sa.Double),
)
sa.Index(
    "ix_approvals_open",
    approvals.c.expires_at,
    sqlite_where=approvals.c.decision.is_(None),
    postgresql_where=approvals.c.decision.is_(None),
)

#: One running process. It works for as long as its lease lasts, by the database's clock, and lengthens it all the
#: while; a turn whose owner's lease has ended, or who is not here, is anybody's. `live` is what it uses of each of
#: the platforms' rate limits: how many replies share it, and how many calls count. Until `unfit_until` it takes no
#: shards.
workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("lease_expires_at", sa.Double, nullable=False),
    sa.Column("rate_limit_usage", sa.JSON, nullable=False),
    sa.Column("no_shards_until", sa.Double),
)

#: Until when (seconds since the epoch) somebody is not told again that he is not answered, by why he is not: he may not
#: speak (`door`), or has spoken too often (`rate`). `person` is the platform's name and his id.
denial_notices = sa.Table(
    "denial_notices",
    metadata,
    sa.Column("user_key", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("expires_at", sa.Double, nullable=False),
)

#: One row, written now and then to see whether the database takes what is written: when it last did.
write_checks = sa.Table(
    "write_checks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("written_at", sa.Double, nullable=False),
)

#: What somebody has asked for that is no message, until it is done by its `owner`: see `core.inbox.interactions`.
interactions = sa.Table(
    "interactions",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("started_at", sa.Double, nullable=False),
)

#: A platform's adapter, over all workers, or one shard of it: the worker that hears it, where only one may; until when
#: all that was said has been heard; and when the next gateway session may begin.
channels = sa.Table(
    "channels",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text),
    sa.Column("watermark", sa.Double),
    sa.Column("next_identify_at", sa.Double),
)

#: One call of a tool, from before it is made: `begun`, then `ended` with its result, as the model is told it, and with
#: what it did besides (`actions`: changes of the state, say). `run` is the ADK invocation, `hash` the SHA-256 of the
#: arguments as canonical JSON. A row that stays `begun` is of a call that was broken off.
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

#: One stored ADK event, beside what people and searches read of it: once, by the id that ADK has given it (null in what
#: was imported). `role` is user, assistant, tool, or event
#: for what carries no words (an agent's checkpoint, a compaction, an error). `tokens` is what it costs to send.
#: `held` keeps a row from being cut out of the history: the long-running calls that it made, each with whether
#: it was answered, until the turn after the last answer; empty for ever (a compaction); null for all others.
#: `covers` is, of a summary, the last message that it tells of: what came before is not sent any more. `spoken` is, of
#: what people said, who they are: see `core.sessions.prompt_text`. `folded` is the content for searches that ignore
#: case, null if that is ASCII or nobody searches it: see `core.sessions.codec.fold_text`.
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
    sa.Column("last_covered_id", sa.BigInteger),
    sa.Column("attribution", sa.JSON(none_as_null=True)),
    sa.Column("event_id", sa.Text),
    sa.Column("event", sa.Text),
    sa.Column("created_at", sa.Double, nullable=False),
)
#: PostgreSQL: with the generation in it, a life's newest messages are found in their order, also where nothing is known
#: of the table yet. (Without, the whole history is read and sorted, since little is expected of it.)
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

#: Bytes of a session's messages, by the SHA-256 of their content; events hold references.
blobs = sa.Table(
    "blobs",
    metadata,
    sa.Column("session", sa.Text, primary_key=True),
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

#: What must not be read by whoever gets hold of the database, by name: encrypted, name and all, with the operator's
#: key. What is good for some time only is taken away after `expires_at`.
vault = sa.Table(
    "vault",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("ciphertext", sa.Text, nullable=False),
    sa.Column("expires_at", sa.Double),
)

#: What tools have made: each version of a file, by its name and whose it is (`scope` and `owner` as in `state`). `run`
#: is the ADK invocation that has saved it, in that `session`, and `turn` the turn that ran it; `part` what there is of
#: it besides its bytes.
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

#: The ledger: one row per model call. It outlives the turns. `turn` is set only on the provisional rows of a running
#: turn, its calls so far and the reserved cost of the next one, which exist where there are spending limits. `day` is
#: the day (UTC) on which the turn began. `person` is the author of the turn's newest message, as the platform's name, a
#: colon and the platform's id, and `name` that person's name; both are empty for people who were deleted. `cost` is in
#: trillionths of a dollar; `unpriced` counts the tokens of models without a known price, which are not in the cost.
spending = sa.Table(
    "spending",
    metadata,
    sa.Column("id", Serial, primary_key=True, autoincrement=True),
    sa.Column("turn", sa.Text),
    sa.Column("day", sa.Text, nullable=False),
    sa.Column("person", sa.Text, nullable=False),
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
sa.Index("ix_spending_person", spending.c.person, spending.c.day)
sa.Index("ix_spending_place", spending.c.place, spending.c.day)
sa.Index("ix_spending_day", spending.c.day, spending.c.model, spending.c.cost)
sa.Index(
    "ix_spending_turn",
    spending.c.turn,
    sqlite_where=spending.c.turn.is_not(None),
    postgresql_where=spending.c.turn.is_not(None),
)

#: What an agent (`app`) was told to remember of what was said at a place (`user_id`), once by its `key`; what came of a
#: `session` goes with it. `folded` as in `messages`.
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
