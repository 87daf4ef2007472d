"""Scenes of the pages, grouped by the settings of the bot."""

from docs.pictures.scene import Scene, Setup

_DEFAULT = Setup(
    (
        Scene(
            "invite",
            "discord",
            "",
            """
            $ parley manifest discord
            """,
        ),
    ),
    {},
)

_SHARDED = Setup(
    (
        Scene(
            "shards",
            "discord",
            "harbour",
            """
            $ parley status | grep discord:
            """,
        ),
        Scene(
            "no-intent",
            "discord",
            "",
            """
            + disable the intent
            $ parley check | grep intent
            + enable the intent
            """,
        ),
        Scene(
            "invite-threads",
            "discord",
            "",
            """
            $ parley manifest discord
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
            $ parley manifest slack | grep your-bot | sort | uniq -c
            """,
        ),
        Scene(
            "external",
            "slack",
            "fair",
            """
            + verify the request URL
            + add an external user
            mira: @parley who is on call?
            ~ nobody else
            =
            """,
        ),
    ),
    {"SLACK_APP_TOKEN": "", "SLACK_MODE": "http", "SLACK_SIGNING_SECRET": "signing-secret"},
)

_WORKSPACES = Setup(
    (
        Scene(
            "workspaces",
            "slack",
            "harbour",
            """
            + install in Simulator
            ada: @parley who is on call?
            ~ Linus is.
            =
            + install in Partner
            + ask in Partner
            + uninstall from Partner
            + ask in Partner after the removal
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

SETUPS: tuple[Setup, ...] = (_DEFAULT, _SHARDED, _HTTP, _WORKSPACES)
