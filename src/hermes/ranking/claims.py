"""Claims of statements: somebody's attribute and its value, in five languages, and which claim ends which. Pure.

"I moved to Porto" claims a home, "my bank is Monzo" a bank. A later claim of another value ends the earlier one if the
attribute is single-valued, or if the later statement contains a word of change. Two statements about the same thing,
one of which denies it, contradict each other: without a word of change both stay current.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from hermes.ranking.changes import CHANGES, find_values, names_change
from hermes.ranking.dates import MONTHS
from hermes.ranking.words import STOP_WORDS, split_speaker, split_words

ClaimEnd = Literal["change", "contradiction"]
MAX_STATEMENT_CHARS = 600
"""Longer texts yield no claims."""
MAX_CLAIMS = 8
MAX_CACHED_STATEMENTS = 4096
"""The number of statements whose claims are cached: a statement is read when it is stored, and again for cards."""
SPEAKER = "me"
LEFT = "left"
"""The attribute of something that ended, whatever it was: sold, cancelled, quit."""
SINGLE = frozenset({"home", "employer", "workplace", "work", "name", "age", "boss"})
"""Attributes with one value at a time."""
NAMED = frozenset({"home", "employer", "workplace", "boss"})
"""Attributes whose values are names: "lives in interesting times" claims no home."""
REPLACEABLE = frozenset({"drives", "phone"})
"""Attributes whose value is replaced only after a word of change: people who like tea may still like coffee."""
ENDABLE = frozenset({"home", "employer", "work", "has", "drives", "likes"})
VALUE = r"(?P<value>[^\s,.;:!?，。；：！？()\"“”][^,;!?，。；！？()\"“”\n]{0,60})"
WHO = r"(?P<who>\b(?:i|we|(?:the )?user)\b|\b(?:my|our) [\w-]+(?-i:(?: [A-ZÀ-Þ][\w-]*)?)|(?-i:\b[A-ZÀ-Þ][\w-]+))"
THEY = (
    r"(?P<who>\b(?:meine?|unsere?|mi|nuestr[oa]|mon|ma|notre) [\w-]+(?-i:(?: [A-ZÀ-Þ][\w-]*)?)|(?-i:\b[A-ZÀ-Þ][\w-]+))"
)
"""Somebody else, before a verb in German, Spanish or French."""
NAME = r"(?-i:[A-ZÀ-Þ][\w-]*)"
BOSS = r"(?:boss|(?:line )?manager|supervisor|team lead)"
POST_HELD = r"(?:job|post|position|role)"
DWELLING = r"(?:house|flat|apartment|place|home)"
HAVE = r"(?:['’](?:ve|m|re|s)| have| am| are| has| is)?(?: (?:just|now|recently|actually|finally|all|both|currently))*"
WHOSE = rf"(?:{WHO}{HAVE}|^)"
"""The person that a statement is about; the speaker, if it begins with its verb."""
LATELY = r"(?:(?:jetzt|nun|inzwischen|mittlerweile|seit \w+|ahora|ya|actualmente|maintenant|désormais|actuellement) )*"
PATTERNS: Mapping[str, Sequence[str]] = {
    "home": (
        rf"{WHOSE} ?(?:lives?|living|resides?|settled(?: down)?) (?:back )?(?:in|at|near) {VALUE}",
        rf"{WHOSE} ?(?:moved|relocated)(?: back| house| out| over| away| down| up)?"
        rf"(?: from (?:[\w-]+ ){{1,3}}?)? ?(?:in)?to (?!an?\b|my\b|our\b){VALUE}",
        rf"{WHOSE} ?(?:moved|moving) in with (?:my )?[\w-]+ in {VALUE}",
        rf"{WHOSE} ?moved[.!,:] (?:\d+\w? )?{VALUE}",
        rf"\b(?:my|our) (?:new )?(?:address|{DWELLING}) is (?:now )?(?:in |at )?(?:\d+\w? )?{VALUE}",
        rf"{WHO}{HAVE} (?:found|rented|bought|moved into|got) (?:an?|our|the) (?:\w+ )?{DWELLING}"
        rf"(?: to rent)? in {VALUE}",
        rf"\b(?:wohnen?|leben?) {LATELY}in {VALUE}",
        r"\b(?:bin|sind) (?:\w+ ){0,4}?nach (?P<value>[\w-]+) (?:um)?gezogen",
        rf"\b(?:bin|sind) umgezogen[.!,:] {VALUE}",
        rf"\b(?:vivo|vivimos|resido) {LATELY}en {VALUE}",
        rf"\b(?:me|nos) (?:he |hemos )?(?:mud\w+|trasladé) a {VALUE}",
        rf"\b(?:j['’]habite|je vis|nous (?:habitons|vivons)) {LATELY}(?:à|a|en|au|aux) {VALUE}",
        rf"\b(?:j['’]ai|on a|nous avons) (?:\w+ )?déménagé (?:à|a|en|au|aux) {VALUE}",
        rf"{THEY} (?:wohnt|lebt) {LATELY}in {VALUE}",
        rf"{THEY} ist (?:\w+ ){{0,4}}?nach (?P<value>[\w-]+) (?:um)?gezogen",
        rf"{THEY} (?:vive|reside) {LATELY}en {VALUE}",
        rf"{THEY} se (?:ha )?mud(?:ó|ado) a {VALUE}",
        rf"{THEY} (?:habite|vit) {LATELY}(?:à|a|en|au|aux) {VALUE}",
        rf"\bI(?:['’]m| am)\b[^.!?;\n]{{1,80}}, (?:now |currently )?(?:living|based) in {VALUE}",
        r"(?:我们?|^)(?:现在|已经|目前|上周|刚)*(?:住在|搬到了?|搬去了?)(?P<value>[^，。！？,.\s]{1,12})",
    ),
    "boss": (
        rf"(?:\bmy (?:new |current )?|^(?:the |our )?new ){BOSS}(?: now| at {NAME})?(?:['’]s| is)(?: now| called)?"
        rf" (?:\w+ )??(?P<value>{NAME}(?: {NAME})?)",
        rf"(?:^|\bi (?:now )?|\bi['’]ll )(?:report(?:ing)?|answer) (?:directly )?to (?P<value>{NAME}(?: {NAME})?)",
        rf"(?P<value>{NAME}(?: {NAME})?)(?:['’]s| is) (?:now )?my (?:new |current )?{BOSS}\b",
        rf"\b(?:meine? (?:neue[rs]? )?(?:chefin|chef|vorgesetzter?))(?: ist| heißt)(?: jetzt)? "
        rf"(?P<value>{NAME}(?: {NAME})?)",
        rf"\bmi (?:jef[ea]|jef[ea] nuev[oa]|nuev[oa] jef[ea])(?: ahora)? (?:es|se llama)(?: ahora)? "
        rf"(?P<value>{NAME}(?: {NAME})?)",
        rf"\bm(?:on|a) (?:nouve(?:au|lle) )?(?:chef(?:fe)?|patron(?:ne)?|responsable) (?:est|s['’]appelle)"
        rf"(?: maintenant)? (?P<value>{NAME}(?: {NAME})?)",
        r"我的?(?:新)?(?:老板|上司|经理|领导)(?:现在)?(?:是|叫)(?P<value>[^，。！？,.\s]{1,8})",
    ),
    "workplace": (
        rf"{WHOSE} ?(?:based|stationed) (?:in|at) {VALUE}",
        rf"{WHO}{HAVE} (?:been )?(?:transferred|posted) to {VALUE}",
    ),
    "phone": (
        r"\b(?:my|our|i['’]m on|reach me|call me|ring me|text me|meine?|mi|mon)\b[^.!?\n\d+]{0,40}"
        r"(?P<value>\+?\d[\d ()/-]{6,16}\d)(?!\w)",
        r"\b(?:new|neue|nueva?|nouveau) (?:[\w-]+ )?(?:number|nummer|numéro|número)\b[^.!?\n\d+]{0,20}"
        r"(?P<value>\+?\d[\d ()/-]{6,16}\d)(?!\w)",
    ),
    "employer": (
        rf"{WHOSE} ?(?:works?|working)(?: \w+)? (?:at|for) {VALUE}",
        rf"{WHOSE} ?(?:works?|working) as (?:[\w-]+ ){{1,4}}?(?:at|for) {VALUE}",
        r"(?:^|[.!] )(?:[A-Za-z-]+ ){1,3}at (?P<value>[A-Z][^,;!?.\n]{1,40}), (?:starting|from)\b",
        rf"{WHOSE} ?(?:(?:got|was|been) )?(?:promoted|hired|transferred)(?: to|,)? (?:[\w-]+ ){{1,4}}at {VALUE}",
        rf"{WHOSE} ?(?:started(?: working| work| a new job| a job)?|got a (?:new )?job|joined) at {VALUE}",
        rf"(?:^|\bmy )first day at {VALUE}",
        rf"{WHO}{HAVE} (?:taken|got|accepted|landed) (?:an?|the) (?:new )?{POST_HELD}(?: (?:in|as)(?: [\w&-]+){{1,3}})?"
        rf" (?:at|with) {VALUE}",
        rf"{WHOSE} ?(?:an? )(?!(?:guest|visitor|patient|member|volunteer|regular|customer)\b)[\w-]+"
        rf"(?: (?:on|in)(?: [\w-]+){{1,4}})? at {VALUE}",
        rf"^(?:work|job|employer): (?:[\w-]+ ){{1,4}}(?:at|for) {VALUE}",
        rf"\barbeiten? {LATELY}(?:bei|für) {VALUE}",
        rf"\btrabaj(?:o|amos) {LATELY}(?:en|para) {VALUE}",
        rf"\btravaill(?:e|ons) {LATELY}(?:chez|pour|à) {VALUE}",
        r"我(?:现在)?在(?P<value>[^，。！？,.\s]{1,15}?)(?:工作|上班)",
    ),
    "work": (
        rf"{WHOSE} ?(?:works?|working|started|promoted)(?: \w+)? (?:as|to) (?:an? |the )?{VALUE}",
        rf"\barbeite {LATELY}als {VALUE}",
        rf"\btrabajo {LATELY}(?:como|de) {VALUE}",
        rf"\btravaille {LATELY}comme {VALUE}",
    ),
    "name": (
        rf"\b(?:my name['’]?s?(?: is)?|call me|i go by) (?:now )?(?P<value>{NAME}(?: {NAME})?)",
        r"\b(?:ich hei(?:ß|ss)e|mein name ist|nenn mich) (?P<value>[\w-]+)",
        r"\b(?:me llamo|ll[aá]mame|je m['’]appelle|appelle[sz]?-moi) (?P<value>[\w-]+)",
        r"我(?:的名字)?(?:叫|是叫)(?P<value>[^，。！？,.\s]{1,8})",
    ),
    "age": (
        r"\b(?:i['’]m|i am|i(?: just)? turned) (?:now )?(?P<value>\d{1,3})(?= now\b| years|[,.!]| and\b|$)",
        r"(?P<who>\bmy [\w-]+(?-i:(?: [A-ZÀ-Þ][\w-]*)?)|(?-i:\b(?!It\b|There|Th[aei]|Today|He\b|She\b|We\b|What|Here)"
        r"[A-ZÀ-Þ][\w-]+))(?:['’]s| is| just)?(?: now| already)*"
        r" (?:(?<=is )|(?<=['’]s )|(?<=now )|turns |turned |turning )"
        r"(?P<value>\d{1,3})(?= now\b| years? old| and a half|[,.!]| and\b|$)",
        r"\bich bin (?:jetzt )?(?P<value>\d{1,3})(?= jahre|[,.!]| und\b|$)",
        r"\b(?:tengo|cumplí|j['’]ai) (?P<value>\d{1,3}) an",
        r"我(?:今年|现在)?(?P<value>\d{1,3})岁",
    ),
    "has": (
        rf"{WHO}(?:['’]ve| have| has)? ?(?:got|have|has|owns?|bought) (?:an?|the|two|three|\d+) {VALUE}",
        rf"\b(?:ich habe eine?n?|tengo una?|j['’]ai une?) {VALUE}",
    ),
    "drives": (rf"{WHO}{HAVE} (?:drives?|driving) {VALUE}", rf"\bich fahre (?:jetzt )?{VALUE}"),
    "likes": (
        r"\bi (?:really |still |do |also )*(?P<not>no longer |don['’]t |do not |never )?"
        rf"(?:really )?(?:like|love|enjoy|eat|drink|smoke|play) (?!(?:it|that|this|them|him|her)\b){VALUE}",
        rf"\bich (?:mag|liebe|esse|trinke|rauche|spiele) {VALUE}",
        rf"\b(?P<not>(?:ya )?no )?me gustan? {VALUE}",
        rf"\bj['’]aime {VALUE}",
        rf"\bje (?P<not>n)['’]aime (?:plus|pas) {VALUE}",
        r"我(?P<not>不再|不|已经不)?(?:喜欢|爱吃|爱喝)(?P<value>[^，。！？,.\s]{1,12})",
    ),
    LEFT: (
        rf"\b(?:sold|cancelled|canceled|quit|left|gave up|given up|got rid of|parted with|traded in|moved out of"
        rf"|resigned from|retired from|unsubscribed from|handed in (?:my|his|her) notice at) {VALUE}",
        rf"\bno longer (?:\w+ ){{1,2}}?(?:in|at|for|the|an?|with) {VALUE}",
        r"\b(?P<value>[\w-]+(?: [\w-]+)?) (?:verkauft|gekündigt|aufgegeben)",
        rf"\b(?:vendí|vendimos|dejé|dejamos|cancelé|renuncié a|vendu|quitté|résilié|démissionné de) {VALUE}",
        r"(?:卖掉?了|退掉了|辞掉了|取消了)(?P<value>[^，。！？,.\s]{1,12})",
    ),
}
NO_DIGIT = re.compile(r"\D")
CLAIMS = tuple(
    (attribute, re.compile(pattern, re.IGNORECASE)) for attribute, some in PATTERNS.items() for pattern in some
)
OWN = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:my|our) (?P<noun>(?:[\w-]+ ){0,3}?[\w-]+?)(?:['’]s| is| are)"
        rf"(?: now| currently| actually| called| named)* {VALUE}",
        rf"\b(?:meine?|unsere?) (?P<noun>(?:[\w-]+ ){{0,2}}?[\w-]+) (?:ist|heißt|sind)"
        rf"(?: jetzt| inzwischen| nun)* {VALUE}",
        rf"\b(?:mi|mis|nuestr[oa]) (?P<noun>(?:\w+ ){{0,2}}?\w+)(?: ahora)? (?:es|son|se llama)(?: ahora)? {VALUE}",
        rf"\b(?:mon|ma|mes|notre) (?P<noun>(?:\w+ ){{0,2}}?\w+) (?:est|sont|s['’]appelle)"
        rf"(?: maintenant| désormais)? {VALUE}",
        rf"(?:^|[.!] )(?:the )?new (?P<noun>[\w-]+(?: [\w-]+)?)(?: (?:at|in|near|from) (?:[\w-]+ ?){{1,3}})?"
        rf"(?:['’]s| is)(?: called| named)? {VALUE}",
        rf"^(?:der|die|das) neue (?P<noun>[\w-]+)(?: (?:in|bei|aus) [\w-]+)? (?:ist|heißt) {VALUE}",
        r"我的(?P<noun>[^\s，。是叫]{1,8}?)(?:现在)?(?:是|叫|改成|变成)(?P<value>[^，。！？]{1,20})",
    )
)
"""Something of the speaker's, by its noun, and its value."""
DAY_FIRST = re.compile(
    r"\b(?P<day>(?:mon|tues|wednes|thurs|fri|satur|sun)day)(?:['’]?s)?(?: (?:is|are)| now)* my"
    r" (?P<noun>[\w-]+(?: [\w-]+)?)"
    r"|\b(?P<tag>montags?|dienstags?|mittwochs?|donnerstags?|freitags?|samstags?|sonntags?) (?:ist|habe ich)"
    r"(?: jetzt| nun)? meine?n? (?P<was>[\w-]+(?: [\w-]+)?)"
    r"|\b(?P<dia>lunes|martes|miércoles|jueves|viernes|sábados?|domingos?) (?:es|son)(?: ahora)? mi (?P<cosa>\w+)"
    r"|\b(?P<jour>lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche) (?:est|c['’]est)(?: maintenant)? mon"
    r" (?P<chose>\w+)",
    re.IGNORECASE,
)
"""A day of the week, and what of the speaker's it is."""
STAYED = re.compile(
    rf"(?:\b(?:actually|after all|in the end)\b.*)?{WHO} (?:\w+ )?(?:stayed|stay|are staying) in {VALUE}", re.IGNORECASE
)
"""Claims a home only with a word such as "after all"; otherwise it is a visit."""
AFTER_ALL = re.compile(r"\b(?:actually|after all|in the end|instead)\b", re.IGNORECASE)
CUT = re.compile(
    r"[.\s]\s*(?:with|because|since|for|and|but|so|as|where|which|who|while|when|last|this|next|these|now|again|until"
    r"|till|any ?more|instead|two|three|from|on|after|before|not|though|ago|yesterday|today|tonight|about|by|to|\d"
    r"|mit|weil|seit|und|aber|wo|nicht mehr|gestern|letzte[nrs]?|vor|con|porque|desde|y|pero|donde|ayer|la semana"
    r"|el mes|hace|avec|parce|depuis|et|mais|où|la semaine|le mois|hier)\b",
    re.IGNORECASE,
)
"""Where a value ends and another part of the sentence begins."""
ARTICLE = re.compile(r"^(?:an?|the|my|our|in|der|die|das|eine?n?|el|la|le|les|une?|una) ", re.IGNORECASE)
NEWNESS = frozenset(
    """
    new old current own little big neue neuer neues alte aktuelle nueva nuevo nouvelle nouveau
    """.split()  # noqa: SIM905
)
TITLES = frozenset(
    """
    mr mrs ms miss dr doctor prof professor sir principal herr frau señor señora sr sra don doña monsieur madame
    mme mlle 医生 先生 女士 老师
    """.split()  # noqa: SIM905
)
"""Words before a name, which two people may share."""
KIN = {
    form: forms.split()[0]
    for forms in ("mother mom mum mama mutter madre mamá mère maman", "father dad papa vater padre papá père")
    for form in forms.split()
}
"""People of whom everybody has one, by what they are called, with one name each."""
SEVERAL = frozenset(
    """
    brother sister sibling friend son daughter child kid cousin aunt uncle niece nephew colleague neighbour
    neighbor dog cat pet hobby goal problem plan idea question point thing reason advice guess favourite one bruder
    schwester freund freundin sohn tochter kind kollege hund katze hermano hermana amigo amiga hijo hija perro gato
    frère sœur ami amie fils fille enfant chien chat 哥哥 弟弟 姐姐 妹妹 朋友 儿子 女儿 孩子 狗 猫
    """.split()  # noqa: SIM905
)
"""Things that a person may have several of: another value changes nothing."""
ENDS = re.compile(
    r"\bno longer\b|\bany ?more\b|\bstopped\b|\bused to\b|\bnicht mehr\b|\bkeine?n? .{1,30}\bmehr\b|\bya no\b"
    r"|\bne \w+ plus\b|\bn['’]\w+ plus\b|不再",
    re.IGNORECASE,
)
CLAUSE_ENDS = ",;:.!?，；。！？"
CORRECTS = re.compile(
    r"\bactually\b|\bcorrection\b|\bi (?:meant|was wrong|misspoke)\b|\btold you wrong\b"
    r"|\bgot .{1,30}(?:wrong|muddled|mixed up)\b|\beigentlich\b|\bkorrektur\b|\bich meinte\b|\bhabe mich geirrt\b"
    r"|\ben realidad\b|\bme equivoqué\b|\bquise decir\b|\ben fait\b|\bje me suis trompée?\b|\bje voulais dire\b"
    r"|其实|说错了|更正",
    re.IGNORECASE,
)
"""Matches corrections of an earlier statement."""
EVERY_STOP_WORD = frozenset[str]().union(*STOP_WORDS)
KINDS = ("time", "date", "percent", "number")
MIN_SHARED_WORDS, MIN_SHARED_RATIO = 2, 0.5
"""Two statements are about the same number or date if they share this many words, and this share of the shorter
one's.
"""
MAX_TOPIC_CHARS = 1000
"""The length of a statement that is compared with others."""


