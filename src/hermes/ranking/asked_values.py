"""Kinds of values that questions ask for (a name, an age, a price, a place), and whether a text has one. Pure.

The patterns are for English, German, Spanish, French and Chinese. A kind that has no recognisable form ("Which herb?")
is none of these: then every text may hold the value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from hermes.ranking.dates import asks_when
from hermes.ranking.successors import ASKS_NAME, ASKS_NUMBER, holds_wanted

MAX_CACHED_QUESTIONS = 256
NUMBER_WORDS = (
    "(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    "|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|once|twice|dozen|both"
    "|pair|couple|einen?|eine|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|zwanzig|hundert|dos"
    "|tres|cuatro"
    "|cinco|seis|siete|ocho|nueve|diez|once|doce|veinte|cien|deux|trois|quatre|cinq|sept|huit|neuf|dix|onze|douze"
    "|quinze|vingt|cent)"
)
NUMBER = re.compile(rf"\d|\b{NUMBER_WORDS}\b|[一二三四五六七八九十百千万两]", re.IGNORECASE)
COUNT = rf"(?:\d[\d.,]{{0,8}}|{NUMBER_WORDS}(?:[ -]{NUMBER_WORDS})?|[一二三四五六七八九十百两]{{1,4}})"
PERSON = (
    "(?:he|she|it|i|they|we)(?: is|'s|’s| am|'m|’m| was|'ll be)|who(?:'s|’s| is)|is|am|was|turn(?:s|ed|ing)?"
    "|ist|bin|wird|wurde|a|tiene|tengo|cumpl\\w{1,6}"
)
NAME = re.compile(r"(?<![\w'’])[A-ZÀ-Þ][\w'’&-]{1,40}|[一-龥]{2,4}(?=姐|哥|老师|医生)")
NAMING = re.compile(
    r"\b(?:named?|call(?:s|ed|ing)?|names? (?:is|are|was)|name['’]s|heißt|heißen|hieß|genannt|llam[aoó]\w{0,4}|nombre"
    r"|appel\w{1,5}|nommée?|titled?)\b|叫|名字",
    re.IGNORECASE,
)
MAX_NEAR_WORDS = 4
"""The greatest distance in words between a person's or a thing's name and the word that says who or what it is."""
WORD = re.compile(r"[\w'’&-]+")
CAPITAL = re.compile(r"[A-ZÀ-Þ][\w’']*\w{2}")
MAX_SMALL_SHARE = 0.34
MAX_READ_WORDS = 120


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A kind of value: the patterns of a question that asks for it, and of a text that has it."""

    name: str
    asked: re.Pattern[str]
    held: re.Pattern[str]


def _kind(name: str, asked: str, held: str) -> ValueKind:
    return ValueKind(name, re.compile(asked, re.IGNORECASE), re.compile(held, re.IGNORECASE))


