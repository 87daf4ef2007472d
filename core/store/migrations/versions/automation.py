"""Turns that begin by themselves: schedules, background jobs, and the time zones of people."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("message", sa.JSON(), nullable=False),
        sa.Column("is_plain", sa.Boolean(), nullable=False),
        sa.Column("is_direct", sa.Boolean(), nullable=False),
        sa.Column("starts_at", sa.Text(), nullable=False),
        sa.Column("time_zone", sa.Text(), nullable=True),
        sa.Column("rule", sa.Text(), nullable=True),
        sa.Column("next_at", sa.Double(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("speakers", sa.JSON(), nullable=True),
        sa.Column("turn", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_schedules"),
    )
    for column in ("author", "session", "turn"):
        op.create_index(f"ix_schedules_{column}", "schedules", [column])
    is_due = sa.text("next_at IS NOT NULL")
    op.create_index("ix_schedules_next_at", "schedules", ["next_at"], sqlite_where=is_due, postgresql_where=is_due)
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("message", sa.JSON(), nullable=True),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("turn", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=True),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("key_hash", sa.Text(), nullable=True),
        sa.Column("external_id", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_author", "jobs", ["author"])
    op.create_index("ix_jobs_call", "jobs", ["session", "run", "call_id"], unique=True)
    is_running = sa.text("state = 'running'")
    op.create_index("ix_jobs_running", "jobs", ["owner"], sqlite_where=is_running, postgresql_where=is_running)
    op.create_table(
        "time_zones",
        sa.Column("user_key", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("user_key", name="pk_time_zones"),
    )