@dataclass(frozen=True, slots=True)
class AttributeClaim:
    """A statement that somebody has, or does not have, a value of an attribute."""

    attribute: str
    """The attribute, with its owner unless that is the speaker: `home of pieter`."""
    value: str
    is_denied: bool = False

    @property
    def kind(self) -> str:
        return self.attribute.partition(" of ")[0]

    @property
    def is_own(self) -> bool:
        """True if the attribute is something of the speaker's, by its noun: `my bank`."""
        return self.attribute.startswith("my ")


@lru_cache(maxsize=MAX_CACHED_STATEMENTS)
def read_claims(text: str) -> tuple[AttributeClaim, ...]:
    """Return the claims of a statement; `ann: I …` is spoken by ann."""
    if len(text) > MAX_STATEMENT_CHARS:
        return ()
    speaker, said = split_speaker(text)
    found = dict.fromkeys((*_find_claims(said, speaker), *_find_own(said)))
    return tuple(found)[:MAX_CLAIMS]


def compare(older: AttributeClaim, newer: AttributeClaim, *, is_change: bool) -> ClaimEnd | None:
    """Return how a later claim ends an earlier one; None if both hold."""
    same = bool(_words(older.value) & _words(newer.value)) or older.value == newer.value
    if newer.kind == LEFT:
        is_endable = older.kind in ENDABLE or older.is_own
        return "change" if same and not older.is_denied and is_endable else None
    if older.attribute != newer.attribute:
        return None
    if older.is_denied != newer.is_denied:
        return ("change" if is_change else "contradiction") if same else None
    if same or newer.is_denied:
        return None
    if newer.is_own:
        shapes = {_shape(older.value), _shape(newer.value)}
        return "change" if len(shapes) == 1 and (is_change or shapes != {"words"}) else None
    return "change" if newer.kind in SINGLE or (is_change and newer.kind in REPLACEABLE) else None