KINDS = (
    ValueKind(
        "part of a name",
        re.compile(
            r"\b(?:sur|last |first |middle |maiden |family |nick)name|\b(?:nach|vor|mädchen|spitz)name|apellido"
            r"|nom de famille|\bprénom\b|姓什么|贵姓",
            re.IGNORECASE,
        ),
        re.compile(r"[A-ZÀ-Þ][\w’'-]+ [A-ZÀ-Þ][\w’'-]+|(?i:name|apellido|prénom|nom de famille|姓)"),
    ),
    _kind(
        "colour",
        r"\bcolou?rs?\b|\bfarbe\b|\bcouleur\b|\bcolor\b|颜色",
        r"\b(?:red|blue|green|yellow|black|white|brown|gr[ae]y|pink|purple|orange|teal|navy|beige|silver"
        r"|golden?|violet"
        r"|turquoise|cream|blonde?|ginger|tabby|rot\w{0,2}|blau\w{0,2}|grün\w{0,2}|gelb\w{0,2}"
        r"|schwarz\w{0,2}|weiß\w{0,2}"
        r"|braun\w{0,2}|grau\w{0,2}|roj[oa]|azul|verde|negr[oa]|blanc[oa]|gris|rouge|bleue?|verte?|noire?"
        r"|blanche?|jaune)\b"
        r"|[红蓝绿黄黑白灰粉紫橘橙]",
    ),
    _kind(
        "time of day",
        r"\bwhat (?:time|hours?)\b|\bworking hours\b|\b(?:um wie ?viel|wie viel) uhr\b|\bqué hora\b"
        r"|\bquelle heure\b|几点",
        r"\b\d{1,2}(?::\d\d)? ?(?:am|pm|a\.m|p\.m|o['’]clock|h\b|uhr)"
        rf"|\b(?:at|from|till?|until|by|to|about|around|um|a las|à) (?:\d{{1,2}}\b|{NUMBER_WORDS}\b|noon"
        rf"|midnight)|\d:\d\d"
        r"|\bnoon\b|\bmidnight\b|\bhalf past\b|点",
    ),
    _kind(
        "price",
        r"\bhow much\b.{0,80}\b(?:cost|pay|paid|charge|earn|spend|spent|make|rent|owe|lend|lent|worth|is|was|are)\b"
        r"|\bwhat\b.{0,80}\b(?:cost|price|salary|rent|wage|charge|pay|paid|pension|fee)\b|\bkostet|gekostet"
        r"|verdien\w{1,3}\b"
        r"|\bcuánto (?:cuesta|costó|pag\w+|gan\w+)\b|\bcombien (?:coûte|a coûté|pai\w+|gagne)\b|多少钱|工资|价格",
        r"[$€£¥]\s?\d|\d[\d,.]{0,12} ?(?:k\b|€|£|\$|dollars|euros?|pounds|bucks|quid|francs|cedis|thousand"
        r"|grand|an hour"
        rf"|a month|元|块|万)|\b{NUMBER_WORDS} (?:and a half )?(?:bucks|quid|euros?|dollars|pounds|grand"
        rf"|thousand|hundred|million)|\d{{3}}"
        r"|[百千万](?!一)",
    ),
    _kind(
        "age",
        r"\bhow old\b|\bwhat age\b|\bwie alt\b|\bquel âge\b|\bcuántos años\b|多大|几岁|年龄|年纪",
        rf"\b{COUNT}[ -]?(?:years?|yrs?|months?|weeks?)[ -]old"
        rf"|\b(?:{PERSON}) (?:\w+ )?{COUNT}\b(?! ?(?:[a-z$€£%:/-]|\d))"
        rf"|\d(?:th|st|nd|rd)\b|\b(?:{PERSON}) (?:\w+ )?{COUNT} (?:and|but|so|last|this|next|in|on|today"
        rf"|years)\b|\bborn\b|\baged?\b|birthday"
        rf"|\bat {COUNT}\b|(?:^|, ){COUNT}[,.]|\d (?:jahre|ans|años)|\b{COUNT} (?:jahre|ans|años)\b|geboren"
        rf"|\bnac[ií]|\bnée?\b"
        r"|岁|生日",
    ),
    _kind(
        "height",
        r"\bhow tall\b|\bheight of\b|\bwie groß (?:bin|ist|war)\b|\bcuánto mid[eo]\b|\bmesur\w{1,3}\b|身高|多高",
        r"\b(?:tall|height)\b|\d ?(?:cm|ft|m\b|metres?|meters?|foot|feet|['’])|\b(?:foot|feet) \w+"
        r"|\bmid[eo]\b|\bmesure|groß"
        r"|厘米|公分|米",
    ),
    _kind(
        "weight",
        r"\bweigh|\bhow heavy\b|\bwie schwer\b|\bwieg|\bcuánto pes|\bcombien pès|多重|体重",
        r"\bweigh|(?:\d|\b" + NUMBER_WORDS + r") ?(?:kg|kilos?|pounds?|lbs?|stone|grams?|oz)\b|\bwieg"
        r"|\bpes[oaó]|\bpès|斤",
    ),
    _kind(
        "birthday",
        r"\b(?:when|what)\b.{1,40}\bbirthday|\bwann\b.{1,40}geburtstag|\bcuándo\b.{1,40}cumple"
        r"|\bquand\b.{1,40}anniversaire|生日",
        r"\bbirthday|\bborn\b|\bturn(?:s|ed|ing)\b|\b[1-9]0th\b|(?:['’]s|\bis) \d{1,2} on\b|geburtstag|geboren"
        r"|\bcumpl|\bnac[ií]|\banniversaire"
        r"|\bnée?\b|生日|出生",
    ),
    _kind(
        "measure",
        r"\bwhat\b.{0,60}\b(?:score|dose|size|speed|rating|percentage|temperature|result|grade|distance)\b"
        r"|\bqué nota\b"
        r"|\bhow (?:fast|often|far|big|high|wide|deep)\b|\bwelche (?:note|größe)\b|\bquelle (?:note|taille|dose)\b",
        NUMBER.pattern + r"|\b(?:every|daily|weekly|always|never|times|size|small|large|medium)\b",
    ),
    _kind("address of mail", r"\be-?mail\b|邮箱", r"@"),
    _kind(
        "code",
        r"\bnumber\b(?! of)|\bplate\b|\bpin\b|\bcode\b|\biban\b|nummer\b|\bnúmero\b|\bnuméro\b|号码",
        r"\d{3}|\d[\d -]{4}",
    ),
    _kind(
        "duration",
        r"\bhow long\b|\bwie lange\b|\bcuánto tiempo\b|\bcombien de temps\b|多久|多长时间",
        rf"\b{COUNT}[ -]?(?:and a half )?(?:min|hour|day|week|month|year|stunde|tag|woche|monat|jahr|hora"
        rf"|día|semana|mes|año"
        r"|heure|jour|semaine|mois|an)|\bsince\b|\bseit\b|\bdesde\b|\bdepuis\b|\bfor (?:years|months|ages|a)\b"
        r"|\ba (?:week|month|year|day)\b|\d[:.]\d\d|[年月天周]",
    ),
    _kind(
        "work",
        r"\b(?:profession|occupation|job|trade)\b|\bfor a (?:living|job)\b|\bwhat (?:does|do"
        r"|did) (?!i\b)[\w'’ ]{1,40} do\?"
        r"|\bberuf|\bde quoi vit|\bmétier|\bdans la vie\b|\bse dedica|\bprofesión|做什么(?:工作|的)|职业",
        r"\b(?:works?|worked|working|job|teach\w{0,3}|taught|retired|runs?|owns?|drives?|business|employed"
        r"|career|qualified"
        r"|profession|manages?)\b|\b(?:is|was|am|as|being|'m|’m|'s|’s) an? |\ba \w+er\b|arbeite|beruf|lehr"
        r"|fängt|trabaj|profesor"
        r"|es (?:un )?\w+[oae]r?\b|travaill|métier|est \w+|suis \w+|工作|上班|老师|医生|司机|是",
    ),
)
NAMED_THING = re.compile(
    r"\b(?:which|what) (?!did|does|do|is|was|has|have|can)(?:\w+ )?(?:hotel|airline|bank|hospital|school"
    r"|university|college|company|firm"
    r"|street|team|club|band|brand|make|model|restaurant|doctor|dentist|surgeon|church|mosque|bakery"
    r"|insurance|insurer"
    r"|city|town|country|island|address|supermarket|shop|store|gym|clinic|magazine|newspaper|pharmacy)\b"
    r"(?! (?:is|was) \w+ for)"
    r"|\bwelche[rsmn]? (?:hotel|bank|schule|universität|firma|marke|stadt|land|klinik|straße|krankenhaus)"
    r"|\bqué (?:hotel|banco|colegio|hospital|universidad|empresa|marca|ciudad|país|calle)"
    r"|\bquelle? (?:école|banque|hôtel|hôpital|université|entreprise|marque|ville|pays|rue|voiture)|哪家|哪所",
    re.IGNORECASE,
)
ASKS_WHO = re.compile(
    r"^\W*(?:who(?: is|['’]s| was| are)|wer (?:ist|war)|quién es|qui est) (?!\w+ing\b)|\bnames?\b|\bcalled\b"
    r"|\bheiß(?:t|en)\b|\bse llaman?\b|s['’]appell|叫什么|名字",
    re.IGNORECASE,
)
WHO_IS_NAMED = re.compile(
    r"^\W*(?:[Ww]ho(?: is|['’]s| was)|[Ww]er (?:ist|war)|[Qq]uién es|[Qq]ui est) [A-ZÀ-Þ][\w'’-]+"
    r"(?: [A-ZÀ-Þ][\w'’-]+)*\W*$"
)
ASKS_WHERE = re.compile(r"^\W*(?:where|wo|woher|wohin|dónde|où)\b", re.IGNORECASE)
PLACE = re.compile(
    r"\b(?:in|at|to|near|from|outside|through|for|on|of|off|left|visit\w{0,3}|reach\w{0,2}|nach|bei|aus|auf"
    r"|zu[rm]?|en|a"
    r"|al|hasta|à|au|chez|dans|de|via)(?: the| a| an| my| our| der| dem| die| el| la| los| les| le| St)? [A-ZÀ-Þ0-9]"
    r"|\b(?:at|in|on|behind|under|next to|beside|outside|near) (?:the|my|our|a|an|his|her|their) \w+"
    r"|\bhome\b|\bhere\b"
    r"|\babroad\b|[在去到从]"
)

