"""Splitting of text into sentences, and selection of those that state something about the speaker."""

from __future__ import annotations

import pytest

from hermes.memory_server.engine.sentence_kinds import DISCARD, SECRET
from hermes.memory_server.engine.sentences import is_kept, message_traits, read_message, split_sentences
from hermes.ranking.traits import CONFIDENTIAL, UNWANTED


def find_statements(text: str) -> list[str]:
    return [sentence.text for sentence in read_message(text) if is_kept(sentence)]


@pytest.mark.parametrize(
    "text",
    [
        "My dentist is Dr. Holm.",
        "My doctor is Mrs. Lee and I live at St. Olavs gate 5.",
        "I was born on 3. May 1980 in Bergen.",
        "Ich bin am 3. Mai geboren.",
        "My favourite author is J. K. Rowling.",
        "I work for Acme Inc. in Oslo.",
        "I like fruit, e.g. Apples.",
        "1. I buy milk on Mondays.",
        "My sister said “I am leaving. Now.” and left.",
    ],
)
def test_a_full_stop_that_ends_no_sentence_cuts_no_fact(text: str) -> None:
    assert find_statements(text) == [text]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("The US dollar fell again.", False),
        ("Yesterday Ben moved to Oslo.", True),
        ("Mina's school begins in May.", True),
        ("Ben is my brother.", True),
        ("She told us about the US.", True),
        ("Ben Ankara'da yaşıyorum.", True),
        ("BEN ANKARA'DA YAŞIYORUM.", True),
        ("Mina barn bor i Lund.", True),
    ],
)
def test_what_is_said_of_somebody_else_is_kept_and_news_of_the_world_is_not(text: str, is_one: bool) -> None:
    assert find_statements(text) == ([text] if is_one else [])


@pytest.mark.parametrize(
    "text",
    [
        "Wie ich schon sagte, wohne ich in Bern",
        "Was ich mag: Käse",
        "Wer in Bern wohnt, kennt mein Haus.",
        "Was mein Bruder kocht, esse ich gern",
        "Quand j'étais petit, ma mère chantait",
        "Quand je suis fatigué, je bois du thé",
        "Como con mi hermana los lunes",
        "Remind me to call my mother on Friday",
    ],
)
def test_what_only_begins_like_a_question_states_something(text: str) -> None:
    assert find_statements(text) == [text]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("If I had a million dollars I would buy a yacht.", False),
        ("If I were rich I'd buy a castle.", False),
        ("If I could fly, my commute might be shorter.", False),
        ("Imagine I was a pirate called Blackbeard.", False),
        ("ok, pretend I am a cat", False),
        ("Suppose I have three children.", False),
        ("What if I moved to Mars.", False),
        ("Stell dir vor, ich wäre ein Pirat.", False),
        ("Angenommen, ich ziehe nach Rom.", False),
        ("Wenn ich reich wäre, würde ich ein Schloss kaufen.", False),
        ("Si j'étais riche, j'achèterais un château.", False),
        ("Si yo fuera rico, compraría un castillo.", False),
        ("Imagina que soy un pirata.", False),
        ("If I have a headache I take aspirin.", True),
        ("If I was late, my boss deducted it.", True),
        ("If I could not sleep as a child, my mother sang.", True),
        ("Wenn ich müde bin, trinke ich Tee.", True),
        ("Si je suis fatigué, je bois du thé.", True),
        ("Say hello to my wife Ana.", True),
        ("I imagine my sister is in Lyon by now.", True),
        ("I would love to learn the cello.", True),
        ("Imagine, I got the job in Bern!", True),
        ("Stell dir vor, ich habe den Job in Bern bekommen!", True),
        ("Si j'avais soif, ma mère me donnait du thé.", True),
    ],
)
def test_what_is_made_up_is_no_fact_of_the_speaker(text: str, is_one: bool) -> None:
    assert find_statements(text) == ([text] if is_one else [])


