"""Services that the adapters and the answerer of a process share."""

from dataclasses import dataclass, field

from channels.access import AccessPolicy
from channels.requests.request_message import RequestMessages
from channels.turns.update_after_edit import ReplyRerenderer
from core.concurrency.tasks import BackgroundTasks
from core.conversations.feedback import FeedbackStore
from core.conversations.service import ConversationService
from core.conversations.turn_report import TurnReports
from core.inbox.entries import EntryStore
from core.inbox.store import InboxStore
from core.messages.inbox_message import ReplyWithoutMention
from core.signin.browser import SignInFlow
from core.signin.credentials import CredentialStore
from core.tools.human_request_service import HumanRequestService
from core.turns.automation.job_runner import JobRunner
from core.turns.automation.schedules import ScheduleStore
from core.usage.spending_ledger import SpendingStore
from core.usage.user_rate_limits import DenialNoticeStore


@dataclass(frozen=True, slots=True)
class PlatformServices:
    """Services for the messages and interactions of users.

    Attributes:
        rerenderer: updates a reply after a user edited or deleted a message.
        entries: stores commands, button presses and forms until they are handled.
        jobs: runs background jobs, and stores those of all workers.
        denial_notices: limits how often the bot tells a user that they have no access.
        spending: reads the costs of the models.
        sign_ins: stores the connected accounts of people.
        background: starts tasks that are awaited at shutdown.
        access_policy: the users and places that the bot answers.
        sign_in_flow: creates links to sign in; None if sign-in is not set up.
        reply_without_mention: the messages without a mention that the bot answers in a conversation that it has joined.
    """

    inbox: InboxStore
    conversations: ConversationService
    feedback: FeedbackStore
    rerenderer: ReplyRerenderer
    human_requests: HumanRequestService
    request_messages: RequestMessages
    entries: EntryStore
    schedules: ScheduleStore
    jobs: JobRunner
    turn_reports: TurnReports
    denial_notices: DenialNoticeStore
    spending: SpendingStore
    sign_ins: CredentialStore
    background: BackgroundTasks
    access_policy: AccessPolicy = field(default_factory=AccessPolicy)
    reply_without_mention: ReplyWithoutMention = "author"
    sign_in_flow: SignInFlow | None = None
