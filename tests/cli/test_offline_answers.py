"""Answers of `hermes chat` about the user without a model, from this home only."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from hermes.agent.offline_answers import NEEDS_MODEL, UNKNOWN
from hermes.clock import SystemClock
from hermes.store.store import Store
from hermes.types import Draft
from tests.cli.chatting import chat, environment
from tests.store.still_clock import StillClock

pytestmark = [pytest.mark.processes, pytest.mark.contract("10.5")]
DAY = timedelta(days=1).total_seconds()
LANGUAGES = {
    "English": (
        ["Hi! I'm Nina and I moved to Porto.", "My mother is called Helga.", "The wifi password is hunter22."],
        ["What's my name?", "who am I?", "what do you know about me?", "Where do I live?", "what did I say today?"],
        ("Nina", "Porto", "hello"),
    ),
    "German": (
        ["Ich heiße Jürgen und wohne in Bern.", "Meine Mutter heißt Helga.", "Das Passwort lautet hunter22."],
        ["Wie heiße ich?", "wer bin ich", "Was weißt du über mich?", "Wo wohne ich", "Was habe ich heute gesagt?"],
        ("Jürgen", "Bern", "guten Morgen"),
    ),
    "Spanish": (
        ["Me llamo José y vivo en Lima.", "Mi madre se llama Helga.", "La contraseña es hunter22."],
        ["¿Cómo me llamo?", "¿Quién soy?", "¿Qué sabes de mí?", "¿Dónde vivo?", "¿Qué dije hoy?"],
        ("José", "Lima", "buenos días"),
    ),
    "French": (
        ["Je m'appelle Chloé et j'habite à Lyon.", "Ma mère s'appelle Helga.", "Le mot de passe est hunter22."],
        [
            *("Comment je m'appelle ?", "Qui suis-je ?", "Que sais-tu de moi ?", "Où est-ce que j'habite ?"),
            "Qu'est-ce que j'ai dit aujourd'hui ?",
        ],
        ("Chloé", "Lyon", "bonjour"),
    ),
    "Chinese": (
        ["我叫小明，我住在北京。", "我妈妈叫海伦。", "密码是hunter22。"],
        ["我叫什么名字？", "我是谁？", "你知道我什么？", "我住在哪里？", "我今天说了什么？"],
        ("小明", "北京", "你好"),
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_a_person_asks_about_themselves_is_answered(home: Path, language: str) -> None:
    told, asked, (name, place, greeting) = LANGUAGES[language]
    env = environment(home)
    assert chat(env, said="\n".join(told)).out.splitlines() == [f"Saved: {text}" for text in told]
    named, whole, known, lives, said = (chat(env, "-q", question).out for question in asked)
    assert named == f"Your name is {name}. From memory: “{told[0]}”\n"
    assert f"You are {name}." in whole
    assert place in known
    assert lives == f"From memory: “{told[0]}”\n"
    assert told[1] in said
    assert "hunter22" not in whole + known + said, "a secret comes only when it is asked for"
    assert chat(env, "-q", greeting).out.startswith(f"{greeting[:1].upper()}{greeting[1:]}! Tell me")


def test_of_two_homes_the_one_told_before_is_marked_as_earlier(home: Path) -> None:
    env = environment(home)
    told = ["My name is Lena and I live in Graz.", "I moved to Vienna last week."]
    assert chat(env, said="\n".join(told)).code == 0
    assert chat(env, "-q", "Where do I live now?").out == f"From memory: “{told[1]}” · earlier: “{told[0]}”\n"


def test_what_was_not_told_is_admitted_without_other_quotes(home: Path) -> None:
    said = ["My mother is called Helga.", "My sister lives in Graz.", "Her sister works as a nurse.", "I'm German."]
    asked = {
        "What's my name?": UNKNOWN["name"],
        "Where do I live?": UNKNOWN["home"],
        "What is my job?": UNKNOWN["work"],
        "What is my brother called?": UNKNOWN[None],
        "Who is the king of Spain?": UNKNOWN[None],
        "what did I say in March?": UNKNOWN["said"],
    }
    out = chat(environment(home), said="\n".join([*said, *asked])).out.splitlines()
    assert out[len(said) :] == list(asked.values())


def test_small_talk_is_answered_and_not_said_to_be_saved(home: Path) -> None:
    said = ["thanks", "ok", "bye", "how are you?", "write me a poem", "Hi, my dog is sick."]
    out = chat(environment(home), said="\n".join(said)).out.splitlines()
    assert out[:3] == ["You're welcome.", "All right.", "Goodbye!"]
    assert out[3].startswith("Hello! Tell me")
    assert out[4].startswith(NEEDS_MODEL)
    assert out[5] == "Saved: Hi, my dog is sick."


def test_a_sentence_and_the_message_that_it_is_from_are_told_once(home: Path) -> None:
    env = environment(home)
    chat(env, said="Hi! My name is Nora Lind.\nMy brother Ole is a carpenter.")
    out = chat(env, "-q", "what do you know about me?").out
    assert out.count("My name is Nora Lind") == 1
    assert out.count("Ole") == 1


async def test_what_was_said_on_another_day_is_told_with_the_day(home: Path) -> None:
    await _say(home, -3 * DAY, "I sold my boat.", "Where is my cat?")
    await _say(home, -1 * DAY, "I repaired the roof yesterday.", "The PIN is 4711.")
    env = environment(home)
    yesterday = chat(env, "-q", "what did I say yesterday?").out
    assert "I repaired the roof" in yesterday
    assert "boat" not in yesterday
    assert "4711" not in yesterday
    whole = chat(env, "-q", "What do you know about me?").out
    assert "I sold my boat.” (" in whole, "with the day on which it was said"
    assert "Where is my cat" not in whole


async def _say(home: Path, ago: float, *texts: str) -> None:
    home.mkdir(exist_ok=True)
    clock = StillClock(SystemClock().now() + ago)
    async with await Store.open(home / "state.db", clock=clock, lock_timeout=30.0) as store:
        session = await store.create_session("cli")
        await store.append(session.id, *(Draft("user", text, author_is_owner=True) for text in texts))
