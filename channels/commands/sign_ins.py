"""Connected accounts: the list of a person's, and their deletion by the person or when they leave."""

import logging

from channels.commands.listed_items import ListedItem, shorten_title
from channels.commands.services import PlatformServices
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.markdown.times import format_time
from channels.replies.buttons import create_button
from channels.replies.tool_status import shorten_plain
from core.concurrency.retry import retry_store
from core.signin.credentials import CredentialStore, SignIn
from core.signin.target import Person

log = logging.getLogger(__name__)

#: The most characters of the scopes of an account in the list.
_MAX_SCOPES_CHARACTERS = 80


async def list_sign_ins(store: CredentialStore, person: Person, say: MessageCatalog) -> list[ListedItem]:
    """Return the connected accounts of a person."""
    return [
        ListedItem(
            shorten_title(" ".join(filter(None, [sign_in.label, sign_in.account]))),
            _describe(sign_in, say),
            [create_button("disconnect", sign_in.id, say)],
        )
        for sign_in in await store.list(person)
    ]


def _describe(sign_in: SignIn, say: MessageCatalog) -> str:
    parts = [
        f"**{shorten_title(sign_in.label)}**",
        shorten_title(sign_in.account),
        shorten_plain(", ".join(sign_in.scopes), _MAX_SCOPES_CHARACTERS),
        say(words.CONNECTED_SINCE, time=format_time(sign_in.created_at)),
        say(words.CONNECTION_USED, time=format_time(sign_in.used_at)) if sign_in.used_at else "",
        say(words.CONNECTION_LOST) if sign_in.state == "lost" else "",
    ]
    return "; ".join(filter(None, parts))


async def delete_sign_ins(store: CredentialStore, person: Person) -> None:
    """Delete and revoke all connected accounts of a person who left."""
    deleted = await retry_store(lambda: store.delete_person(person), operation="the accounts of a person who left")
    if deleted:
        log.info("a person left: their connected accounts are deleted: %d", len(deleted))


async def disconnect(services: PlatformServices, sign_in_id: str, person: Person, say: MessageCatalog) -> str:
    """Delete a connected account of a person; return the text for them."""
    deleted = await services.sign_ins.delete(person, sign_in_id)
    if deleted is None:
        return say(words.CONNECTION_UNKNOWN)
    return say(words.DISCONNECTED, service=shorten_title(deleted.label))
