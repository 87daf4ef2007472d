"""Where an agent is that is brought along."""

from pathlib import Path


def dotenv(agent: str) -> Path | None:
    """The `.env` that belongs to an agent: the nearest one in its folder or above, as ADK looks for it."""
    folder = folder_of(agent)
    above = [folder, *folder.parents] if folder is not None else []
    return next((each / ".env" for each in above if (each / ".env").is_file()), None)


def folder_of(agent: str) -> Path | None:
    """The folder that is meant, if it is one; a file in it may be named as well."""
    path = Path(agent).expanduser().resolve()
    if path.is_file() and path.name in ("agent.py", "__init__.py", "root_agent.yaml"):
        path = path.parent
    return path if path.is_dir() else None
