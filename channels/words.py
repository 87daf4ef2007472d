"""What the bot says in its own name."""

PLACEHOLDER = "…"
NO_ANSWER = "I have no answer to that."
RESET_DONE = "Started over: I remember nothing of this conversation."
NOTHING_TO_RESET = "There is no conversation of yours here that I remember."
NOT_HERE = "I am not set up to answer here."
RESET_STOPPED = "_Stopped: this conversation was started over._"
STOPPED = "_Stopped._"
RESTARTING = "_I am being restarted, and go on with this in a moment._"
TRIED = "I was interrupted several times while I answered this."
TOO_LONG = "This took longer than I may take."
RETRY = "Retry"
NOT_YOURS = "Only the person who asked can have this tried again."
OVER = "This cannot be tried again any more."
GOES_ON = "_The answer goes on; all of it will be in a file._"
IN_FILE = "_The whole answer is in the file answer.md._"

FORBIDDEN = "I may not write in {place}. Ask somebody who runs the server to let me, then ask me again."
LOCKED = "{place} is locked, so I cannot answer there."
READY = "The answer is there."


def sorry(sentence: str) -> str:
    return f"⚠️ {sentence}"


def apology(sentence: str, turn_id: str) -> str:
    """One sentence for the user, with the id that an operator can find the cause by."""
    return sorry(f"{sentence} (turn `{turn_id}`)")


def waited(seconds: int) -> str:
    return f" ({seconds} s)"


def using(tool: str) -> str:
    return f"_Using {tool.replace('_', ' ')}…_"
