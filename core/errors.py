"""Every error that Parley raises on purpose.

    ParleyError
    ├── SettingsError            the settings prevent the start: one line per fault
    ├── StoreError               the database cannot be used, or its content is wrong
    │   ├── SchemaError          the schema is damaged, or newer than this version
    │   ├── SessionResetError    the session was reset before the write
    │   ├── UnreadableRowError   a stored row cannot be read, so that its turn or session fails
    │   ├── DatabaseClosedError  the database was closed: the process ends
    │   └── TurnLostError        another worker has claimed the turn
    ├── ToolError                a tool is declared or configured wrongly
    ├── ChatError                a tool cannot react or post in the conversation
    ├── ScheduleError            a schedule is refused: the text is for the model
    ├── TicketError              a ticket of a background job cannot be finished
    ├── QuestionSchemaError      ADK refuses the schema of an agent's question
    ├── InstructionError         an agent's instruction names an unknown variable
    ├── OutputSchemaError        an answer does not fit the agent's output_schema
    ├── StepLimitError           the run reached its limit of model calls
    ├── SpendingLimitError       a spending limit of today is reached
    │   ├── UserSpendingLimitError
    │   ├── AuthorSpendingLimitError
    │   ├── ChannelSpendingLimitError
    │   ├── ModelSpendingLimitError
    │   └── DailySpendingLimitError
    ├── SignInError              a person's sign-in at a service was refused, or its answer is wrong
    │   ├── GrantLostError           the service does not accept the refresh token any more
    │   ├── SignInLinkError          the link or a step of the sign-in is used, void or expired
    │   │   └── SignInDoneError      the account is connected already
    │   ├── OtherBrowserError        another browser began the sign-in
    │   └── OtherPersonError         the browser is not that of the link's person
    ├── SignInUnavailableError   the service of a sign-in cannot answer now: nothing is lost
    ├── SurfaceError             a reply cannot be shown, even after retries
    ├── ConnectionLostError      a platform connection sends nothing: the process restarts
    ├── ShutdownTimeoutError     a shutdown takes longer than it may: the process exits
    └── ProviderError            the model could not answer
        ├── ProviderAuthError        the key is missing, wrong, or may not use the model
        ├── ModelNotFoundError       no such model; names it
        ├── ProviderRateLimitError   too many requests, or the quota is used up
        ├── ProviderUnavailableError the provider is unreachable, overloaded or broke off
        ├── ProviderStreamError      the stream ended before the answer was complete
        │   └── ProviderTimeoutError     the stream sent nothing until the time limit
        ├── ProviderRequestError     the provider refused the request
        │   └── ContextLengthError       the request exceeds the model's context
        ├── LengthLimitError         the model reached its length limit before it wrote an answer
        └── ContentBlockedError      the provider's safety rules withheld the answer

`str(error)` is for operators and has no secrets. The exception of a library is only in
`__cause__`. `error.public` is the sentence that may be shown in a channel.
"""

from typing import Self


class ParleyError(Exception):
    """Base class of all errors that Parley raises on purpose.

    Attributes:
        public: the message that users may read, without secrets; `str` of the error is for operators.
    """

    public = "Something went wrong."


class SettingsError(ParleyError):
    """One or more faults in the settings, which prevent the start.

    Attributes:
        faults: one line per fault, with the name of the variable and the remedy.
    """

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class StoreError(ParleyError):
    """The database cannot be used, or its content is wrong.

    Attributes:
        retryable: whether the same operation may succeed a little later.
    """

    public = "I can't reach my database right now."
    retryable = True


class SchemaError(StoreError):
    """The schema is damaged, or newer than this version of Parley; nothing is changed."""

    retryable = False


class SessionResetError(StoreError):
    """A write comes too late: the session was reset after the run had begun.

    A reset ends a session generation; writes of the former generation store nothing.
    """

    public = "This conversation was reset."
    retryable = False

    @classmethod
    def of(cls, session_id: str, generation: int) -> Self:
        return cls(f"session {session_id} was reset: generation {generation} has ended")


class UnreadableRowError(StoreError):
    """A stored row, named in the text, cannot be read, so that its turn or session fails; a reset repairs it."""

    public = "I can't read this conversation's history. Send `reset` to start over."
    retryable = False


class DatabaseClosedError(StoreError):
    """The database is used after this process has closed it at its shutdown."""

    retryable = False

    def __init__(self) -> None:
        super().__init__("the database is closed: this process ends")


class TurnLostError(StoreError):
    """Another worker has claimed the turn that this worker ran.

    This worker must neither store nor show anything of the turn any more.
    """

    retryable = False


def is_permanent_store_error(error: Exception) -> bool:
    """Return whether an operation will fail with the same error again, on any worker.

    Every error is permanent except a retryable `StoreError`, `DatabaseClosedError` and `TurnLostError`.
    """
    return not (
        isinstance(error, StoreError) and (error.retryable or isinstance(error, DatabaseClosedError | TurnLostError))
    )


class ToolError(ParleyError):
    """A tool is declared or configured in a way that the agent cannot use."""


class ChatError(ParleyError):
    """A tool cannot react or post: the text has the limit that was reached, or the platform's reason."""


