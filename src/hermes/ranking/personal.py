"""Questions about a person whose words do not describe the answer ("Who am I?"), and the sentences that answer them.

question ── topic ── words to search for, and sentences that answer it

Names of people in a question, which say whose messages it is about.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import date
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from hermes.ranking.relative_times import write_out
from hermes.ranking.traits import speaks_of_oneself
from hermes.ranking.words import SENTENCE_END, share_held, split_words, telling_words

MAX_NAME_WORDS = 24
"""The number of words at the beginning of a question in which names are looked for."""
MAX_SPELLINGS = 3 * MAX_NAME_WORDS + 3 * (MAX_NAME_WORDS - 1)
"""The largest number of spellings of a text."""
MAX_CACHED_TEXTS = 256
"""The number of texts whose spellings are cached: a search reads its question more than once."""
WORD = re.compile(r"[^\W_]+", re.UNICODE)
OWN = re.compile(r"['’]s\b")
ROLES = frozenset({"ai", "agent", "assistant", "bot", "human", "me", "system", "user", "you"})
"""Common words that do not count as names, even if a peer has such a name."""


@lru_cache(maxsize=MAX_CACHED_TEXTS)
def spellings(text: str) -> tuple[str, ...]:
    """Return every name that a peer mentioned in the text could have: its words and word pairs, in the usual spellings
    of ids.
    """
    words = WORD.findall(OWN.sub("", text))[:MAX_NAME_WORDS]
    found: dict[str, None] = {}
    for word in words:
        if not word.isdigit() and word.lower() not in ROLES:
            found.update(dict.fromkeys((word, word.lower(), word.capitalize())))
    for first, second in pairwise(words):
        found.update(dict.fromkeys((f"{first} {second}", f"{first}-{second}".lower(), f"{first}_{second}".lower())))
    return tuple(found)


def leave_out(text: str, names: Collection[str]) -> str:
    """Return the text without these names, or the whole text if nothing else would be left."""
    if not names:
        return text
    longest_first = sorted(names, key=len, reverse=True)
    pattern = "|".join(r"[\s_-]".join(map(re.escape, WORD.findall(name))) for name in longest_first)
    left = re.sub(rf"(?<!\w)(?:{pattern})(?!\w)(?:['’]s\b)?", " ", text, flags=re.IGNORECASE)
    return left if WORD.search(left) else text


Topic = Literal["name", "home", "work", "said", "oneself"]
MAX_QUESTION_CHARS = 200
GENERAL_SHARE = 0.75
"""The share of a question's words that must be general words for the question to be general."""
ASKED: dict[Topic, re.Pattern[str]] = {
    "name": re.compile(
        r"\bmy (?:\w+ )?name\b(?! (?:is|day))|\b(?:what|how) am i called\b|\bwho am i called\b|\bwie hei(?:ß"
        r"|ss)e ich\b|\bmein(?:en)? (?:vor|nach)?namen?\b|\bc[oó]mo me llamo\b|\bmi (?:nombre|apellido)\b"
        r"|\bje m['’]appelle\b|\bm['’]appell?[eé]-je\b|\bmon (?:pr[eé])?nom\b|我叫什么|我的?名字|我姓什么"
    ),
    "home": re.compile(
        r"\b(?:where|which (?:city|town|country)|what (?:city|town|country)) (?:do i live|am i living|am i from)\b"
        r"|\bwhere(?: is|['’]s) my home\b|\bwo(?:hin)? (?:wohne|lebe) ich\b|\bd[oó]nde vivo\b"
        r"|\bo[uù] (?:est-ce que )?(?:j['’]habite|je vis|habit[eé]-je|vis-je)|我(?:现在)?住在?(?:哪|什么)|我家在哪"
    ),
    "work": re.compile(
        r"\bmy (?:job|profession|occupation)\b|\bwhat do i (?:do for|work)\b|\bwhere do i work\b|\b(?:was"
        r"|wo) arbeite ich\b|\bals was arbeite ich\b|\bmein (?:beruf|job)\b|\b(?:[ed][ne] qu[eé]|d[oó]nde) trabajo\b"
        r"|\bmi (?:trabajo|profesi[oó]n)\b|\bmon (?:m[eé]tier|travail|job|boulot)\b"
        r"|\bo[uù] (?:est-ce que )?je travaille\b|我是?做什么|我的(?:工作|职业)|我在哪里?(?:工作|上班)"
    ),
    "said": re.compile(
        r"\bwhat (?:did i (?:say|tell|mention|write)|have i (?:said|told))\b|\bwas (?:habe?|hatte) ich\b.*\b(?:gesagt"
        r"|erzählt)|\bqu[eé] (?:te |le )?(?:dije|cont[eé]|he dicho|he contado)\b|\bque? ?(?:t['’]|['’])?ai-je dit\b"
        r"|\bqu['’]est-ce que (?:je t['’]|j['’])ai dit\b|我.{0,6}(?:说|讲|告诉你?)[了过]?(?:什么|啥)"
    ),
}
"""Patterns of lower-cased questions, by topic."""
ABOUT_SOMETHING = re.compile(r"\b(?:about|regarding|über|von|zu|sobre|acerca|sur|à propos)\b|关于")
REPORTED = re.compile(
    r"\b(?:sa(?:id|ys)|told|asked|claim(?:s|ed)|pretend\w*|if|sagte?|fragte|wenn|dijo|dice|dit|disait)\b|[\"“„«]|说",
    re.IGNORECASE,
)
"""Matches if reported or conditional speech follows."""
STATED: dict[Topic, re.Pattern[str]] = {
    "home": re.compile(
        r"\b(?:i|we)(?:['’](?:m|ve|re)| am| have| are)?(?: just| now| recently)? (?:live|living|moved|relocated"
        r"|reside)\b|\bi(?:['’]m| am) (?:based|from)\b|\b(?:my home|my flat|my apartment) is\b|\bich (?:wohne|lebe"
        r"|komme aus)\b|\bwohne ich\b|\b(?:ich bin|wir sind)\b.{0,80}\bgezogen\b|\bvivo en\b|\bme (?:he )?mud(?:é"
        r"|ado)\b|\bsoy de\b|\bj['’]habite\b|\bje vis\b|\bj['’]ai déménagé\b|\bj['’]ai emménagé\b|\bje suis de\b"
        r"|我(?:现在)?住|我搬[到去家]|我家在|我来自"
    ),
    "work": re.compile(
        r"\bi(?:['’]m| am)? (?:now )?(?:work|working) (?:as|at|for|in|on)\b|\bmy (?:new )?(?:job|profession"
        r"|occupation) is\b|\bi(?:['’]m| am) an? \w{1,20}(?:er|or|ist|ian|ant|nurse|chef|cook|pilot|judge)\b"
        r"|\bi(?:['’]m| am) a (?:nurse|chef|cook)\b|\bi (?:got|have|started) a (?:new )?job\b|\bich arbeite (?:als"
        r"|bei|in|im)\b|\bmein (?:beruf|job) ist\b|\bich bin \w{1,20}(?:er|in)\b|\btrabajo (?:como|de|en|para)\b"
        r"|\bje travaille\b|\bmon métier\b|我(?:是|当)\w{0,8}(?:师|员|生|工)|我在.{0,40}(?:工作|上班)|我的工作是"
    ),
}
"""Patterns of lower-cased statements, by topic."""
PROTOTYPES: dict[Topic, str] = {
    "name": "My name is. I am called. Call me. Ich heiße. Me llamo. Je m'appelle. 我叫",
    "home": "I live in. I moved to. Ich wohne in. Vivo en. J'habite à. 我住在",
    "work": "I work as. My job is. Ich arbeite als. Trabajo como. Je travaille comme. 我的工作是",
}
_NAME = r"(?P<name>[^\W\d_a-zß-öø-ÿ][^\W\d_]{0,30}(?:[ '’-][^\W\d_a-zß-öø-ÿ][^\W\d_]{0,30}){0,3})"
GIVEN_NAME = re.compile(
    rf"\b(?:[Mm]y (?:full |first )?name(?:['’]s| is)|(?:[Pp]lease )?[Cc]all me|(?:I['’]m|I am) called"
    rf"|[Ii]ch hei(?:ß|ss)e"
    rf"|[Mm]ein (?:Vorn|N)ame ist|[Mm]e llamo|[Mm]i nombre es|[Jj]e m['’]appelle|[Mm]on (?:pré)?nom est) {_NAME}"
    r"|(?:^|[Uu]ser['’]?s? |[Pp]erson['’]?s? )(?:[Nn]ame(?: is|:)|[Ii]s (?:called|named)|[Gg]oes by) "
    rf"{_NAME.replace('name', 'noted')}"
    r"|我(?:的名字[叫是]|叫)(?P<chinese>[^\W\d_a-z]{2,4}?|[A-Z][a-z]+)(?=[，。,.！!\s]|$)"
    r"|\b(?:my name is|ich hei(?:ß|ss)e|me llamo|je m['’]appelle) "
    r"(?P<small>[^\W\d_]{2,20})(?=[.,!]|$| (?:and|und|y|et)\b)"
)
GERMAN_NOUN = (
    r"(?i:\w{0,30}(?:er|in|ist|ant|ent|eur|or|ling|oge|iker|mann|frau|mensch|arzt|anwalt|koch|wirt|graf|nom|kind|typ|fan"
    r"|eule|freund|vater|mutter|los|ig|isch|lich|ose)|deutsche?|pole|däne|russe|schwede|finne|grieche|türke|chinese|ire"
    r"|schotte|brite|kroate|serbe|ungar|jude|katholik|muslima?|moslem|hindu|single|witwe|waise|papa|mama|oma|opa|azubi"
    r"|chef|boss|profi|laie|kunde|kollege|hebamme|pilot|chirurg|beamt\w+|angestellt\w+|pfleg\w+|waage|jungfrau|widder)\b"
)
"""Nouns that follow "Ich bin" with a capital letter, as in "Ich bin Arzt". They exclude some names, such as Martin."""
LIKELY_NAME = re.compile(
    rf"(?:^|[.!,…] |\b(?:[Hh]i|[Hh]ello|[Hh]ey|[Hh]ola|[Bb]onjour|[Ss]alut)[,!]? )"
    rf"(?:I['’]m|I am|[Tt]his is|[Ss]oy|[Yy]o soy|[Jj]e suis) {_NAME}(?=[.,!]|$| (?:and|from|here|y|de|et)\b)"
    rf"|\b(?:[Hh]i|[Hh]allo|[Hh]ey|[Mm]oin|[Ss]ervus)[,!]? (?:und )?[Ii]ch bin (?:die "
    rf"|der )?{_NAME.replace('name', 'german')}"
    rf"|(?:^|[.!,…] )[Ii]ch bin (?!{GERMAN_NOUN}){_NAME.replace('name', 'bare')}(?=[.,!]|$| und\b)"
)
"""Introduces a name or something else that a person is: "I'm Nina", "I'm German"."""
NO_NAME = re.compile(
    r"(?:\w{1,20}(?:ish|ese)|german|italian|american|mexican|canadian|australian|russian|indian|french|greek|dutch"
    r"|swiss|catholic|christian|muslim|jewish|buddhist|hindu|vegan|vegetarian|(?:mon|tues|wednes|thurs|fri|satur"
    r"|sun)day|tomorrow|later|back|ok|okay|not|so|very|sorry|happy|allergic)\b",
    re.IGNORECASE,
)
ORDINARY = re.compile(
    r"(?:fine|good|great|well|sure|ready|done|busy"
    r"|hungry|thirsty|sick|ill|sad|glad|angry|mad|afraid|lucky|lost|single|pregnant|home|here|there|free|new|old|young"
    r"|late|early|alone|awake|asleep|sleepy|nervous|proud|curious|grateful|sober|gay|lesbian|bisexual|trans|autistic"
    r"|diabetic|jobless|human|mom|mum|mama|dad|papa|atheist|protestant|orthodox|sikh|hispanic|latin[ao]|czech|slovak"
    r"|thai|israeli|pakistani|iraqi|filipino|korean|european|african|\w{2,20}(?:gian|nian|sian)|egyptian|croatian"
    r"|colombian|serbian|latvian|peruvian|bolivian|brazilian|austrian|hungarian|bulgarian|nigerian|syrian"
    r"|(?!ahmed\b|jared\b|khaled\b|\w{0,9}ham+ed\b|\w{0,9}fred\b)\w{3,20}ed|\w{3,20}(?:ing|less|ful)"
    r"|aleman\w*|alemán|español\w*|francés|inglés|italian[ao]|mexican[ao]|católic[ao]|vegan[ao]|vegetarian[ao]|solter[ao]"
    r"|français\w*|allemande?|espagnole?|italien\w*|anglaise?|belge|suisse|catholique|végane?|célibataire|fatiguée?"
    r"|cansad[ao]|müde|krank|satt|froh|traurig|verheiratet|schwanger|zuhause|da|wieder)\b",
    re.IGNORECASE,
)
"""Words for what a person is, even with a capital letter. Some of them are names after "my name is"."""
GENERAL = frozenset(
    """
    know known knows knowing tell told remember remembers learn learned learnt stored saved person people user users
    peer someone human preferences preference goals goal working style facts fact information info details background
    profile summary summarize summarise describe overview context relevant current conversation session discussed far
    prioritize prioritise active biographical focus help ai assistant immediately useful important key main everything
    anything something given myself s who am i what do you me
    weißt weisst weiss kennst bekannt person nutzer nutzerin benutzer benutzerin vorlieben ziele fakten wichtig
    erzähl erzähle alles etwas mich mir bin du kannst diese dieser
    sabes conoces persona usuario usuaria preferencias metas objetivos datos importante soy mí mi cuéntame todo algo
    quién quien eres esta este
    sais connais personne utilisateur utilisatrice préférences objectifs faits important suis moi je tu que qui sur de
    ce cette quelles sont ses quel est dis raconte qu t
    """.split()  # noqa: SIM905 - one word a line would be a page
)
GENERAL_CHINESE = re.compile(r"我是谁|(?:知道|了解|记得|关于)我|(?:这个|该)(?:人|用户)")