SMALL_PLACE = re.compile(PLACE.pattern.replace("[A-ZÀ-Þ0-9]", r"\w"))
"""The same for texts without capitals."""
SENTENCE_BEGIN = re.compile(r"(?:^|[.!?:] )$")
LINKS = frozenset(
    "is was are the a my our new named called mr mrs dr frau herr ist heißt es est acting again now will be".split()  # noqa: SIM905
)
"""Words that may stand between a name and the word that says whose it is ("my boss is now Ann")."""
PLAIN = frozenset(
    """
    the a an my our his her your their is was are i'm i is what who which whose called name names of for in at on to do
    does did he she we they it and but so just then when after der die das ein eine mein meine unser wie heißt heißen
    wer ist und el la los mi mis un una cómo se llama quién es de del le les mon ma mes notre comment qui est
    monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays saturdays
    sundays january february march april may june july august september october november december christmas easter
    """.split()  # noqa: SIM905 - one word a line would be a page
)
"""Common words that identify nobody and nothing, and capitalised words that are no names."""


@lru_cache(MAX_CACHED_QUESTIONS)
def find_kind(question: str) -> ValueKind | None:
    """Return the first kind of value in `KINDS` that a question asks for; None if there is none."""
    return next((kind for kind in KINDS if kind.asked.search(question)), None)


