"""Roles of a Discord server, and their members."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Role:
    """Role of a Discord server.

    Attributes:
        members: ids of the users with the role.
    """

    id: str
    name: str
    members: set[str] = field(default_factory=set)


class Roles:
    """Roles of a Discord server that were assigned to users.

    Args:
        new_id: returns a new snowflake.

    Attributes:
        by_name: the roles by name.
        absent_user_ids: the ids of the users who left the server, and of a removed bot.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self.by_name: dict[str, Role] = {}
        self.absent_user_ids = set[str]()

    def assign(self, name: str, user: str) -> Role:
        """Assign a role to a user, and return it; create it if it does not exist.

        Args:
            name: the name of the role.
            user: the id of the user.
        """
        role = self.by_name.setdefault(name, Role(self._new_id(), name))
        role.members.add(user)
        return role

    def list_ids(self, user: str) -> list[str]:
        """Return the ids of the roles that were assigned to a user, without `@everyone`.

        Args:
            user: the id of the user.
        """
        return [role.id for role in self.by_name.values() if user in role.members]
