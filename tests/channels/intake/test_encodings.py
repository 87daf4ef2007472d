"""Text files in older encodings: found by language, named to the model."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.intake.encodings import _SAMPLE_BYTES, _take_sample, read_legacy_text
from chatrig.slack import SlackSimulator
from tests.channels.platforms import run_conversation, wait_for_answer

#: Lines of a table in several languages: a heading and four rows.
TABLES = {
    "ja": """\
番号;名前;都市;備考
1;田中太郎;東京;会議は明日です
2;鈴木花子;大阪;資料を送ってください
3;佐藤一郎;札幌;確認しました。
4;高橋美咲;福岡;了解、テスト中
""",
    "zh-CN": """\
编号;姓名;城市;备注
1;王伟;北京;会议在明天
2;李娜;上海;请发送资料
3;张敏;广州;已经确认。
4;刘洋;成都;好的正在测试
""",
    "zh-TW": """\
編號;姓名;城市;備註
1;王偉;臺北;會議在明天
2;李娜;高雄;請發送資料
3;張敏;臺中;已經確認。
4;劉洋;新竹;好的正在測試
""",
    "ko": """\
번호;이름;도시;비고
1;김민수;서울;회의는 내일입니다
2;이영희;부산;자료를 보내 주세요
3;박철수;대구;확인했습니다.
4;최지우;인천;네, 테스트 중입니다
""",
    "ru": """\
Номер;Имя;Город;Примечание
1;Иван Петров;Москва;Встреча завтра
2;Анна Смирнова;Казань;Пришлите материалы
3;Олег Попов;Омск;Подтверждено.
4;Мария Волкова;Пермь;Хорошо, идёт проверка
""",
    "de": """\
Nummer;Name;Stadt;Bemerkung
1;Jürgen Müller;München;Besprechung ist morgen früh
2;Anna Groß;Köln;Bitte Unterlagen schicken
3;Björn Schäfer;Nürnberg;Bestätigt, größer
4;Käthe Böhm;Lübeck;Gut, wird geprüft
""",
    "fr": """\
Numéro;Nom;Ville;Remarque
1;François Lefèvre;Orléans;La réunion est demain
2;Hélène Dubois;Besançon;Envoyez les pièces s'il vous plaît
3;Jérôme Noël;Nîmes;Confirmé
4;Benoît Garçon;Évry;D'accord, ça coûte 5 €
""",
    "pl": """\
Numer;Imię;Miasto;Uwagi
1;Łukasz Wiśniewski;Łódź;Spotkanie jest jutro
2;Małgorzata Dąbrowska;Kraków;Proszę przesłać dokumenty
3;Paweł Zieliński;Gdańsk;Potwierdzone, więcej później
4;Żaneta Wójcik;Poznań;Dobrze, trwa sprawdzanie
""",
    "cs": """\
