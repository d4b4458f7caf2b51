"""Messages are found in the language in which they were written."""

from __future__ import annotations

import pytest

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.engine.messages import append_messages
from tests.memory_server.floor import draft, new_index, question, search_messages

NOW = 1_700_000_000_000_000
pytestmark = pytest.mark.contract("9.1")
GERMAN = (
    "Am Samstag waren wir mit den Kindern im Tierpark.",
    "Meine Schwester hat im März eine Bäckerei in Leipzig eröffnet.",
    "Der Zahnarzt hat den Termin auf Donnerstag verschoben.",
    "Ich lerne seit zwei Jahren Geige spielen.",
    "Das Auto steht wieder in der Werkstatt, die Bremsen sind hin.",
)
SPANISH = (
    "El sábado llevamos a los niños al zoológico.",
    "Mi hermana abrió una panadería en Valencia en marzo.",
    "El dentista cambió la cita para el jueves.",
    "Llevo dos años aprendiendo a tocar el violín.",
    "El coche está otra vez en el taller, fallan los frenos.",
)
CHINESE = (
    "星期六我们带孩子去了动物园。",
    "我妹妹三月份在成都开了一家面包店。",
    "牙医把预约改到了星期四。",
    "我学小提琴已经两年了。",
    "车又送去修理厂了，刹车坏了。",
)
JAPANESE = (
    "土曜日に子供たちと動物園へ行きました。",
    "妹が三月に京都でパン屋を開きました。",
    "歯医者の予約が木曜日に変わりました。",
    "バイオリンを習って二年になります。",
    "車がまた修理工場に入っています。ブレーキが壊れました。",
)
ARABIC = (
    "ذهبنا يوم السبت مع الأطفال إلى حديقة الحيوان.",
    "افتتحت أختي مخبزا في مراكش في شهر مارس.",
    "غير طبيب الأسنان الموعد إلى يوم الخميس.",
    "أتعلم العزف على الكمان منذ سنتين.",
    "السيارة في الورشة مرة أخرى بسبب الفرامل.",
)
ASKED = [
    (GERMAN, "Wo hat die Schwester ihre Bäckerei?", 1),
    (GERMAN, "Wann ist der Termin beim Zahnarzt?", 2),
    (GERMAN, "Backerei", 1),
    (SPANISH, "¿Dónde está la panadería de la hermana?", 1),
    (SPANISH, "¿Cuándo es la cita con el dentista?", 2),
    (SPANISH, "violin", 3),
    (CHINESE, "面包店在哪里？", 1),
    (CHINESE, "牙医的预约是什么时候", 2),
    (CHINESE, "小提琴学了多久", 3),
    (CHINESE, "车", 4),
    (JAPANESE, "パン屋はどこですか", 1),
    (JAPANESE, "歯医者の予約はいつ", 2),
    (JAPANESE, "バイオリン", 3),
    (ARABIC, "أين مخبزا أختي", 1),
    (ARABIC, "متى موعد طبيب الأسنان", 2),
]


@pytest.mark.parametrize(("said", "asked", "wanted"), ASKED, ids=[asked for _, asked, _ in ASKED])
def test_answer_comes_first(tx: Tx, said: tuple[str, ...], asked: str, wanted: int) -> None:
    append_messages(tx, "w", "talk", [draft(text, "ann") for text in said], NOW)
    found = search_messages(tx, new_index(), SearchArea(1), question(asked), None, 1)
    assert [row.content for row in found] == [said[wanted]]


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "the of and", "?!…", "🎉", "AND OR NOT", 'NEAR("a b", 3)', "content : x*", '"', "ann", "May 8 2023"),
        *("a" * 10_000, "bees " * 2000, "面" * 5000, "\u0301", "2023-05-08", "'; DROP TABLE messages; --"),
    ],
)
def test_question_of_any_kind_is_answered_without_an_error(tx: Tx, text: str) -> None:
    given = ["I keep bees.", "Party tonight 🎉", "我喜欢面包", "A letter: a b c."]
    append_messages(tx, "w", "talk", [draft(content, "ann") for content in given], NOW)
    found = search_messages(tx, new_index(), SearchArea(1), question(text), None, 10)
    assert len(found) <= 4
    if text == "🎉":
        assert found[0].content == "Party tonight 🎉"


def test_name_alone_finds_what_the_peer_said_and_what_speaks_of_them(tx: Tx) -> None:
    append_messages(tx, "w", "talk", [draft("Hello.", "ann"), draft("Ask ann about it.", "ben")], NOW)
    found = search_messages(tx, new_index(), SearchArea(1), question("Ann"), None, 10)
    assert {row.content for row in found} == {"Hello.", "Ask ann about it."}
