"""Scenes that the real bot plays for the pages, by its settings."""

from docs.pictures.scene import Scene, Setup

_DEFAULT = Setup(
    (
        Scene(
            "invite",
            "discord",
            "",
            """
            $ .venv/bin/parley manifest discord
            """,
        ),
    ),
    {},
)

_WIDE = Setup(
    (
        Scene(
            "shards",
            "discord",
            "harbour",
            """
            $ .venv/bin/parley status | grep discord:
            """,
        ),
        Scene(
            "no-intent",
            "discord",
            "",
            """
            + the intent is switched off
            $ .venv/bin/parley check | grep intent
            + the intent is switched on
            """,
        ),
        Scene(
            "invite-threads",
            "discord",
            "",
            """
            $ .venv/bin/parley manifest discord
            """,
        ),
    ),
    {
        "DISCORD_AUTO_THREAD": "1",
        "DISCORD_SHARD_COUNT": "2",
    },
)

_HTTP = Setup(
    (
        Scene(
            "manifest-http",
            "slack",
            "",
            """
            $ .venv/bin/parley manifest slack | grep your-bot | sort | uniq -c
            """,
        ),
        Scene(
            "external",
            "slack",
            "fair",
            """
            + Slack verifies the address
            + mira comes from outside
            mira: @parley who is on call?
            ~ nobody else
            =
            """,
        ),
    ),
    {"SLACK_APP_TOKEN": "", "SLACK_MODE": "http", "SLACK_SIGNING_SECRET": "signing-secret"},
)

_SEVERAL = Setup(
    (
        Scene(
            "workspaces",
            "slack",
            "harbour",
            """
            + ada installs it in Sandbox
            ada: @parley who is on call?
            ~ Linus is.
            =
            + ada installs it in Partner
            + ada asks in Partner
            + Partner removes it
            + ada asks in Partner in vain
            """,
        ),
    ),
    {
        "SECRET_KEY": "0123456789abcdef0123456789abcdef",
        "SLACK_BOT_TOKEN": "",
        "SLACK_CLIENT_ID": "client-id",
        "SLACK_CLIENT_SECRET": "client-secret",
    },
)

SETUPS: tuple[Setup, ...] = (_DEFAULT, _WIDE, _HTTP, _SEVERAL)