Číslo;Jméno;Město;Poznámka
1;Jiří Dvořák;Plzeň;Schůzka je zítra
2;Lucie Černá;Ústí nad Labem;Pošlete prosím podklady
3;Tomáš Novotný;Břeclav;Potvrzeno, další příště
4;Ondřej Kučera;Děčín;Dobře, zkouší se
""",
}

#: The short inputs of users, with their encodings: bytes that are text in other encodings, too.
SHORT = [
    ("名前;都市", "cp932", "Shift-JIS", "ja-JP"),
    ("姓名;城市", "gb18030", "GB18030", "zh-CN"),
    ("Имя;Город", "cp1251", "Windows-1251", "ru-RU"),
]

multibyte = st.sampled_from(
    [("ja", "cp932"), ("ja", "euc_jp"), ("zh-CN", "gb18030"), ("zh-TW", "big5"), ("ko", "cp949")]
)


@pytest.mark.parametrize(
    ("language", "encoding", "name"),
    [
        *(("ja", "shift_jis", "Shift-JIS"), ("ja", "euc_jp", "EUC-JP"), ("zh-CN", "gb18030", "GB18030")),
        *(("zh-TW", "big5", "Big5"), ("ko", "cp949", "EUC-KR (CP949)"), ("ru", "cp1251", "Windows-1251")),
        *(("ru", "koi8_r", "KOI8-R"), ("ru", "cp866", "CP866"), ("ru", "mac_cyrillic", "Mac Cyrillic")),
        *(("de", "cp1252", "Windows-1252"), ("fr", "cp1252", "Windows-1252"), ("de", "mac_roman", "Mac Roman")),
        *(("pl", "cp1250", "Windows-1250"), ("cs", "cp1250", "Windows-1250"), ("pl", "iso8859_2", "ISO-8859-2")),
        *(("cs", "iso8859_2", "ISO-8859-2"), ("de", "cp850", "CP850")),
    ],
)
@pytest.mark.parametrize("locales", [[], ["en-US"], ["ko-KR"]])
def test_a_file_of_20_lines_is_read_in_its_encoding(
    language: str, encoding: str, name: str, locales: list[str]
) -> None:
    table = TABLES[language] * 4
    (reading,) = read_legacy_text(table.replace("\n", "\r\n").encode(encoding), locales, "")
    assert (reading.encoding, reading.text) == (name, table)


@pytest.mark.parametrize(("text", "encoding", "name", "locale"), SHORT)
def test_a_short_file_is_read_by_the_locale_or_the_conversation(
    text: str, encoding: str, name: str, locale: str
) -> None:
    for locales, conversation in (([locale], ""), (["en-US", locale], ""), (["en-US"], text)):
        (reading,) = read_legacy_text(text.encode(encoding), locales, conversation)
        assert (reading.encoding, reading.text) == (name, text)
    readings = read_legacy_text(text.encode(encoding), ["en-US"], "what is this?")
    assert len(readings) == 2
    assert (readings[0].encoding, readings[0].text) == (name, text)


@given(st.binary(), st.lists(st.sampled_from(["", "ja-JP", "zh-TW", "en-US", "xx"])), st.text())
def test_any_bytes_have_one_or_two_readings(data: bytes, locales: list[str], conversation: str) -> None:
    readings = read_legacy_text(b"\xff" + data, locales, conversation)
    assert 1 <= len({reading.text for reading in readings}) == len(readings) <= 2


@given(multibyte, st.integers(0, 99), st.booleans())
def test_the_sample_of_a_large_file_is_short_and_cuts_no_character(
    written: tuple[str, str], shift: int, has_lines: bool
) -> None:
    language, encoding = written
    text = (
        "x" * 40_000 + "\n" * has_lines + "y" * shift + TABLES[language].replace("\n", "\n" if has_lines else " ") * 999
    )
    sample = _take_sample(text.encode(encoding))
    assert 0 < len(sample) <= _SAMPLE_BYTES
    assert not sample.decode(encoding).isascii()


@pytest.mark.parametrize(("text", "encoding", "name", "locale"), SHORT)
async def test_the_locale_of_the_author_selects_the_encoding_of_a_short_file(
    simulator: Any, tmp_path: Path, text: str, encoding: str, name: str, locale: str
) -> None:
    is_slack = isinstance(simulator, SlackSimulator)
    if is_slack:
        simulator.add_user("minsu", locale=locale)
    async with run_conversation(simulator, tmp_path, "Seen.", "Seen again.") as chat:
        await chat.say("what is this?", files={"plan.csv": text.encode(encoding)}, user="minsu" if is_slack else "ada")
        await wait_for_answer(chat, "Seen.")
        prompt = chat.bot.model.requests[-1]["messages"][-1]["content"]
        assert f"Its text, read as {name}; if it looks wrong, send it as UTF-8:]" in prompt
        assert text in prompt
        assert ("The encoding is not certain" in prompt) is not is_slack


async def test_a_file_in_an_old_encoding_is_named_on_both_platforms(simulator: Any, tmp_path: Path) -> None:
    table = TABLES["ja"] * 4
    async with run_conversation(simulator, tmp_path, "Seen.") as chat:
        await chat.say("what is this?", files={"plan.csv": table.encode("cp932")})
        await wait_for_answer(chat, "Seen.")
        prompt = chat.bot.model.requests[-1]["messages"][-1]["content"]
        assert "read as Shift-JIS; if it looks wrong, send it as UTF-8" in prompt
        assert "会議は明日です" in prompt


async def test_a_short_file_is_read_in_the_language_of_the_message(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, "Seen.") as chat:
        await chat.say("что это?", files={"plan.csv": "Имя;Город".encode("koi8_r")})
        await wait_for_answer(chat, "Seen.")
        prompt = chat.bot.model.requests[-1]["messages"][-1]["content"]
        assert "read as KOI8-R; if" in prompt
        assert "Имя;Город" in prompt
        assert "The encoding is not certain" not in prompt


async def test_an_utf_8_file_has_no_named_encoding(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, "Seen.") as chat:
        await chat.say("what is this?", files={"plan.csv": b"caf\xc3\xa9"})
        await wait_for_answer(chat, "Seen.")
        assert "plan.csv. Its text:]" in chat.bot.model.requests[-1]["messages"][-1]["content"]