class ScheduleError(ParleyError):
    """A schedule is refused: the text says to the model why, and what to do."""


class TicketError(ParleyError):
    """A ticket cannot be finished: it is unknown or cancelled, or the key is wrong."""


class QuestionSchemaError(ParleyError):
    """A run failed: ADK refuses the `response_schema` of an agent's question.

    In the agent's code, ADK raises other errors; the runtime reports this one as the error of the run.
    """

    public = "The agent asked a question that I can't show. Please tell the operator."


class InstructionError(ParleyError):
    """A run failed: an agent's instruction names a variable or a file that the session does not have."""


class OutputSchemaError(ParleyError):
    """A run failed: the answer of a model does not fit the `output_schema` of its agent."""


class StepLimitError(ParleyError):
    public = "This took too many steps, so I stopped."


class SpendingLimitError(ParleyError):
    """A spending limit of the day is reached; no further model call is made.

    Attributes:
        facts: the values of the placeholders in `public`, by name: `cap` is the limit as text, such as `$5.00`.
    """

    def __init__(self, message: str, *, limit: str) -> None:
        super().__init__(message)
        self.facts = {"cap": limit}


class UserSpendingLimitError(SpendingLimitError):
    public = "You've reached your daily spending limit ({cap})."


class AuthorSpendingLimitError(SpendingLimitError):
    """One of several authors of a turn has no budget left, so that it is not run again."""

    public = "Somebody whose message this answers has reached their daily spending limit ({cap})."


class ChannelSpendingLimitError(SpendingLimitError):
    public = "This channel has reached its daily spending limit ({cap})."


class ModelSpendingLimitError(SpendingLimitError):
    public = "This model has reached its daily spending limit ({cap})."


class DailySpendingLimitError(SpendingLimitError):
    public = "This bot has reached its daily spending limit ({cap})."


class SignInError(ParleyError):
    """A sign-in at a service failed: it was declined, refused, or answered wrongly.

    Attributes:
        code: OAuth's `error`, such as `access_denied`; empty for an answer that OAuth does not allow.
    """

    public = "The sign-in didn't work. Please try again."

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class GrantLostError(SignInError):
    """The refresh token is revoked, expired or used, so that the person must sign in again."""

    public = "The sign-in isn't valid any more. Please sign in again."


class SignInLinkError(SignInError):
    """A link or a step of a sign-in is used, void or expired, or its request is decided."""

    public = "This link is used or expired. Press Connect in the chat again for a new link."


class SignInDoneError(SignInLinkError):
    """A page of a sign-in is loaded again after the account was connected."""

    public = "The account is connected already. You can close this page and go back to the chat."


class OtherBrowserError(SignInError):
    """A browser continues a sign-in that another browser began."""

    public = "You started in another browser. Press Connect in the chat again, and stay in one browser."


class OtherPersonError(SignInError):
    """A browser's user on the platform is not the person of the link.

    Attributes:
        facts: the values of the placeholders in `public`, by name.
    """

    public = "This link is only for {name}. In this browser, you are signed in to {platform} as somebody else."

    def __init__(self, message: str, *, name: str, platform: str) -> None:
        super().__init__(message)
        self.facts = {"name": name, "platform": platform}


class SignInUnavailableError(ParleyError):
    """The service of a sign-in is unreachable, overloaded, or refuses the bot itself; a later try may succeed."""

    public = "The service can't be reached right now. Please try again in a moment."


class SurfaceError(ParleyError):
    """A call of a platform fails, even after retries.

    The platform refuses the call, such as for an archived channel, or cannot be reached. So a reply is not shown, or a
    message, file or role is not fetched.
    """


class ConnectionLostError(ParleyError):
    """A connection to a platform receives neither events nor heartbeats any more."""


class ShutdownTimeoutError(ParleyError):
    """A shutdown takes longer than its time limit; the process exits anyway."""


class ProviderError(ParleyError):
    """The model could not answer.

    Attributes:
        retryable: whether the same request may succeed when it is sent again.
        retry_after: seconds that the provider asks to wait.
    """

    public = "The model couldn't answer."
    retryable = False

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ProviderAuthError(ProviderError):
    public = "The model's API key doesn't work. Please tell the operator."


class ModelNotFoundError(ProviderError):
    public = "The configured model doesn't exist. Please tell the operator."


class ProviderRateLimitError(ProviderError):
    public = "The model is busy. Please try again in a moment."
    retryable = True


class ProviderUnavailableError(ProviderError):
    public = "The model can't be reached right now. Please try again in a moment."
    retryable = True


class ProviderStreamError(ProviderError):
    public = "The model stopped in the middle of its answer. Please try again."
    retryable = True


class ProviderTimeoutError(ProviderStreamError):
    public = "The model didn't respond in time."


class ProviderRequestError(ProviderError):
    public = "The model refused this request."


class ContextLengthError(ProviderRequestError):
    """The request is longer than the context of the model.

    Only the providers of OpenAI (also for local models) and Anthropic raise it; Gemini's raises `ProviderRequestError`.
    """


class LengthLimitError(ProviderError):
    public = "The model reached its length limit before it could answer. Please ask for less at once."


class ContentBlockedError(ProviderError):
    public = "The model's safety filter blocked the answer."
