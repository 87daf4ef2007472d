"""The scenes that are played with the bot as most people have it."""

from docs.pictures.scene import Scene, Setup

_SCENES = (
    Scene(
        "slack-suggestions",
        "slack",
        "",
        """
        + grace opens the direct messages
        grace: What is the capital of Japan?
        ~ Tokyo
        =
        + session
        """,
    ),
    Scene(
        "slack-buttons",
        "slack",
        "launch",
        """
        ada: @parley when do we ship?
        ~ Ship it
        ~ Regenerate
        ada: /press regenerate
        ~ On Monday
        ~ Regenerate
        ada: /press good
        =
        """,
    ),
    Scene(
        "discord-buttons",
        "discord",
        "launch",
        """
        ada: @parley when do we sail?
        ~ At dawn
        ~ Regenerate
        grace: /press regenerate
        ~ asked
        =
        """,
    ),
    Scene(
        "discord-retry",
        "discord",
        "weather",
        """
        ada: @parley will it rain?
        ~ Retry
        =
        ada: /press retry
        ~ It stays dry.
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "stop",
        "discord",
        "stories",
        """
        ada: @parley tell me a long story
        ~ Once upon a time
        *
        ada: /press stop
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "slack-stop",
        "slack",
        "",
        """
        ada: tell me a long story
        ~ Once upon a time
        ada: /press stop
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "edit",
        "slack",
        "colours",
        """
        ada: @parley why is the sea blue?
        ~ Regenerate
        ada: /edit @parley why is the sky blue?
        ~ Answer the edited message
        =
        ada: /press answer
        ~ Air scatters
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "edit-calls",
        "discord",
        "oncall",
        """
        ada: who is on call?
        ada: /edit @parley who is on call?
        ~ Linus is.
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "group",
        "slack",
        "pager",
        """
        + ada asks about names
        ~ Ada and Grace
        =
        + what the model read
        """,
    ),
    Scene(
        "bots",
        "slack",
        "robots",
        """
        + a robot calls the bot
        =
        """,
    ),
    Scene(
        "free",
        "discord",
        "help-desk",
        """
        ada: how do I undo a commit?
        ~ git reset
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "delete",
        "discord",
        "errands",
        """
        ada: @parley who feeds the cat?
        ~ Regenerate
        ada: /delete
        ~ deleted
        =
        """,
    ),
    Scene(
        "waiting",
        "discord",
        "queue",
        """
        ada: @parley count the stars
        ~ One, two
        grace: @parley and the planets?
        ~ 👀
        *
        + let the model go on
        ~ Eight.
        ~ Regenerate
        =
        """,
    ),
    Scene(
        "follow",
        "slack",
        "team",
        """
        ada: @parley who is on call?
        ~ Linus is.
        ada: /thread last
        ada: until when?
        ~ Until Friday.
        grace: Ada, did you see the build?
        ada: yes, it is green
        ada: @parley mute
        ~ keep quiet
        =
        """,
    ),
    Scene(
        "context",
        "slack",
        "builds",
        """
        grace: The build of Friday failed twice.
        grace: /thread last
        linus: Something with the disk, I think.
        ada: @parley what is this about?
        ~ A full disk
        =
        + what the model read
        """,
    ),
    Scene(
        "quotation",
        "discord",
        "builds",
        """
        grace: The build of Friday failed twice.
        + ada replies to that
        ~ It is:
        =
        + what the model read
        """,
    ),
    Scene(
        "files",
        "slack",
        "plans",
        """
        ada: /file plan.csv @parley what is on Monday?
        ~ Writing.
        =
        + what the model read
        """,
    ),
    Scene(
        "files-out",
        "discord",
        "numbers",
        """
        ada: @parley make the report
        ~ report.csv
        =
        """,
    ),
    Scene(
        "slack-commands",
        "slack",
        "desk",
        """
        ada: @parley how do I undo a commit?
        ~ git reset
        ada: @parley what is a rebase?
        ~ It moves commits
        ada: /agent-status
        ~ Remembered
        ada: /model openai/other
        ~ openai/other
        ada: /reset
        ~ Which conversation
        =
        ada: /press how do I
        ~ Started over
        =
        """,
    ),
    Scene(
        "discord-commands",
        "discord",
        "desk",
        """
        ada: /ask question:what is a rebase?
        ~ It moves commits
        + ada begins to type /model
        ada: /model openai/other
        ~ openai/other
        ada: /status
        ~ Remembered
        ada: /export
        ~ transcript.md
        + what is in the file
        ada: /reset
        ~ Started over
        =
        """,
    ),
    Scene(
        "slack-menu",
        "slack",
        "reviews",
        """
        grace: The parser is twice as fast since Tuesday.
        ada: /menu ask about this: is that good?
        ~ It is.
        =
        """,
    ),
    Scene(
        "discord-menu",
        "discord",
        "reviews",
        """
        grace: The parser is twice as fast since Tuesday.
        ada: /menu ask
        ~ It is.
        =
        """,
    ),
    Scene(
        "korean",
        "slack",
        "seoul",
        """
        minji: @parley help
        ~ reset
        =
        """,
    ),
    Scene(
        "forum",
        "discord",
        "ideas",
        """
        ada: @parley how about a dark mode?
        ~ Why not?
        ada: /thread last
        ada: and a light one?
        ~ That, too.
        =
        """,
    ),
    Scene(
        "slack-over",
        "slack",
        "again",
        """
        ada: @parley how do I undo a commit?
        ~ git reset
        ada: /thread last
        ada: @parley reset
        ~ Started over
        ada: what is a rebase?
        ~ It moves commits
        ada: /menu start over
        ~ nobody else
        =
        """,
    ),
    Scene(
        "slack-export",
        "slack",
        "minutes",
        """
        ada: @parley what is a rebase?
        ~ It moves commits
        ada: /export
        ~ Conversation
        =
        """,
    ),
    Scene(
        "slack-files-out",
        "slack",
        "numbers",
        """
        ada: @parley make the report for us
        ~ report.csv
        =
        """,
    ),
    Scene(
        "slack-why",
        "slack",
        "figures",
        """
        grace: The numbers of Friday look odd.
        grace: /thread last
        ada: /file b.zip @parley make me a report of Friday
        ~ There it is
        ~ Regenerate
        ada: /press why
        ~ made of
        =
        """,
    ),
    Scene(
        "discord-direct",
        "discord",
        "",
        """
        grace: What is the capital of Japan?
        ~ Tokyo
        =
        """,
    ),
    Scene(
        "discord-thread",
        "discord",
        "incidents",
        """
        grace: The build of Friday failed twice.
        linus: /thread last
        linus: Something with the disk, I think.
        ada: @parley what is this about?
        ~ A full disk
        =
        + what the model read
        """,
    ),
    Scene(
        "forwarded",
        "discord",
        "alarms",
        """
        grace: The disk of build-7 is full.
        + ada forwards that
        ada: /dm
        ~ Delete
        =
        + what the model read
        """,
    ),
    Scene(
        "aside",
        "discord",
        "",
        """
        + ada opens a group
        ada: /ask question:what is a rebase?
        ~ It moves commits
        =
        """,
    ),
    Scene(
        "forbidden",
        "discord",
        "notices",
        """
        + the bot may not write
        linus: @parley what is a rebase?
        linus: /dm
        ~ I may not write
        =
        + the bot may write
        """,
    ),
    Scene(
        "invite",
        "discord",
        "",
        """
        $ .venv/bin/parley manifest discord
        """,
    ),
)

SETUP = Setup(
    _SCENES,
    {"DISCORD_FREE_CHANNEL_IDS": "channel:help-desk", "MODELS": "openai/scripted,openai/other"},
)
