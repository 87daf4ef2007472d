"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("session", sa.Text(), nullable=True),
        sa.Column("run", sa.Text(), nullable=True),
        sa.Column("turn", sa.Text(), nullable=True),
        sa.Column("mime_type", sa.Text(), nullable=True),
        sa.Column("is_text", sa.Boolean(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=True),
        sa.Column("custom_metadata", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sa.UniqueConstraint("scope", "owner", "name", "version", name=op.f("uq_artifacts_scope_owner_name_version")),
    )
    op.create_index("ix_artifacts_session_run", "artifacts", ["session", "run"], unique=False)
    op.create_table(
        "memories",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("app", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=True),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("search_text", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_memories")),
        sa.UniqueConstraint("app", "user_id", "key", name=op.f("uq_memories_app_user_id_key")),
    )
    op.create_index(op.f("ix_memories_session"), "memories", ["session"], unique=False)
    op.create_table(
        "blobs",
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("session", "hash", name=op.f("pk_blobs")),
    )
    op.create_table(
        "channels",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("watermark", sa.Double(), nullable=True),
        sa.Column("next_identify_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_channels")),
    )
    op.create_table(
        "interactions",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_interactions")),
    )
    op.create_table(
        "inbox",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("event_key", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("message", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("sent_at", sa.Double(), nullable=False),
        sa.Column("accepted_at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="message", nullable=False),
        sa.Column("edited_message", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("parent", sa.Text(), nullable=True),
        sa.Column("turn", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inbox")),
        sa.UniqueConstraint("event_key", name=op.f("uq_inbox_event_key")),
    )
    op.create_index("ix_inbox_place_author", "inbox", ["place", "author", "sent_at"], unique=False)
    op.create_index("ix_inbox_session", "inbox", ["session", "sent_at"], unique=False)
    op.create_index("ix_inbox_author", "inbox", ["author", "accepted_at"], unique=False)
    op.create_index("ix_inbox_place", "inbox", ["place", "accepted_at"], unique=False)
    op.create_index(
        "ix_inbox_turn",
        "inbox",
        ["turn"],
        unique=False,
        sqlite_where=sa.text("turn IS NOT NULL"),
        postgresql_where=sa.text("turn IS NOT NULL"),
    )
    op.create_index("ix_inbox_accepted_at", "inbox", ["accepted_at"], unique=False)
    op.create_index(
        "ix_inbox_waiting",
        "inbox",
        ["session", "sent_at"],
        unique=False,
        sqlite_where=sa.text("turn IS NULL AND outcome IS NULL"),
        postgresql_where=sa.text("turn IS NULL AND outcome IS NULL"),
    )
    op.create_table(
        "messages",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("invocation_id", sa.Text(), server_default="", nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), server_default="", nullable=False),
        sa.Column("content", sa.Text(), server_default="", nullable=False),
        sa.Column("search_text", sa.Text(), nullable=True),
        sa.Column("tool_calls", sa.JSON(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("long_running_calls", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("summarized_id", sa.BigInteger(), nullable=True),
        sa.Column("attribution", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("files", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("event_id", sa.Text(), nullable=True),
        sa.Column("event", sa.Text(), nullable=True),
        sa.Column("unmasked", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
    )
    op.create_index("ix_messages_event_id", "messages", ["session", "event_id"], unique=True)
    op.create_index(
        "ix_messages_long_running_calls",
        "messages",
        ["session", "generation", "id"],
        unique=False,
        sqlite_where=sa.text("long_running_calls IS NOT NULL"),
        postgresql_where=sa.text("long_running_calls IS NOT NULL"),
    )
    op.create_index("ix_messages_history", "messages", ["session", "id", "generation"], unique=False)
    op.create_index(
        "ix_messages_files",
        "messages",
        ["session", "id"],
        unique=False,
        sqlite_where=sa.text("files IS NOT NULL"),
        postgresql_where=sa.text("files IS NOT NULL"),
    )
    op.create_index(
        "ix_messages_unmasked",
        "messages",
        ["created_at"],
        unique=False,
        sqlite_where=sa.text("unmasked IS NOT NULL"),
        postgresql_where=sa.text("unmasked IS NOT NULL"),
    )
    op.create_index(
        "ix_messages_turns",
        "messages",
        ["session", "generation", "id", "role"],
        unique=False,
        sqlite_where=sa.text("role = 'user'"),
        postgresql_where=sa.text("role = 'user'"),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("app", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default="1", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("agent", sa.Text(), nullable=True),
        sa.Column("is_muted", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
    )
    op.create_index("ix_sessions_app_user_id", "sessions", ["app", "user_id"], unique=False)
    op.create_table(
        "state",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "owner", "key", name=op.f("pk_state")),
    )
    op.create_table(
        "tool_calls",
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("arguments_hash", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("actions", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("session", "run", "id", name=op.f("pk_tool_calls")),
    )
    op.create_index(op.f("ix_tool_calls_started_at"), "tool_calls", ["started_at"], unique=False)
    op.create_table(
        "turns",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="message", nullable=False),
        sa.Column("parent", sa.Text(), nullable=True),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("agent", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="1", nullable=False),
        sa.Column("claim_number", sa.Integer(), server_default="1", nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("cancel_reason", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("chunks", sa.JSON(), nullable=False),
        sa.Column("usage", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("cost", sa.BigInteger(), nullable=True),
        sa.Column("run_record", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_turns")),
    )
    op.create_index(
        "ix_turns_one_active",
        "turns",
        ["session"],
        unique=True,
        sqlite_where=sa.text("state IN ('queued', 'running', 'answered')"),
        postgresql_where=sa.text("state IN ('queued', 'running', 'answered')"),
    )
    op.create_index(op.f("ix_turns_session"), "turns", ["session"], unique=False)
    op.create_index("ix_turns_finished_at", "turns", ["finished_at"], unique=False)
    op.create_index(
        "ix_turns_uncounted",
        "turns",
        ["finished_at"],
        unique=False,
        sqlite_where=sa.text("finished_at IS NOT NULL AND cost IS NULL"),
        postgresql_where=sa.text("finished_at IS NOT NULL AND cost IS NULL"),
    )
    op.create_table(
        "spending",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("turn", sa.Text(), nullable=True),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("input", sa.BigInteger(), nullable=False),
        sa.Column("output", sa.BigInteger(), nullable=False),
        sa.Column("cached", sa.BigInteger(), nullable=False),
        sa.Column("cache_write", sa.BigInteger(), nullable=False),
        sa.Column("unpriced", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spending")),
    )
    op.create_index("ix_spending_author", "spending", ["author", "day"], unique=False)
    op.create_index("ix_spending_place", "spending", ["place", "day"], unique=False)
    op.create_index("ix_spending_day", "spending", ["day", "model", "cost"], unique=False)
    op.create_index(
        "ix_spending_turn",
        "spending",
        ["turn"],
        unique=False,
        sqlite_where=sa.text("turn IS NOT NULL"),
        postgresql_where=sa.text("turn IS NOT NULL"),
    )
    op.create_table(
        "feedback",
        sa.Column("turn", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("rating", sa.Text(), nullable=False),
        sa.Column("rated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["turn"], ["turns.id"], name=op.f("fk_feedback_turn_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("turn", "author", name=op.f("pk_feedback")),
    )
    op.create_table(
        "human_requests",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("turn", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("tool_call_id", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("arguments_hash", sa.Text(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=False),
        sa.Column("authors", sa.JSON(), nullable=False),
        sa.Column("speakers", sa.JSON(), nullable=False),
        sa.Column("deciders", sa.JSON(), nullable=False),
        sa.Column("may_allow_always", sa.Boolean(), nullable=False),
        sa.Column("secret_paths", sa.JSON(), nullable=False),
        sa.Column("tool_hash", sa.Text(), nullable=False),
        sa.Column("requested_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("chunks", sa.JSON(), nullable=False),
        sa.Column("address", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("decision", sa.Text(), nullable=True),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("decided_by_name", sa.Text(), nullable=True),
        sa.Column("decided_at", sa.Double(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("answer_authors", sa.JSON(), nullable=False),
        sa.Column("answer_run", sa.Text(), nullable=True),
        sa.Column("drafts", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["turn"], ["turns.id"], name=op.f("fk_human_requests_turn_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_human_requests")),
    )
    op.create_index(op.f("ix_human_requests_turn"), "human_requests", ["turn"], unique=False)
    op.create_index(op.f("ix_human_requests_session"), "human_requests", ["session"], unique=False)
    op.create_index(
        "ix_human_requests_open",
        "human_requests",
        ["expires_at"],
        unique=False,
        sqlite_where=sa.text("decision IS NULL"),
        postgresql_where=sa.text("decision IS NULL"),
    )
    op.create_table(
        "write_checks",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("written_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_write_checks")),
    )
    op.create_table(
        "denial_notices",
        sa.Column("user_key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("user_key", "kind", name=op.f("pk_denial_notices")),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("lease_expires_at", sa.Double(), nullable=False),
        sa.Column("rate_limit_usage", sa.JSON(), nullable=False),
        sa.Column("no_shards_until", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_table(
        "vault",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ciphertext", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_vault")),
    )
    op.create_table(
        "prompts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("turn", sa.Text(), nullable=False),
        sa.Column("called_at", sa.Double(), nullable=False),
        sa.Column("ciphertext", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["turn"], ["turns.id"], name=op.f("fk_prompts_turn_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_prompts")),
    )
    op.create_index(op.f("ix_prompts_turn"), "prompts", ["turn"], unique=False)
    op.create_index(
        "ix_prompts_called_at",
        "prompts",
        ["called_at"],
        unique=False,
        sqlite_where=sa.text("ciphertext IS NOT NULL"),
        postgresql_where=sa.text("ciphertext IS NOT NULL"),
    )
