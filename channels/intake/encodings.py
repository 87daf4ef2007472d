"""Text files in older encodings: finds the encoding by the letters of languages.

The library charset-normalizer finds the encodings in which a file is readable, and measures how noisy each reading is.
It is often wrong on short files. So its readings are ranked first by the share of letters that one language has.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from charset_normalizer import from_bytes

#: Bytes of a file by which its encoding is found.
_SAMPLE_BYTES = 32_768

#: A file with fewer bytes may be read in several ways.
_CLEAR_BYTES = 256

#: Differences of coverage and noise below which two readings are equally good.
_COVERAGE_MARGIN, _NOISE_MARGIN = 0.02, 0.02

#: The share of letters that a reading in an expected encoding needs.
_MIN_COVERAGE = 0.9

#: A byte that is not a part of a longer character in any of the encodings.
_SINGLE_BYTE = re.compile(rb"[\t-/](?=[^\t-/]*\Z)")
_HIGH_BYTE = re.compile(rb"[\x80-\xff]")

#: A letter between or beside ASCII letters, which only languages with Latin letters have within words.
_BETWEEN_LATIN = re.compile(r"(?<=[A-Za-z])[^\x00-\x7f](?=[A-Za-z])")
_BESIDE_LATIN = re.compile(r"(?<=[A-Za-z])[^\x00-\x7f]|[^\x00-\x7f](?=[A-Za-z])")

#: Punctuation of texts in many languages; full-width forms and CJK punctuation come with the characters of CJK.
_PUNCTUATION = frozenset("\xa0“”„‘’‚«»‹›–—…•·°§©®™€£№¿¡\u200e\u200f")  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class _LanguageGroup:
    """Languages that share encodings.

    Attributes:
        locales: the beginnings of their locales.
        encodings: Python's names of the encodings, the most frequent first.
        alphabets: the letters of each language that are not ASCII, in lower case.
        rows: for CJK: an encoding of two bytes, and the ranges of first bytes of its frequent characters.
    """

    locales: tuple[str, ...]
    encodings: tuple[str, ...]
    alphabets: tuple[str, ...] = ()
    rows: tuple[str, tuple[tuple[int, int], ...]] | None = None
    is_latin: bool = False


_GROUPS = (
    _LanguageGroup(("ja",), ("cp932", "euc_jp"), rows=("euc_jp", ((0xA1, 0xA1), (0xA3, 0xA5), (0xB0, 0xCF)))),
    _LanguageGroup(("zh-TW", "zh-HK", "zh-MO"), ("big5hkscs", "gb18030"), rows=("big5", ((0xA1, 0xA2), (0xA4, 0xC6)))),
    _LanguageGroup(("zh",), ("gb18030",), rows=("gb2312", ((0xA1, 0xA1), (0xA3, 0xA3), (0xB0, 0xD7)))),
    _LanguageGroup(("ko",), ("cp949",), rows=("euc_kr", ((0xA1, 0xA1), (0xA3, 0xA3), (0xB0, 0xC8)))),
    _LanguageGroup(
        ("ru", "uk", "be", "bg", "sr", "mk"),
        ("cp1251", "koi8_r", "cp866", "iso8859_5", "mac_cyrillic"),
        (
            "абвгдеёжзийклмнопрстуфхцчшщъыьэюя",
            "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя",
            "абвгдеёжзійклмнопрстуўфхцчшыьэюя",
            "абвгдђежзијклљмнњопрстћуфхцчџшѓѕќ",
        ),
    ),
    _LanguageGroup(
        ("en", "de", "fr", "es", "pt", "it", "nl", "ca", "sv", "da", "nb", "no", "nn", "fi", "is"),
        ("cp1252", "mac_roman", "cp850"),
        (
            *("äöüß", "àâæçéèêëîïôœùûüÿ", "áéíñóúüªº", "àáâãçéêíóôõúüªº", "àèéìíîòóù", "áéèëïíóöúü", "àçèéíïòóúü"),
            *("åäöé", "æøåéèêóòô", "áæéíðóöúýþ"),
        ),
        is_latin=True,
    ),
    _LanguageGroup(
        ("pl", "cs", "sk", "hu", "hr", "sl", "bs", "ro"),
        ("cp1250", "iso8859_2"),
        ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "čćđšž", "ăâîșțşţ"),
        is_latin=True,
    ),
    _LanguageGroup(("tr", "az"), ("cp1254",), ("âçğıİîöşûü",), is_latin=True),
    _LanguageGroup(("el",), ("cp1253",), ("αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ",)),
    _LanguageGroup(("he", "iw"), ("cp1255",), ("אבגדהוזחטיךכלםמןנסעףפץצקרשת",)),
    _LanguageGroup(("ar", "fa", "ur"), ("cp1256",), ("ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهويىًٌٍَُِّْـ،؛؟پچژگکی",)),
    _LanguageGroup(
        ("th",), ("cp874",), ("".join(chr(code) for code in [*range(0x0E01, 0x0E3B), *range(0x0E3F, 0x0E5C)]),)
    ),
)

#: Encodings of old Macs and of DOS, and one that is hardly used: only a file that is not short is read in them.
_RARE_ENCODINGS = {"mac_roman", "mac_cyrillic", "cp850", "iso8859_5"}

_ENCODINGS = tuple(dict.fromkeys(name for group in _GROUPS for name in group.encodings))

#: Names for people, by Python's names of the encodings.
_NAMES = {
    **{"cp932": "Shift-JIS", "euc_jp": "EUC-JP", "big5hkscs": "Big5", "gb18030": "GB18030", "cp949": "EUC-KR (CP949)"},
    **{"koi8_r": "KOI8-R", "cp866": "CP866", "iso8859_5": "ISO-8859-5", "mac_cyrillic": "Mac Cyrillic"},
    **{"mac_roman": "Mac Roman", "cp850": "CP850", "iso8859_2": "ISO-8859-2", "cp874": "Windows-874"},
    **{f"cp{number}": f"Windows-{number}" for number in range(1250, 1257)},
}


@dataclass(frozen=True, slots=True)
class Reading:
    """Text of a file in one encoding, which is named for people, such as `GB18030`."""

    text: str
    encoding: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Encoding in which the sample of a file is readable.

    Attributes:
        coverage: the share of the sample's letters that are of one language with this encoding.
        noise: charset-normalizer's measure of disorder, less that of coherence.
    """

    encoding: str
    sample: str
    coverage: float
    noise: float