def is_change(text: str) -> bool:
    """Return True if a statement says that something has changed or ended."""
    return names_change(text) or ENDS.search(text) is not None


def changes_value(older: str, newer: str) -> bool:
    """Return True if a later statement gives a number, time or date of an earlier one another value: it contains a
    word of change, and the two share most of their words.
    """
    if not names_change(newer):
        return False
    before, after = (_topic(text) for text in (older, newer))
    shared = before & after
    shorter = min(len(before), len(after))
    if not shared or len(shared) < max(min(MIN_SHARED_WORDS, shorter), MIN_SHARED_RATIO * shorter):
        return False
    for kind in KINDS:
        values = [{value for *_, value in find_values(text, kind)} for text in (older, newer)]
        if all(values):
            return values[0].isdisjoint(values[1])
    return False


def corrects(older: str, newer: str) -> bool:
    """Return True if a statement corrects one that its speaker made shortly before: they share a word."""
    return CORRECTS.search(newer) is not None and bool(_topic(older) & _topic(newer))


def _find_claims(said: str, speaker: str) -> Iterator[AttributeClaim]:
    for attribute, pattern in CLAIMS:
        for found in pattern.finditer(said):
            groups, value = found.groupdict(), _clean(found["value"])
            value = NO_DIGIT.sub("", value) if attribute == "phone" else value
            if value and (attribute not in NAMED or value[0].isupper() or not value.isascii() or said.islower()):
                is_denied = bool(groups.get("not")) or (attribute != LEFT and _is_ended(said, found))
                yield AttributeClaim(_attribute_of(attribute, groups.get("who"), speaker), value, is_denied)
    if AFTER_ALL.search(said) and (stayed := STAYED.search(said)) and (value := _clean(stayed["value"])):
        yield AttributeClaim(_attribute_of("home", stayed["who"], speaker), value)


