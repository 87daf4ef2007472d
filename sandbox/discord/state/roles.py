"""The roles of a server, and who has them."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Role:
    id: str
    name: str
    members: set[str] = field(default_factory=set)


class Roles:
    """Those that people have been given.

    Attributes:
        all: by name.
        left: the ids of the people who are not in the server any more.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self.by_name: dict[str, Role] = {}
        self.absent_user_ids = set[str]()

    def assign(self, name: str, user: str) -> Role:
        """Give somebody a role, which is made if there is none of that name."""
        role = self.by_name.setdefault(name, Role(self._new_id(), name))
        role.members.add(user)
        return role

    def list_ids(self, user: str) -> list[str]:
        """The ids of somebody's."""
        return [role.id for role in self.by_name.values() if user in role.members]