@lru_cache(maxsize=MAX_CACHED_TEXTS)
def find_topic(question: str) -> Topic | None:
    """Return the topic of a question about its asker; None if its own words describe the answer."""
    small = question.lower()
    if len(small) > MAX_QUESTION_CHARS:
        return None
    found = next((topic for topic, asked in ASKED.items() if asked.search(small)), None)
    if found == "said" and ABOUT_SOMETHING.search(small):
        return None
    if found is None and is_general(question) and (speaks_of_oneself(question, split_words(question)) or _me(small)):
        return "oneself"
    return found


def _me(small: str) -> bool:
    return re.search(r"\b(?:moi|suis-je|m[ií]|soy|mich|bin ich)\b|我", small) is not None


def is_general(question: str) -> bool:
    """Return True for a question about a person as a whole, almost all of whose words are general."""
    words = telling_words(split_words(question))
    known = sum(word in GENERAL for word in words)
    return known >= GENERAL_SHARE * max(1, len(words)) or GENERAL_CHINESE.search(question) is not None


def expand(question: str, today: date) -> str:
    """Return the text to search for.

    A question about a name, a home or a job gets typical words of its answers, one about earlier statements its date.
    """
    topic = find_topic(question)
    if topic == "said":
        return write_out(question, today)
    return f"{question} {PROTOTYPES[topic]}" if topic in PROTOTYPES else question