def read_legacy_text(data: bytes, locales: Iterable[str], conversation: str) -> list[Reading]:
    """Return the text of a file that is neither UTF-8 nor UTF-16; a byte that is invalid in the encoding becomes `�`.

    The languages of the authors' `locales` (such as `ja-JP`) and of the `conversation` are expected. There are two
    readings, the best ones, if the file is short or several encodings fit, and none of them is expected; else one.
    """
    is_short = len(data) < _CLEAR_BYTES
    encodings = [encoding for encoding in _ENCODINGS if not (is_short and encoding in _RARE_ENCODINGS)]
    candidates = sorted(
        _list_candidates(_take_sample(data), encodings),
        key=lambda each: (-round(each.coverage, 2), each.noise, encodings.index(each.encoding)),
    )
    if not candidates:
        return [_read(data, "cp1252")]
    best, *others = candidates
    rivals = [other for other in others if other.sample != best.sample]
    if not rivals or not (is_short or any(_is_as_good(other, best) for other in rivals)):
        return [_read(data, best.encoding)]
    expected = _list_expected_encodings(locales, conversation)
    fitting = [each for each in candidates if each.encoding in expected and each.coverage >= _MIN_COVERAGE]
    return [_read(data, each.encoding) for each in (fitting[:1] or [best, rivals[0]])]


def _read(data: bytes, encoding: str) -> Reading:
    return Reading(data.decode(encoding, "replace").replace("\r\n", "\n"), _NAMES[encoding])


def _is_as_good(other: _Candidate, best: _Candidate) -> bool:
    return best.coverage - other.coverage < _COVERAGE_MARGIN and other.noise - best.noise < _NOISE_MARGIN


def _take_sample(data: bytes) -> bytes:
    if len(data) <= _SAMPLE_BYTES:
        return data
    lines = b"\n".join(line for line in data.split(b"\n") if not line.isascii())
    first = _HIGH_BYTE.search(lines)
    start = first.start() if first and first.start() > _SAMPLE_BYTES // 2 else 0
    sample = lines[start : start + _SAMPLE_BYTES]
    end = _SINGLE_BYTE.search(sample) if start + _SAMPLE_BYTES < len(lines) else None
    return sample[: end.start()] if end else sample


def _list_candidates(sample: bytes, encodings: list[str]) -> Iterator[_Candidate]:
    for match in from_bytes(sample, cp_isolation=encodings, threshold=1.0):
        for encoding in match.could_be_from_charset:
            text = sample.decode(encoding)
            groups = [group for group in _GROUPS if encoding in group.encodings]
            coverage = max(_get_coverage(text, group) for group in groups)
            yield _Candidate(encoding, text, coverage, match.chaos - match.coherence)


def _list_expected_encodings(locales: Iterable[str], conversation: str) -> set[str]:
    expected = [next((group for group in _GROUPS if locale.startswith(group.locales)), None) for locale in locales]
    letters = "".join(char for char in conversation if char.isalpha() and not char.isascii())
    expected += [group for group in _GROUPS if letters and _get_coverage(letters, group) >= _MIN_COVERAGE]
    return {encoding for group in expected if group is not None for encoding in group.encodings}


def _get_coverage(text: str, group: _LanguageGroup) -> float:
    """Return the share of a text's characters, except ASCII and punctuation, that one language of a group has."""
    counts = Counter(char for char in text if not char.isascii() and char not in _PUNCTUATION)
    total = sum(counts.values())
    if not total:
        return 1.0
    odd = 0 if group.is_latin else len((_BETWEEN_LATIN if group.rows else _BESIDE_LATIN).findall(text))
    alphabets = _list_alphabets(group)
    best = max(
        sum(count for char, count in counts.items() if char in known or char.lower() in known) for known in alphabets
    )
    return max(0.0, best - odd) / total


@cache
def _list_alphabets(group: _LanguageGroup) -> tuple[frozenset[str], ...]:
    if group.rows is None:
        return tuple(map(frozenset, group.alphabets))
    encoding, ranges = group.rows
    pairs = (
        bytes((lead, trail)) for first, last in ranges for lead in range(first, last + 1) for trail in range(64, 255)
    )
    return (frozenset("".join(pair.decode(encoding, "ignore") for pair in pairs)),)