def _is_ended(said: str, found: re.Match[str]) -> bool:
    """Return True if the clause of a claim says that it does not hold any more."""
    start = max(said.rfind(end, 0, found.start() + 1) for end in CLAUSE_ENDS) + 1
    ends = [place for end in CLAUSE_ENDS if (place := said.find(end, found.start("value"))) >= 0]
    return ENDS.search(said, start, min(ends, default=len(said))) is not None


def _find_own(said: str) -> Iterator[AttributeClaim]:
    for pattern in OWN:
        for found in pattern.finditer(said):
            words = [word for word in split_words(found["noun"]) if word not in NEWNESS]
            if words and SEVERAL.isdisjoint(words) and (value := _clean(found["value"])):
                yield AttributeClaim(f"my {' '.join(words)}", value)
    for found in DAY_FIRST.finditer(said):
        day, noun = (part for part in found.groups() if part)
        yield AttributeClaim(f"my {noun.lower()}", day.capitalize().rstrip("s"))


def _attribute_of(attribute: str, who: str | None, speaker: str) -> str:
    words = (who or "i").lower().split()
    if len(words) > 1 and words[1] in KIN:  # "my mom Irene" is "mom" elsewhere
        return f"{attribute} of {KIN[words[1]]}"
    last = KIN.get(words[-1], words[-1])
    is_speaker = last in ("i", "we", "user", speaker)
    return attribute if is_speaker else f"{attribute} of {last}"


def _clean(value: str) -> str:
    """Return a value without articles and without the rest of its sentence."""
    whole = ARTICLE.sub("", value.strip())
    end = CUT.search(whole, 1)
    return (whole if end is None else whole[: end.start()]).strip(" .'’")


def _words(value: str) -> frozenset[str]:
    return frozenset(split_words(value)) - EVERY_STOP_WORD - TITLES


def _topic(text: str) -> frozenset[str]:
    """Return the words that show what a statement is about."""
    return _topic_of(split_speaker(text)[1][:MAX_TOPIC_CHARS])


@lru_cache(maxsize=1024)
def _topic_of(said: str) -> frozenset[str]:
    # Each new statement is compared with the same earlier ones, hence the cache.
    return (
        frozenset(word for word in split_words(said) if not word[0].isdigit())
        - EVERY_STOP_WORD
        - CHANGES
        - MONTHS.keys()
    )


def _shape(value: str) -> str:
    """Return the shape of a value: values of different shapes are different facts about one noun."""
    first = value.lstrip("£$€¥")[:1]
    if first.isdigit():
        return "number"
    return "name" if first.isupper() or not value.isascii() else "words"
