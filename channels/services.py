"""Services of the core that all channels of a process share."""

from dataclasses import dataclass, field
from typing import Protocol

from channels.access import AccessPolicy
from core.conversations.feedback import FeedbackStore
from core.conversations.service import ConversationService
from core.conversations.turn_report import TurnReports
from core.inbox.entries import EntryStore
from core.inbox.store import InboxStore
from core.inbox_message import ReplyWithoutMention
from core.tools.human_request_service import HumanRequestService
from core.tools.human_requests import HumanRequest
from core.usage.spending import SpendingStore
from core.usage.user_rate_limits import DenialNoticeStore


class UpdateRequestMessage(Protocol):
    """Function that edits or posts the message of an approval or question.

    For its parameters and errors see `Answerer.update_request_message`.
    """

    async def __call__(self, request: HumanRequest, *, is_void: bool = False, page: int = 0) -> None: ...


class RerenderReply(Protocol):
    """Function that updates a turn's reply after a user edited or deleted a message.

    For its parameters and errors see `Answerer.rerender_reply`.
    """

    async def __call__(self, turn_id: str, *, ending: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class ChannelServices:
    """Services of the core that adapters call for messages and interactions of users.

    Attributes:
        inbox: stores the users' messages and commands.
        conversations: reads and changes sessions and their newest turns.
        feedback: stores the ratings of answers.
        rerender_reply: updates a reply after a user edited or deleted a message.
        human_requests: the store of approvals and of questions to users.
        update_request_message: posts or edits the message of an approval or question.
        entries: stores commands, button presses and forms until they are handled.
        turn_reports: reads the run records that "Why?" shows.
        denial_notices: limits how often the bot tells a user that they have no access.
        spending: reads the costs of the models.
        access_policy: the users and places that the bot answers.
        reply_without_mention: the messages without a mention that the bot answers in a conversation that it has joined.
    """

    inbox: InboxStore
    conversations: ConversationService
    feedback: FeedbackStore
    rerender_reply: RerenderReply
    human_requests: HumanRequestService
    update_request_message: UpdateRequestMessage
    entries: EntryStore
    turn_reports: TurnReports
    denial_notices: DenialNoticeStore
    spending: SpendingStore
    access_policy: AccessPolicy = field(default_factory=AccessPolicy)
    reply_without_mention: ReplyWithoutMention = "author"
