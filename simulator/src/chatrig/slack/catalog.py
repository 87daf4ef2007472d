"""Names of the methods and events of Slack's platform, in the simulator or not.

Methods: slackapi/java-slack-sdk, `json-logs/samples/api` at 86ff7ca9 (MIT), and the pages of newer methods at
docs.slack.dev/reference/methods; without `admin.*` and retired methods. Events and their scopes:
slackapi/slack-api-specs, `events-api` at bc08db49 (MIT), and the pages at docs.slack.dev/reference/events.
"""

from collections.abc import Mapping

_METHODS = """
    agents.sessions.rename agents.sessions.setStatus api.test apps.connections.open apps.event.authorizations.list
    apps.manifest.create apps.manifest.delete apps.manifest.export apps.manifest.update apps.manifest.validate
    apps.uninstall assistant.threads.setStatus assistant.threads.setSuggestedPrompts assistant.threads.setTitle
    auth.revoke auth.teams.list auth.test bookmarks.add bookmarks.edit bookmarks.list bookmarks.remove bots.info
    calls.add calls.end calls.info calls.participants.add calls.participants.remove calls.update
    canvases.access.delete canvases.access.set canvases.create canvases.delete canvases.edit
    canvases.sections.lookup chat.appendStream chat.delete chat.deleteScheduledMessage chat.getPermalink
    chat.meMessage chat.postEphemeral chat.postMessage chat.scheduleMessage chat.scheduledMessages.list
    chat.startStream chat.stopStream chat.unfurl chat.update conversations.acceptSharedInvite
    conversations.approveSharedInvite conversations.archive conversations.canvases.create conversations.close
    conversations.create conversations.declineSharedInvite conversations.externalInvitePermissions.set
    conversations.history conversations.info conversations.invite conversations.inviteShared conversations.join
    conversations.kick conversations.leave conversations.list conversations.listConnectInvites conversations.mark
    conversations.members conversations.open conversations.rename conversations.replies
    conversations.requestSharedInvite.approve conversations.requestSharedInvite.deny
    conversations.requestSharedInvite.list conversations.setPurpose conversations.setTopic conversations.unarchive
    dnd.endDnd dnd.endSnooze dnd.info dnd.setSnooze dnd.teamInfo emoji.list entity.presentDetails
    files.completeUploadExternal files.delete files.getUploadURLExternal files.info files.list files.remote.add
    files.remote.info files.remote.list files.remote.remove files.remote.share files.remote.update
    files.revokePublicURL files.sharedPublicURL functions.completeError functions.completeSuccess oauth.v2.access
    oauth.v2.exchange openid.connect.token openid.connect.userInfo pins.add pins.list pins.remove reactions.add
    reactions.get reactions.list reactions.remove reminders.add reminders.complete reminders.delete reminders.info
    reminders.list search.all search.files search.messages slackLists.access.delete slackLists.access.set
    slackLists.create slackLists.download.get slackLists.download.start slackLists.items.create
    slackLists.items.delete slackLists.items.deleteMultiple slackLists.items.info slackLists.items.list
    slackLists.items.update slackLists.update stars.add stars.list stars.remove team.accessLogs team.billableInfo
    team.billing.info team.externalTeams.disconnect team.externalTeams.list team.info team.integrationLogs
    team.preferences.list team.profile.get tooling.tokens.rotate usergroups.create usergroups.disable
    usergroups.enable usergroups.list usergroups.update usergroups.users.list usergroups.users.update
    users.conversations users.deletePhoto users.discoverableContacts.lookup users.getPresence users.identity
    users.info users.list users.lookupByEmail users.profile.get users.profile.set users.setPhoto users.setPresence
    views.open views.publish views.push views.update workflows.featured.add workflows.featured.list
    workflows.featured.remove workflows.featured.set
"""
METHODS = frozenset(_METHODS.split())

#: The events to which a bot can subscribe, each with the scopes of which it needs one.
EVENT_SCOPES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("agent_session_stopped", "app_context_changed"), ("assistant:write",)),
    **dict.fromkeys(
        (
            "app_deleted",
            "app_home_opened",
            "app_installed",
            "app_uninstalled",
            "app_uninstalled_team",
            "assistant_thread_context_changed",
            "assistant_thread_started",
            "entity_details_requested",
            "function_executed",
            "grid_migration_finished",
            "grid_migration_started",
            "tokens_revoked",
        ),
        (),
    ),
    "app_mention": ("app_mentions:read",),
    "call_rejected": ("calls:read",),
    **dict.fromkeys(
        (
            "channel_archive",
            "channel_created",
            "channel_deleted",
            "channel_id_changed",
            "channel_left",
            "channel_rename",
            "channel_unarchive",
        ),
        ("channels:read",),
    ),
    "channel_history_changed": ("channels:history", "groups:history", "mpim:history"),
    **dict.fromkeys(("channel_shared", "channel_unshared"), ("channels:read", "groups:read")),
    "dnd_updated_user": ("dnd:read",),
    "emoji_changed": ("emoji:read",),
    **dict.fromkeys(
        ("file_change", "file_created", "file_deleted", "file_public", "file_shared", "file_unshared"), ("files:read",)
    ),
    **dict.fromkeys(
        (
            "group_archive",
            "group_close",
            "group_deleted",
            "group_left",
            "group_open",
            "group_rename",
            "group_unarchive",
        ),
        ("groups:read",),
    ),
    "group_history_changed": ("groups:history",),
    **dict.fromkeys(("im_close", "im_created", "im_open"), ("im:read",)),
    "im_history_changed": ("im:history",),
    "link_shared": ("links:read",),
    **dict.fromkeys(("member_joined_channel", "member_left_channel"), ("channels:read", "groups:read")),
    "message.channels": ("channels:history",),
    "message.groups": ("groups:history",),
    "message.im": ("im:history",),
    "message.mpim": ("mpim:history",),
    **dict.fromkeys(
        ("message_metadata_deleted", "message_metadata_posted", "message_metadata_updated"), ("metadata.message:read",)
    ),
    **dict.fromkeys(("pin_added", "pin_removed"), ("pins:read",)),
    **dict.fromkeys(("reaction_added", "reaction_removed"), ("reactions:read",)),
    **dict.fromkeys(
        (
            "shared_channel_invite_accepted",
            "shared_channel_invite_approved",
            "shared_channel_invite_declined",
            "shared_channel_invite_received",
            "shared_channel_invite_requested",
        ),
        ("conversations.connect:manage", "conversations.connect:read"),
    ),
    **dict.fromkeys(("subteam_created", "subteam_members_changed", "subteam_updated"), ("usergroups:read",)),
    **dict.fromkeys(("email_domain_changed", "team_domain_change", "team_rename"), ("team:read",)),
    **dict.fromkeys(
        ("team_join", "user_change", "user_huddle_changed", "user_profile_changed", "user_status_changed"),
        ("users:read",),
    ),
}