@lru_cache(MAX_CACHED_QUESTIONS)
def asks_value(question: str) -> bool:
    """Return True if a question asks for a value of a kind that has a recognisable form."""
    patterns = (ASKS_NUMBER, ASKS_NAME, ASKS_WHO, ASKS_WHERE, NAMED_THING)
    return find_kind(question) is not None or asks_when(question) or any(one.search(question) for one in patterns)


def asks_thing(question: str) -> bool:
    """Return True if a question asks for the name of something: of a school, a bank, a brand."""
    return find_kind(question) is None and _find_wanted(question).thing


class _Wanted(NamedTuple):
    """Values that a question asks for beside those in `KINDS`; several may be true."""

    number: bool
    who: bool
    """True for the name of a person or thing."""
    is_named: bool
    """True if it asks who somebody is whom it names: any text about them may tell."""
    where: bool
    thing: bool


@lru_cache(MAX_CACHED_QUESTIONS)
def _find_wanted(question: str) -> _Wanted:
    is_named = WHO_IS_NAMED.match(question) is not None
    number, where, thing = (one.search(question) is not None for one in (ASKS_NUMBER, ASKS_WHERE, NAMED_THING))
    return _Wanted(number, not is_named and ASKS_WHO.search(question) is not None, is_named, where, thing)


