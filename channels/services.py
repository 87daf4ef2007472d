"""Services of the core that all channels of a process share."""

from dataclasses import dataclass, field
from typing import Protocol

from channels.access import AccessPolicy
from core.conversations.feedback import FeedbackStore
from core.conversations.service import ConversationService
from core.conversations.turn_report import TurnReports
from core.inbox.interactions import InteractionQueue
from core.inbox.store import InboxStore
from core.inbox_message import ReplyWithoutMention
from core.tools.human_request_service import HumanRequestService
from core.tools.human_requests import HumanRequest
from core.usage.spending import SpendingStore
from core.usage.user_rate_limits import DenialNoticeStore


class UpdateRequestMessage(Protocol):
    """Signature of `Answerer.update_request_message`."""

    async def __call__(self, request: HumanRequest, *, is_void: bool = False, page: int = 0) -> None: ...


class RerenderReply(Protocol):
    """Signature of `Answerer.rerender_reply`."""

    async def __call__(self, turn_id: str, *, ending: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class ChannelServices:
    """Services of the core with which adapters handle what users send.

    Attributes:
        refusals: limits how often a user is told that they have no access.
        follow: the messages without a mention that the bot answers in a conversation that it has joined.
    """

    inbox: InboxStore
    conversations: ConversationService
    feedback: FeedbackStore
    rerender_reply: RerenderReply
    human_requests: HumanRequestService
    update_request_message: UpdateRequestMessage
    interactions: InteractionQueue
    turn_reports: TurnReports
    refusals: DenialNoticeStore
    spending: SpendingStore
    access_policy: AccessPolicy = field(default_factory=AccessPolicy)
    follow: ReplyWithoutMention = "author"