def states(topic: Topic, text: str) -> bool:
    """Return True if a text states an answer to questions of a topic."""
    if topic == "name":
        return find_name([text]) is not None
    found = STATED[topic].search(text.lower())
    return found is not None and not _is_reported(text, found.start())


def fits_statement(question: str, statement: str, text: str) -> bool:
    """Return True if a question is about this statement of a text rather than another sentence of it."""
    rest = [part.strip() for part in SENTENCE_END.split(text.replace(statement, " "))]
    topic = find_topic(question)
    if topic in PROTOTYPES:
        stated, elsewhere = states(topic, statement), any(states(topic, part) for part in rest)
        if stated != elsewhere:
            return stated
    words = telling_words(split_words(question))
    return share_held(words, statement) >= max(share_held(words, part) for part in rest)


def find_name(texts: Iterable[str]) -> tuple[str, str] | None:
    """Return the name that a person gives themselves, and its text: the first text that states it outright, or else
    the first that probably does.
    """
    likely: tuple[str, str] | None = None
    for text in texts:
        if (name := _first_name(GIVEN_NAME, text)) is not None:
            return name, text
        if likely is None and (name := _first_name(LIKELY_NAME, text)) is not None:
            likely = name, text
    return likely


def _first_name(pattern: re.Pattern[str], text: str) -> str | None:
    for found in pattern.finditer(text):
        name = next(given for given in found.groups() if given)
        is_word = NO_NAME.match(name) or (pattern is LIKELY_NAME and ORDINARY.match(name))
        if not is_word and not _is_reported(text, found.start()):
            return name[:1].upper() + name[1:]
    return None


def _is_reported(text: str, place: int) -> bool:
    """Return True if the sentence up to a position says that reported speech follows."""
    begin = max(text.rfind(end, 0, place) for end in ".!?。！？\n") + 1
    return REPORTED.search(text, begin, place) is not None
