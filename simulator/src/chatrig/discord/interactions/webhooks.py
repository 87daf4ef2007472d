"""REST routes of webhooks.

The bot responds to an interaction by the same routes: the interaction's token is used as that of a webhook. Discord:
docs.discord.com/developers/resources/webhook.
"""

from collections.abc import Callable

from chatrig.discord.api.base import DiscordRestApi
from chatrig.discord.api.message_content import parse_content
from chatrig.discord.api.messages import SETTABLE_FLAGS, MessageRoutes
from chatrig.discord.api.requests import (
    INVALID_CHANNEL_TYPE,
    INVALID_WEBHOOK_TOKEN,
    NEEDS_THREAD,
    NO_CONTENT,
    ONLY_FORUM_THREADS,
    THREAD_AND_NAME,
    UNKNOWN_CHANNEL,
    UNKNOWN_MESSAGE,
    UNKNOWN_WEBHOOK,
    ApiRequest,
    ApiResponse,
    DiscordError,
    create_form_error,
    parse_bool,
)
from chatrig.discord.interactions.delivery import DiscordInteractions
from chatrig.discord.state.integrations import Webhook
from chatrig.discord.state.messages import DiscordMessage, DiscordUser, GuildChannel, GuildEvent

Handler = Callable[[ApiRequest], ApiResponse]


