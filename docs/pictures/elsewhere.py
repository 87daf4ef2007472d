"""The scenes that are played with the bot set up otherwise."""

from docs.pictures.events import LOOP_LIMIT
from docs.pictures.scene import Scene, Setup

_QUIET = Setup(
    (
        Scene(
            "discord-quiet",
            "discord",
            "library",
            """
            ada: @parley what are the seven wonders?
            ~ The answer is there
            =
            + whom that notifies
            """,
        ),
        Scene(
            "discord-person",
            "discord",
            "bikes",
            """
            ada: @parley my bike is red
            ~ I shall remember it.
            ~ Regenerate
            grace: @parley which colour has the bike?
            ~ You have not told me.
            =
            + what the model read
            """,
        ),
        Scene(
            "slack-single",
            "slack",
            "",
            """
            ada: how do I undo a commit?
            ~ Regenerate
            ada: and what is a rebase?
            ~ It moves commits
            =
            """,
        ),
        Scene(
            "answer-file",
            "discord",
            "books",
            """
            ada: @parley read Moby Dick to me
            ~ answer.md
            =
            """,
        ),
        Scene(
            "restart",
            "discord",
            "harbour",
            """
            ada: @parley when do we set out?
            ~ At dawn
            ~ Regenerate
            + the bot is stopped
            + the bot is started
            ada: /press regenerate
            ~ At noon
            =
            """,
        ),
    ),
    {
        "DISCORD_CHANNEL_SESSIONS": "user",
        "DISCORD_SILENT_MESSAGES": "1",
        "DISCORD_PING_AFTER_SECONDS": "1",
        "REPLY_MAX_MESSAGES": "1",
        "SLACK_DM_SESSIONS": "single",
    },
)

_WIDE = Setup(
    (
        Scene(
            "auto-thread",
            "discord",
            "questions",
            """
            ada: @parley how do I undo a commit?
            ~ git reset
            ada: /thread last
            ada: and what is a rebase?
            ~ It moves commits
            =
            """,
        ),
        Scene(
            "bot-loop",
            "slack",
            "robots",
            """
            ada: @parley say hello to the robot
            ~ Hello
            ~ Regenerate
            + the robot answers each time
            =
            """,
        ),
        Scene(
            "two-sockets",
            "slack",
            "harbour",
            """
            + Slack renews the sockets
            ada: @parley who is on call?
            ~ Linus is.
            =
            """,
        ),
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
        "SLACK_ALLOW_BOTS": "1",
        "SLACK_BOT_LOOP_LIMIT": str(LOOP_LIMIT),
        "DISCORD_AUTO_THREAD": "1",
        "DISCORD_SHARD_COUNT": "2",
        "SLACK_SOCKETS": "2",
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
            "slack-http",
            "slack",
            "harbour",
            """
            + Slack verifies the address
            ada: @parley who is on call?
            ~ Linus is.
            =
            + a stranger calls
            """,
        ),
        Scene(
            "external",
            "slack",
            "fair",
            """
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

SETUPS = (_QUIET, _WIDE, _HTTP, _SEVERAL)
