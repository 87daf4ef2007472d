"""Numbers with their nouns in English messages."""


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 message` or `2,000 messages`.

    Args:
        noun: the singular; its plural ends in `s`.
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