class WebhookRoutes:
    def __init__(self, api: DiscordRestApi, messages: MessageRoutes, interactions: DiscordInteractions) -> None:
        self._api = api
        self._guild = api.guild
        self._messages = messages
        api.add_route("POST /channels/{channel}/webhooks", self._create_webhook)
        api.add_route("GET /channels/{channel}/webhooks", self._list_webhooks)
        api.add_route("GET /guilds/{guild}/webhooks", self._list_webhooks)
        for path in ("/webhooks/{application}", "/webhooks/{application}/{token}"):
            api.add_route(f"GET {path}", self._get_webhook)
            api.add_route(f"PATCH {path}", self._rename_webhook)
            api.add_route(f"DELETE {path}", self._delete_webhook)
        message = "/webhooks/{application}/{token}/messages/{message}"
        for route, own_handler, interaction_handler in (
            ("POST /webhooks/{application}/{token}", self._post_message, interactions.create_follow_up),
            (f"GET {message}", self._get_message, interactions.get_response),
            (f"PATCH {message}", self._edit_message, interactions.edit_response),
            (f"DELETE {message}", self._delete_message, interactions.delete_response),
        ):
            api.add_route(route, self._select_handler(own_handler, interaction_handler))

    def _select_handler(self, own_handler: Handler, interaction_handler: Handler) -> Handler:
        def handle(request: ApiRequest) -> ApiResponse:
            is_webhook = request.path_ids["application"] in self._guild.integrations.webhooks
            return (own_handler if is_webhook else interaction_handler)(request)

        return handle

    # Webhooks

    def _create_webhook(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.get_channel(request, "manage_webhooks")
        if not channel.is_in_guild or channel.is_thread:
            raise DiscordError(400, INVALID_CHANNEL_TYPE, "Cannot execute action on this channel type")
        webhook = self._guild.integrations.add_webhook(channel.id, self._parse_name(request))
        self._guild.emit(GuildEvent("WEBHOOKS_UPDATE", channel))
        return ApiResponse(self._payload(webhook))

    def _list_webhooks(self, request: ApiRequest) -> ApiResponse:
        """Return the webhooks of the channel in a request's path.

        If the path has no channel, return all webhooks of the server.
        """
        self._api.check_guild(request)
        self._api.check_permissions("manage_webhooks")
        channel_id = self._api.get_channel(request).id if "channel" in request.path_ids else None
        webhooks = self._guild.integrations.webhooks.values()
        return ApiResponse([self._payload(hook) for hook in webhooks if channel_id in (None, hook.channel_id)])

    def _get_webhook(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self._payload(self._find_webhook(request)))

    def _rename_webhook(self, request: ApiRequest) -> ApiResponse:
        webhook = self._find_webhook(request)
        if "name" in request.form:
            webhook.name = self._parse_name(request)
        self._guild.emit(GuildEvent("WEBHOOKS_UPDATE", self._guild.channels[webhook.channel_id]))
        return ApiResponse(self._payload(webhook))

    def _delete_webhook(self, request: ApiRequest) -> ApiResponse:
        webhook = self._find_webhook(request)
        del self._guild.integrations.webhooks[webhook.id]
        self._guild.emit(GuildEvent("WEBHOOKS_UPDATE", self._guild.channels[webhook.channel_id]))
        return NO_CONTENT

    def _find_webhook(self, request: ApiRequest) -> Webhook:
        webhook = self._guild.integrations.webhooks.get(request.path_ids["application"])
        if webhook is None:
            raise DiscordError(404, UNKNOWN_WEBHOOK, "Unknown Webhook")
        if request.path_ids.get("token", webhook.token) != webhook.token:
            raise DiscordError(401, INVALID_WEBHOOK_TOKEN, "Invalid Webhook Token")
        return webhook

    def _payload(self, webhook: Webhook) -> dict[str, object]:
        return self._api.payloads.webhook(webhook, with_token=True)

    @staticmethod
    def _parse_name(request: ApiRequest) -> str:
        """Return the name of a webhook in a request.

        Raises:
            DiscordError: 50035, the name contains `clyde` or `discord`.
        """
        name: str = request.form["name"]
        if any(word in name.casefold() for word in ("clyde", "discord")):
            raise create_form_error("name", "USERNAME_INVALID_CONTAINS", 'Username cannot contain "discord"')
        return name

    # Messages

    def _post_message(self, request: ApiRequest) -> ApiResponse:
        """Post a message as a webhook.

        The response is the message's JSON if `wait` in the query is true, otherwise empty.
        """
        webhook, form = self._find_webhook(request), request.form
        content = parse_content(request.body, form)
        author = DiscordUser(webhook.id, form.get("username") or webhook.name, webhook.name, is_bot=True)
        flags = int(form.get("flags") or 0) & SETTABLE_FLAGS
        channel = self._find_channel(request, webhook, author, form.get("thread_name"))
        message = self._guild.post_message(channel, author, content, flags=flags, webhook_id=webhook.id)
        return ApiResponse(self._api.payloads.message(message)) if parse_bool(request.query, "wait") else NO_CONTENT

    def _find_channel(
        self, request: ApiRequest, webhook: Webhook, author: DiscordUser, thread_name: str | None
    ) -> GuildChannel:
        """Return the channel or thread in which a webhook posts a message.

        With `thread_name`, a new forum post is started and returned. Otherwise it is the thread with the id `thread_id`
        in the query or, without that, the webhook's channel.

        Args:
            author: the webhook as the author of the message.
            thread_name: name of the new forum post; None for none.

        Raises:
            DiscordError: the thread does not exist, or the names do not fit the channel.
        """
        channel, thread_id = self._guild.channels[webhook.channel_id], request.query.get("thread_id")
        if channel.kind != "forum" and thread_name:
            raise DiscordError(400, ONLY_FORUM_THREADS, "Webhooks can only create threads in forum channels")
        if thread_name and thread_id:
            message = "Webhooks posted to forum channels cannot have both a thread_name and thread_id"
            raise DiscordError(400, THREAD_AND_NAME, message)
        if thread_name:
            return self._guild.start_thread(channel, thread_name, author)
        if thread_id is None and channel.kind == "forum":
            raise DiscordError(
                400, NEEDS_THREAD, "Webhooks posted to forum channels must have a thread_name or thread_id"
            )
        if thread_id is None:
            return channel
        thread = self._guild.channels.get(thread_id)
        if thread is None or thread.parent is not channel:
            raise DiscordError(400, UNKNOWN_CHANNEL, "Unknown Channel")
        return thread

    def _get_message(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self._api.payloads.message(self._find_message(request)))

    def _edit_message(self, request: ApiRequest) -> ApiResponse:
        message = self._find_message(request)
        content = parse_content(request.body, request.form, message.content, flags=message.flags)
        self._guild.update_message(message, content)
        return ApiResponse(self._api.payloads.message(message))

    def _delete_message(self, request: ApiRequest) -> ApiResponse:
        self._guild.delete_message(self._find_message(request))
        return NO_CONTENT

    def _find_message(self, request: ApiRequest) -> DiscordMessage:
        webhook = self._find_webhook(request)
        place = self._guild.channels.get(request.query.get("thread_id") or webhook.channel_id)
        message = self._guild.find_message(place, request.path_ids["message"]) if place else None
        if message is None or message.webhook_id != webhook.id:
            raise DiscordError(404, UNKNOWN_MESSAGE, "Unknown Message")
        return message
