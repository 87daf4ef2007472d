"""Interfaces of a platform: `Platform` reads and shows messages, `PlatformAdapter` receives its events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp.web import AbstractRouteDef

from channels.base import MessageText, SurroundingMessages
from channels.rate_limits.registry import RateLimiters
from channels.replies.surface import Surface
from core.conversations.history_state import HistoryState
from core.errors import SurfaceError
from core.messages.inbox_message import Attachment, InboxMessage
from core.models import media
from core.models.provider import SupportedFiles


class UnreadableFileError(SurfaceError):
    """A file cannot be downloaded, or the model cannot read it.

    The error's text is a clause for the model, such as "it cannot be fetched right now".

    Attributes:
        status: the HTTP status with which the download failed: 503 if the platform cannot be reached, 403 for a login
            page. It is 0 for a file that is refused for another reason, such as its size.
    """

    def __init__(self, reason: str, *, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status


def too_large(max_bytes: int) -> UnreadableFileError:
    return UnreadableFileError(f"it is larger than my limit of {media.format_size(max_bytes)}")


@dataclass(frozen=True, slots=True)
class FileCheck:
    """Check of a file's size and type before it is downloaded for the model."""

    supported: SupportedFiles
    max_bytes: int

    def __call__(self, file: Attachment) -> None:
        """Check the size and type of a file, as far as they are known, or raise `UnreadableFileError`."""
        if file.size > self.max_bytes:
            raise too_large(self.max_bytes)
        if kind := media.guess_mime_type(file.name, file.mime_type):
            self.check_type(kind, file.size)

    def check_type(self, kind: str, size: int) -> None:
        """Check that the model can read this MIME type and size (0 if unknown), or raise `UnreadableFileError`."""
        if media.is_text_type(kind):
            return
        if kind not in self.supported.max_bytes:
            raise UnreadableFileError("I cannot read files of this type")
        if not self.supported.supports(kind, size):
            raise too_large(self.supported.max_bytes[kind])


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """Downloaded file of a message; its metadata has the size and type from the HTTP response."""

    file: Attachment
    data: bytes


class Platform(Protocol):
    """Slack or Discord: reads messages, and creates the surfaces that show replies.

    Its name is that of `InboxMessage.platform`.
    """

    @property
    def name(self) -> str: ...

    @property
    def max_menu_options(self) -> int: ...

    @property
    def limiters(self) -> RateLimiters: ...

    def create_surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> Surface:
        """Return a new surface that shows the reply to a message.

        The `turn_id` marks the reply's messages on the platform, so that `find_message_ids` finds them; empty for none.
        """
        ...

    def side_message_address(self, address: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """Return the address for a message beside a reply, such as an approval.

        `create_surface` with this address and `name` as `turn_id` returns the surface for the message. The name is the
        id of the approval or question, with which the ids of its buttons end. The address is on Slack `address` itself,
        on Discord with `name` as `side_name`.
        """
        ...

    def reply_address(self, address: Mapping[str, Any], message_id: str) -> Mapping[str, Any]:
        """Return the address of the reply after the decision on a request, an approval or a question.

        It is stored with the request. The turn that resumes the run shows its reply there. The address is on Slack
        `address` itself, on Discord with the id of the request's message.
        """
        ...

    def can_post(self, address: Mapping[str, Any]) -> bool:
        """Return whether the bot can post at an address later; False on Discord where it only responds privately."""
        ...

    async def get_locale(self, inbound: InboxMessage) -> str:
        """Return the locale of a message's author, or of their Discord server, such as `ko-KR`; empty if unknown."""
        ...

    async def read_message(self, inbound: InboxMessage) -> MessageText:
        """Return the text of a stored message for the prompt, with names in place of ids.

        Raises:
            SurfaceError: the app was uninstalled from the Slack workspace, or its token cannot be read.
        """
        ...

    async def fetch_file(self, inbound: InboxMessage, file: Attachment, check: FileCheck) -> FetchedFile:
        """Download a file of a message.

        `check` is called once the platform's response has the size or the type, before the file is downloaded.

        Raises:
            UnreadableFileError: the file is not available, or `check` refuses it.
        """
        ...

    async def fetch_context(
        self, messages: Sequence[InboxMessage], history: HistoryState | None
    ) -> SurroundingMessages:
        """Fetch the context messages of a turn from the platform, or raise `SurfaceError`.

        These are the messages that the turn's messages quote or forward. In a thread, they also are other people's
        messages since the stored history ends, up to the newest message of the turn. The history is None in a
        conversation with only one person.
        """
        ...


class Platforms(dict[str, Platform]):
    """Platforms by name; `SurfaceError` for one that is not set up."""

    def __missing__(self, name: str) -> Platform:
        raise SurfaceError(f"the platform {name} is not set up")


class PlatformAdapter(Protocol):
    """Connection to a platform: receives messages and interactions.

    At most `heartbeat_interval` seconds lie between two events or heartbeats of a working connection.
    """

    @property
    def name(self) -> str: ...

    @property
    def heartbeat_interval(self) -> float: ...

    @property
    def routes(self) -> Sequence[AbstractRouteDef]: ...

    async def start(self) -> None:
        """Connect to the platform, and return once the connection receives messages.

        Raises:
            SettingsError: the platform refuses the credentials, or no connection is made in time.
        """
        ...

    async def stop(self) -> None:
        """Stop receiving messages; replies can still be shown."""
        ...

    def last_event_at(self) -> float:
        """Return the time of the last event or heartbeat from the platform; 0 before the first.

        Of several Slack connections, the newest time counts; of several Discord shards, the oldest. Exceptions:

        - Discord, while no shard is connected: the time since which the worker has had shards and no connection.
        - Slack in HTTP mode: the present time, while requests are accepted.
        - Slack in both modes: never later than the time at which the bot's token was last found valid.
        """
        ...

    async def place(self, message: InboxMessage, may_exist: bool) -> InboxMessage | None:
        """Post the message under which an entry that no person wrote begins: see `core.inbox.triggered.Place`."""
        ...

    async def reconnect(self) -> None:
        """Close connections without recent events (on Slack all); start to open new ones.

        In Slack's HTTP mode there are none, and nothing is done.
        """
        ...