def test_sentences_end_where_they_end() -> None:
    assert split_sentences("I was born in 1980. my cat is 3. She sleeps! 我有猫。我有狗。\n\nOver\n- and out") == [
        "I was born in 1980.",
        "my cat is 3.",
        "She sleeps!",
        "我有猫。",
        "我有狗。",
        "Over",
        "- and out",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "where do I park",
        "how do I get to my hotel",
        "Tell me a joke",
        "please help me with this",
        "Can you help me",
        "do I need a visa",
        "Let us go",
        "Thank you for helping me",
        "What is my cat called?",
        "remind me what my dog is called",
        "wie heisst mein bruder",
        "und wo wohnt meine Schwester",
        "wogegen bin ich allergisch",
        "welche Farbe mag ich",
        "bin ich allergisch gegen Nüsse",
        "comment s'appelle ma sœur",
        "où habite mon frère",
        "quand est mon rendez-vous",
        "cómo se llama mi perro",
        "como se llama mi perro",
        "dónde vivo",
        "Fix this text: 'I am a 90-year-old astronaut. My name is Zorg.'",
        'She said "my name is Zorg" to him.',
        "```\nmy_name = I am Zorg\nprint(my name is Zorg)\n```",
        "> I wrote this long ago",
        "The weather is nice.",
        "The EU met for 30 min.",
    ],
)
def test_questions_requests_and_quotes_state_nothing(text: str) -> None:
    assert find_statements(text) == []


@pytest.mark.parametrize(
    "block",
    [
        "```\nI am code.\n```",
        "<stdin>\nI live in Graz. My cat is called Mitzi.\n\nI am 40.\n</stdin>",
        "<stdin_>\nI wrote </stdin> in it.\n</stdin>\nI go on.\n</stdin_>",
        "<letter>\nI live in Graz.\n<b>\nI am bold.\n</letter>",
        "I live in Graz, says the end of what came in pieces.\n</stdin>",
    ],
)
def test_a_piped_or_inserted_block_states_nothing_and_the_text_after_it_does(block: str) -> None:
    assert find_statements(f"{block}\nMy dog is called Zorro.") == ["My dog is called Zorro."]


def test_the_beginning_of_a_piped_text_split_over_messages_states_nothing() -> None:
    assert find_statements("Sum it up:\n\n<stdin>\nI live in Graz.\nMy cat is called Mitzi.") == []


def test_a_tag_that_is_neither_closed_nor_ours_hides_nothing() -> None:
    assert find_statements("<br>\nI live in Graz.\n</p>\nI am 40.") == ["I live in Graz.", "I am 40."]


def test_of_what_was_quoted_to_answer_it_no_sentence_is_the_speaker_s_own() -> None:
    quoted = "> I live in Graz. My cat is called Mitzi.\n  > Mine is old. I like her."
    quoting = f"{quoted}\n\nMy dog is called Zorro. I know 3 > 2."
    assert find_statements(quoting) == ["My dog is called Zorro.", "I know 3 > 2."]