def writes_small(texts: Sequence[str]) -> bool:
    """Return True if hardly any of these texts has a capital ("just moved to leeds"): any of them may hold a name."""
    return sum(CAPITAL.search(text) is not None for text in texts) <= MAX_SMALL_SHARE * len(texts)


def holds_value(question: str, text: str, *, is_small: bool = False) -> bool:
    """Return False if a question asks for a value of a known kind and the text has none. `is_small` tells that its
    writer uses no capitals.
    """
    is_small = is_small and CAPITAL.search(text) is None
    kind = find_kind(question)
    if kind is not None:
        return kind.held.search(text) is not None
    wanted = _find_wanted(question)
    if wanted.number:
        return NUMBER.search(text) is not None
    if wanted.who:
        return _names_one(question, text, is_small=is_small)
    if wanted.where and (SMALL_PLACE if is_small else PLACE).search(text) is None:
        return False
    if wanted.is_named or (is_small and not asks_when(question)):
        return True
    if wanted.thing:
        return _has_new_name(question, text)
    return holds_wanted(question, text)


def find_value_places(question: str, text: str, *, is_small: bool = False) -> list[int] | None:
    """Return where a text has values of the kind that a question asks for; None if they may be anywhere."""
    is_small = is_small and CAPITAL.search(text) is None
    kind = find_kind(question)
    if kind is not None:
        return _find_places(kind.held, text)
    wanted = _find_wanted(question)
    if wanted.number:
        return _find_places(NUMBER, text)
    if wanted.who and not (is_small and NAMING.search(text) is None):
        return [*_find_new_names(question, text), *_find_places(NAMING, text)]
    if wanted.thing and not is_small:
        return _find_new_names(question, text)
    return _find_places(SMALL_PLACE if is_small else PLACE, text) if wanted.where else None


def _find_places(pattern: re.Pattern[str], text: str) -> list[int]:
    return [found.start() for found in pattern.finditer(text)]


def _find_new_names(question: str, text: str) -> list[int]:
    said = question.lower()
    found = ((one.start(), _bare(one[0])) for one in NAME.finditer(text))
    return [place for place, name in found if name not in PLAIN and name not in said]


def _has_new_name(question: str, text: str) -> bool:
    """Return True if a text has a name, not only at the beginning of a sentence, that the question lacks."""
    if not text.isascii():
        return True
    said = question.lower()
    return any(
        (name := found[0].lower()) not in PLAIN
        and name not in said
        and SENTENCE_BEGIN.search(text, max(0, found.start() - 2), found.start()) is None
        for found in NAME.finditer(text)
    )


def _names_one(question: str, text: str, *, is_small: bool) -> bool:
    """Return True if a text tells a name: with a word for naming, or next to a word of the question that is no name
    itself, if there is one.
    """
    if NAMING.search(text):
        return True
    asked, near = _read_words(question)
    words = WORD.findall(text)[:MAX_READ_WORDS]
    bare = [_bare(word) for word in words]
    if is_small:
        return not near.isdisjoint(bare)
    if near.isdisjoint(bare):
        return False
    named = [NAME.match(word) is not None and low not in asked | PLAIN for word, low in zip(words, bare, strict=True)]
    for at, low in enumerate(bare):
        if low not in near:
            continue
        for step in (1, -1):
            for other in range(at + step, at + step * (MAX_NEAR_WORDS + 1), step):
                if not 0 <= other < len(bare) or not (named[other] or bare[other] in LINKS):
                    break
                if named[other]:
                    return True
    return False


@lru_cache(MAX_CACHED_QUESTIONS)
def _read_words(question: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words of a question that say who or what is meant, and those that a name may stand next to: the ones
    that are no names themselves, if there are any.
    """
    words = [(word, _bare(word)) for word in WORD.findall(question)]
    asked = frozenset(bare for _, bare in words) - PLAIN
    common = frozenset(bare for word, bare in words if word[0].islower()) - PLAIN
    return asked, common or asked


def _bare(word: str) -> str:
    return word.lower().removesuffix("'s").removesuffix("’s")
