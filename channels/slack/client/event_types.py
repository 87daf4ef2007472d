"""The events of Slack that the bot asks for: what it does with each is in `channels.slack.adapter`."""

#: Slack's own button to stop was pressed.
STOPPED = "agent_session_stopped"

#: Somebody opens the messages with the bot.
OPENED = "app_home_opened"

#: The app was taken out of a workspace; and tokens are good no more, for that or for another reason.
UNINSTALLED, REVOKED = "app_uninstalled", "tokens_revoked"

EVENTS = frozenset(
    {
        "app_mention",
        "message.channels",
        "message.groups",
        "message.im",
        "message.mpim",
        OPENED,
        STOPPED,
        UNINSTALLED,
        REVOKED,
    }
)
