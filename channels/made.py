"""The files that a run has made, as they come with its reply."""

from collections.abc import Iterable

from channels.channel import File
from channels.reply import FILE_NAME
from core.artifacts import Made


def files_of(found: Iterable[Made]) -> list[File]:
    """Each under a name of its own, which is not that of a long answer's file either."""
    files, names = list[File](), {FILE_NAME}
    for made in found:
        name = made.name if made.name not in names else f"{len(files) + 1}-{made.name}"
        names.add(name)
        files.append(File(name, made.data, made.alt or (name if made.kind.startswith("image/") else "")))
    return files
