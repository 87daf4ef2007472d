"""Commands, presses and forms become rows of the inbox; user rate limits count by the time of the message."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("inbox", sa.Column("payload", sa.Text(), nullable=True))
    op.add_column("inbox", sa.Column("owner", sa.Text(), nullable=True))
    is_pending = sa.text("outcome = 'pending'")
    op.create_index("ix_inbox_pending", "inbox", ["id"], sqlite_where=is_pending, postgresql_where=is_pending)
    for column in ("author", "place"):
        op.drop_index(f"ix_inbox_{column}", "inbox")
        op.create_index(f"ix_inbox_{column}", "inbox", [column, "sent_at"])
    former = sa.table("interactions", *map(sa.column, _FORMER_COLUMNS), sa.column("payload", sa.JSON))
    inbox = sa.table("inbox", *map(sa.column, _COLUMNS))
    connection = op.get_bind()
    for row in connection.execute(sa.select(former)).all():
        values = (row.key, "", 1, f"{row.channel}:", "", row.started_at, row.started_at, "interaction")
        new = dict(zip(_COLUMNS, (*values, "pending", row.payload, row.owner), strict=True))
        connection.execute(sa.insert(inbox).values(new))
    op.drop_table("interactions")


_FORMER_COLUMNS = ("key", "channel", "owner", "started_at")

_COLUMNS = (
    *("event_key", "session", "generation", "place", "author", "sent_at", "accepted_at", "kind"),
    *("outcome", "payload", "owner"),
)