@pytest.mark.parametrize(
    "text",
    [
        "ich heiße Jörg und wohne in Köln",
        "Mon chat s'appelle Felix.",
        "J'habite à Lyon.",
        "Mi perro se llama Rufo.",
        "Vivo en Madrid.",
        "La mia città è Roma.",
        "Minha irmã mora em Lisboa.",
        "Ik woon in Utrecht.",
        "Jeg bor i Bergen.",
        "Mój kot ma na imię Filemon.",
        "Меня зовут Иван.",
        "أنا أسكن في القاهرة.",
        "我的猫叫咪咪。",
        "私は東京に住んでいます。",
        "제 고양이 이름은 나비입니다.",
        "Remember that my sister is called Ada.",
        "Call me Bob from now on.",
        "I'm allergic to peanuts",
        "Will is my brother.",
    ],
)
def test_statements_about_the_speaker_are_found_in_each_of_these_languages(text: str) -> None:
    assert find_statements(text) == [text]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece", ["'a ", "“", "„", "«", '"', "Dr. ", "```\n", "3. ", "> ", "<a>\n", "</a>\n", "<stdin>\n", "</stdin>\n"]
)
def test_a_text_of_nothing_but_signs_is_read_to_its_end(piece: str) -> None:
    assert find_statements(piece * (100_000 // len(piece))) == []


@pytest.mark.contract("7.10")
@pytest.mark.parametrize(
    "text",
    [
        "Hi Nina, I live in Porto now and work at the harbour. My wife says hello. Best, Miguel",
        "Hallo Nina,\nich wohne jetzt in Kiel. Meine Frau grüßt dich.\nViele Grüße\nMiguel",
        "Anna: I moved to Rome last week\nBen: wow, I am so happy for you",
        "From: Paul <paul@example.org>\nSubject: my address\nI moved to Elm Road. My phone is new.",
        "Translate this into German: I live in Porto and my sister is a doctor.",
        "Corrige la frase: Yo tiene dos hermano y vivo en Lima.",
        "翻译成英文:我住在上海。",
        'He said "I live in Porto".',
    ],
)
def test_what_was_pasted_or_quoted_is_no_statement_of_who_pasted_it(text: str) -> None:
    assert find_statements(text) == []


@pytest.mark.contract("7.10")
@pytest.mark.parametrize(
    "text",
    [
        "Don't keep this: I had a fight with my husband.",
        "My ex is back in town. Please don't remember that.",
        "Merk dir das nicht: Ich war beim Arzt.",
        "No guardes esto: vivo en Sevilla.",
        "Ne retiens pas ça : je déménage à Lyon.",
        "不要记住这个:我住在上海。",
        "Leave that out, please. I broke my arm.",
        "Das hier ist nie passiert: ich habe die Vase zerbrochen.",
    ],
)
def test_a_wish_not_to_remember_holds_for_the_whole_message(text: str) -> None:
    assert {sentence.kind for sentence in read_message(text)} == {"discard"}
    assert find_statements(text) == []


@pytest.mark.contract("7.10")
@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("My wifi password is purple-monkey-42.", True),
        ("Die PIN meiner Karte ist 4821.", True),
        ("Mi contraseña es Girasol99.", True),
        ("Mon mot de passe est Tournesol99.", True),
        ("我的密码是xiangrikui99。", True),
        ("The PIN is seven seven one zero.", True),
        ("My password manager is Bitwarden.", False),
        ("I live at 24 Baker Street.", False),
    ],
)
def test_a_secret_is_kept_and_known_as_one(text: str, is_one: bool) -> None:
    assert find_statements(text) == [text]
    assert any(sentence.kind == "secret" for sentence in read_message(text)) is is_one


@pytest.mark.parametrize(
    "text",
    [
        "Keep at it, you're tough enough to pull through!",
        "I can't eat nuts, so keep that in mind.",
        "Please remember that the dog must never be off the lead near cows.",
        "We live on Orchard Lane, number 3316, third floor.",
        "Everything is clear now, thank you.",
        "2. **Login Route**: check the role of the user first.",
        "My cousin always brings out the best in me.",
        "The trip gave me loads of confidence and lovely memories.",
        "- **Deadline**: June 3\n- **Budget**: $4,500 a year",
        "### `__main__.py`",
        "- **June 6 - June 20:** read about 30-40 pages a day.",
        '- For example, if your story is about "Ships in Old Ports," you might have parts like "Wind," and "Water."',
        "I'm on Flask 3.0.2, and the API key sits in `.env` as `MAPS_API_KEY`.",
        "Ich war gestern mit dem Hund draußen und habe den Schirm vergessen.",
    ],
)
def test_ordinary_talk_is_neither_a_secret_nor_a_wish(text: str) -> None:
    assert not {SECRET, DISCARD} & {sentence.kind for sentence in read_message(text)}
    assert not message_traits(text) & (CONFIDENTIAL | UNWANTED)
