"""Types and texts of files that users send to models."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.models import media
from core.models.media import drop_unsupported_files
from core.models.provider import Media, ModelMessage, SupportedFiles, Text, ToolResult

SOUNDS = {
    b"RIFF\0\0\0\0WAVE": "audio/wav",
    b"ID3\4": "audio/mpeg",
    b"OggS\0": "audio/ogg",
    b"\0\0\0\x20ftypM4A ": "audio/mp4",
    b"\0\0\0\x20ftypisom": "video/mp4",
    b"RIFF\0\0\0\0WEBPVP8 ": "image/webp",
    b"\xff\xd8\xff\xe0": "image/jpeg",
    b"GIF89a": "image/gif",
}


@pytest.mark.parametrize(
    ("name", "claim", "kind"),
    [
        ("a.png", None, "image/png"),
        ("a.png", "application/octet-stream", "image/png"),
        ("a", "image/JPG", "image/jpeg"),
        ("a.csv", "text/csv; charset=utf-8", "text/csv"),
        ("a.ts", "video/mp2t", "text/plain"),
        ("a.unheard-of", None, None),
    ],
)
def test_the_type_of_a_file_is_guessed_from_claim_and_name(name: str, claim: str | None, kind: str | None) -> None:
    assert media.guess_mime_type(name, claim) == kind


def test_the_bytes_of_a_file_override_the_expected_type() -> None:
    for data, kind in SOUNDS.items():
        assert media.detect_mime_type(data, None) == kind
        assert media.detect_mime_type(data, "text/plain") == kind
    assert media.detect_mime_type(b"\x1a\x45\xdf\xa3", "audio/webm") == "audio/webm"
    assert media.detect_mime_type(b"no picture", "image/png") is None
    assert media.detect_mime_type(b"no picture", None) == "text/plain"
    assert media.detect_mime_type(b"\0\1", None) is None
    assert all(map(media.is_text_type, ("text/x-python", "application/json", "image/svg+xml", "application/ld+json")))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("\ufeff가,나\r\n".encode(), "가,나\n"),
        ("가,나".encode("utf-16"), "가,나"),
        ("가,나".encode("euc_kr"), "가,나"),
        ("café".encode("cp1252"), "café"),
        (b"a\0b", None),
    ],
)
def test_texts_are_decoded_from_common_encodings(data: bytes, text: str | None) -> None:
    assert media.decode_text(data) == text


@given(st.text(alphabet="`~a\n #") | st.text(), st.text(max_size=20))
def test_text_in_a_file_does_not_close_its_fence(text: str, name: str) -> None:
    first, *inner, last = media.format_file(text, name).split("\n")
    assert first.startswith(last)
    assert set(last) == {"`"}
    assert not any(line.strip().startswith(last) for line in inner)


@given(st.text(), st.integers(0, 50))
def test_a_truncated_text_is_a_beginning_within_the_limit(text: str, tokens: int) -> None:
    beginning = media.truncate_text(text, tokens)
    assert text.encode("utf-8", "replace").startswith(beginning.encode("utf-8", "replace"))
    assert media.count_tokens(beginning) <= tokens or beginning == text


TAKES = SupportedFiles({"image/png": 10}, max_total_bytes=15)


def png(size: int) -> Media:
    return Media("image/png", b"x" * size)


def description(kind: str, size: int) -> Text:
    return Text(f"[a file that is not shown to you: {kind}, {size} bytes]")


def test_the_newest_supported_files_are_sent_and_others_described() -> None:
    sound = Media("audio/ogg", b"xyz")
    page = Media("text/plain", b"words " * 100)
    linked = Media("image/png", uri="https://example.com/a.png")
    history = [
        ModelMessage("user", (Text("one"), png(8), page, linked)),
        ModelMessage("user", (Text("two"), png(9), sound, png(11), png(5))),
    ]
    assert drop_unsupported_files(history, TAKES) == [
        ModelMessage("user", (Text("one"), description("image/png", 8), page, linked)),
        ModelMessage("user", (Text("two"), png(9), description("audio/ogg", 3), description("image/png", 11), png(5))),
    ]


def test_dropped_files_of_a_tool_are_described_in_its_result() -> None:
    result = ToolResult("1", "draw", {"ok": True}, (png(4), png(40)))
    [message] = drop_unsupported_files([ModelMessage("tool", (result,))], TAKES)
    expected = {"ok": True, "left_out": [description("image/png", 40).text]}
    assert message == ModelMessage("tool", (ToolResult("1", "draw", expected, (png(4),)),))


def test_a_history_without_files_does_not_change() -> None:
    history = [ModelMessage("user", (Text("one"),))]
    assert drop_unsupported_files(history, TAKES) == history


SVG = '<?xml version="1.0" encoding="UTF-8"?>\n<!-- a --><svg xmlns="http://www.w3.org/2000/svg">{}</svg>'


@pytest.mark.parametrize(
    "content", ["<path d='M0 0'/>", "<text>on = 5 &#45;&gt; description</text>", "<style>a{}</style>"]
)
def test_an_svg_image_without_scripts_is_an_image(content: str) -> None:
    assert media.identify_file(SVG.format(content).encode(), "image/svg+xml") == "image/svg+xml"


@pytest.mark.parametrize(
    "content",
    [
        "<script>alert(1)</script>",
        "<x:script xmlns:x='http://www.w3.org/2000/svg'>alert(1)</x:script>",
        "<g\nONLOAD = 'alert(1)'/>",
        "<g/onload='alert(1)'/>",
        "<a href='javascript:alert(1)'/>",
        "<a href='java&#x0a;script&#58;alert(1)'/>",
        "<a href='data:text/html,hi'/>",
        "<foreignObject><p>hi</p></foreignObject>",
        "<text>&#60;script></text>",
        "<text>\x1b(B</text>",
    ],
)
def test_an_svg_image_with_active_content_is_plain_text(content: str) -> None:
    assert media.identify_file(SVG.format(content).encode(), "image/svg+xml") == "text/plain"


@pytest.mark.parametrize(
    "beginning",
    [
        "<!DOCTYPE svg [<!ENTITY a '<scr'>]>",
        "<?xml version='1.0' encoding='UTF-7'?>",
        "<?xml-stylesheet href='a.xsl'?>",
        "<html>",
        "",
    ],
)
def test_a_text_that_does_not_begin_as_an_svg_image_is_plain_text(beginning: str) -> None:
    text = f"{beginning}<svg/>" if beginning else "no image"
    assert media.identify_file(text.encode(), "image/svg+xml") == "text/plain"


@pytest.mark.parametrize("piece", ["<!-- a -->", "<?xml ", "<!doctype ", "&#", "<a.", " on", "j a v a ", "\n"])
def test_the_search_of_an_svg_image_takes_time_by_its_size(piece: str) -> None:
    assert media.identify_file(f"<svg>{piece * (2**20 // len(piece))}".encode(), "image/svg+xml")


@given(
    st.binary(max_size=200), st.sampled_from(["image/png", "image/svg+xml", "audio/wav", "application/pdf", "", "x"])
)
def test_a_text_is_never_a_picture_sound_or_document(data: bytes, declared: str) -> None:
    kind = media.identify_file(data, declared)
    is_text = media.decode_text(data, allow_legacy=False) is not None and not data.startswith(b"%PDF-")
    assert not is_text or kind in ("text/plain", declared if declared in ("x", "") else "")
    assert media.identify_file(data, kind) == kind


@pytest.mark.parametrize(
    ("name", "kind", "fitted"),
    [
        ("week.png", "image/png", "week.png"),
        ("week.png", "image/jpeg", "week.jpg"),
        ("week.png", "text/plain", "week.txt"),
        ("week.svg", "text/plain", "week.txt"),
        ("report.pdf", "application/octet-stream", "report.bin"),
        ("report.docx", "application/octet-stream", "report.docx"),
        ("notes.md", "text/plain", "notes.md"),
        ("voice.m4a", "video/mp4", "voice.m4a"),
        ("code.ts", "text/plain", "code.ts"),
        ("notes", "image/png", "notes"),
    ],
)
def test_a_suffix_of_another_type_is_replaced(name: str, kind: str, fitted: str) -> None:
    assert media.fit_file_name(name, kind) == fitted
