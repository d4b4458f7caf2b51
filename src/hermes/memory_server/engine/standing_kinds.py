"""Kinds of standing statements: names, lasting facts, wishes and instructions. Rules in five languages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache

from hermes.memory_server.engine.sentence_kinds import MAX_CACHED_SENTENCES, SECRET
from hermes.memory_server.engine.sentences import is_secret
from hermes.ranking.personal import GERMAN_NOUN, NO_NAME, ORDINARY

MAX_STANDING_CHARS = 200
"""The length of the longest standing statement; longer sentences usually tell a story."""
SIGNED = re.compile(r"[\w-]{1,100}: ")
"""The name of the speaker before a conclusion."""
PLEASE = r"(?:^|^[\w-]{1,100}: )(?:please|bitte|por favor|s['’]il (?:te|vous) pla[iî]t|请)?[\s,，]*"
NAME = r"(?-i:[A-ZÀ-Þ][a-zß-ÿ]\w*)"
NO_WORD = rf"(?!{NO_NAME.pattern}|{ORDINARY.pattern})"
I_AM = r"\b(?:i am|i['’]m)"
MANY = r"(?:an?|one|two|three|four|no|twin|eine?n?|zwei|drei|keine|una?|dos|tres|une|deux|trois|\d+)"
TRADE = (
    r"(?:[a-z-]+ ){0,2}(?:[a-z]{2,}(?:ist|ian|eer|yer)|teacher|nurse|doctor|driver|baker|farmer|writer|painter|designer"
    r"|developer|manager|carer|carpenter|plumber|builder|researcher|programmer|waiter|chef|cook|pilot|student|vet)"
)
KIN = (
    r"(?:wife|husband|partner|girlfriend|boyfriend|fianc[eé]e?|mother|mom|mum|father|dad|parents|sons?|daughters?|kids?"
    r"|child(?:ren)?|baby|brothers?|sisters?|siblings?|twins?|grand\w+|niece|nephew|aunt|uncle|cousin"
    r"|(?:ehe)?frau|(?:ehe)?mann|freund(?:in)?|partnerin|mutter|vater|eltern|s[oö]hne?|t[oö]chter|kind(?:er)?|br[uü]der"
    r"|schwestern?|geschwister|oma|opa|enkel\w*|nichte|neffe|tante|onkel"
    r"|espos[oa]|marido|novi[oa]|pareja|madre|padres?|hij[oa]s?|herman[oa]s?|abuel[oa]s?|niet[oa]s?"
    r"|femme|mari|copine|copain|compagn\w+|mère|père|fils|filles?|enfants?|frères?|s(?:œ|oe)urs?)"
)
KIN_ZH = r"(?:老婆|妻子|老公|丈夫|女朋友|男朋友|妈妈|爸爸|母亲|父亲|儿子|女儿|孩子|哥哥|弟弟|姐姐|妹妹|爷爷|奶奶)"
BIDS_EN = (
    r"(?:answer|reply|respond|use|write|speak|talk|call|address|tell|give(?! up)|include|add|show|explain|ask|suggest"
    r"|recommend|mention|send|remind|start|end|keep|format|translate|cite|convert|round|assume|offer|book|order|say)"
)
BIDS_DE = r"(?:antwort|schreib|sprich|sprech|nenn|erklär|empf[eiah]+l|vorschlag|schlag|verwend|benutz|duz|siez|rechne)"
BIDS_ES = r"(?:resp[oó]nd|contest|h[aá]bl|escr[ií]b|usa|utiliza|expl[ií]ca|recom[ie]+nd|sug[ie]+r)"
BIDS_FR = r"(?:répond|écri|parl|utilis|tutoi|vouvoi|expliqu|recommand|propos|donne)"
ILL = (
    r"(?:allerg|al[eé]rgi|intoler|intolér|unverträglich|diab[eèé]t|asthm|asma\b|epilep|c(?:oe|e|œ)lia|zöliakie|pregnant"
    r"|schwanger|embarazada|enceinte|depression|migr[aä](?:in|n|ñ)|cancer\b|adhd|autis[mt]|insulin|medication|arthritis"
    r"|blood (?:type|pressure)|pacemaker|wheelchair|disabled|disability|v[eé]gan|v[eé]g[eé]tar)"
)
RULES: Mapping[str, tuple[str, ...]] = {
    "name": (
        rf"\bmy (?:full |first |last |real |nick)?name(?:['’]s| is)\b|(?:^|: )name['’]s {NAME}|{I_AM} called\b",
        rf"{I_AM} {NO_WORD}{NAME}(?:[ -]{NAME})?(?:[.!]?$|,? and\b)|{PLEASE}(?:you can )?call me {NAME}"
        rf"|\buser(?:['’]s name)? is {NAME}",
        rf"\bich hei(?:ß|ss)e\b|\bmein \w*name ist\b|\bich bin (?:der|die) {NAME}[.!]?$|{PLEASE}nenne? mich {NAME}",
        rf"\bich bin (?!{GERMAN_NOUN}){NO_WORD}{NAME}(?:[ -]{NAME})?(?:[.!]?$|,? und\b)",
        rf"\b(?:soy|je suis) {NO_WORD}{NAME}(?:[ -]{NAME})?(?:[.!]?$|,? (?:y|et)\b)",
        r"\bme llamo\b|\bmi nombre es\b|\bll[aá]mame\b|\bje m['’]appelle\b|\bmon (?:pré)?nom est\b"
        r"|\bappelle[sz]?-moi\b",
        r"我(?:的名字)?(?:叫|姓)|我的名字是",
    ),
    "instruction": (
        rf"{PLEASE}(?:always|never|do(?: not|n['’]t) ever) {BIDS_EN}\b|{PLEASE}(?:call|address) me\b",
        rf"{PLEASE}(?:from now on|going forward)\b(?!.*\bi\b)"
        r"|\bi(?:['’]d)? (?:want|like) you to (?:always|never|\w+ me\b)",
        r"\bi (?:want|prefer|like) (?:short|brief|long|concise|detailed|simple|plain) (?:answers|replies)",
        rf"{PLEASE}(?:immer|nie|niemals)\b.{{1,40}}{BIDS_DE}|{PLEASE}(?:ab jetzt|von nun an)\b(?!.*\b(?:ich|wir)\b)",
        rf"{PLEASE}{BIDS_DE}\w*\b.{{0,20}}\b(?:immer|nie|niemals|stets)\b|{PLEASE}(?:duze?|sieze?|nenne?) mich\b",
        rf"{PLEASE}(?:siempre|nunca)\b.{{1,20}}{BIDS_ES}|{PLEASE}{BIDS_ES}\w*\b.{{0,20}}\b(?:siempre|nunca)\b",
        rf"{PLEASE}(?:toujours|ne)\b.{{1,20}}{BIDS_FR}|{PLEASE}{BIDS_FR}\w*\b.{{0,20}}\b(?:toujours|jamais)\b",
        rf"{PLEASE}(?:总是|永远|始终|以后|从现在起|千万别|不要再)[^我]{{0,12}}(?:回[答复]|推荐|提|说|写|叫)"
        rf"|{PLEASE}叫我",
    ),
    "identity": (
        r"\b(?:i|user) (?:lives? (?:in|at|near|on)|works? (?:in|at|as|for)|stud(?:y|ies) (?:in|at))\b",
        rf"\bi (?:was born|grew up|come from|moved to)\b|{I_AM} (?:originally )?from\b|{I_AM} an? {TRADE}\b",
        rf"{I_AM} \d{{1,3}}(?: years old|[.!]?$| and )"
        r"|\bmy (?:birthday|job|address|home ?town|pronouns|native language) (?:is|are)",
        r"\bich (?:wohne|lebe|arbeite|studiere) (?:in|im|als|bei|für|an)\b|\bich komme aus\b"
        r"|\bich bin .{0,30}geboren\b",
        rf"\bich bin (?:\d+(?: jahre)?\b|(?:von beruf )?(?!v[ei]g[ae]){NAME}(?:in|er|ist)\b)"
        r"|\bmein (?:geburtstag|beruf|wohnort) ist\b",
        r"\b(?:vivo|trabajo|estudio) (?:en|como|de|para)\b|\bsoy (?:de|\w+(?:er[oa]|or|ora|ista|dic[oa]|iante))\b"
        r"|\bnací\b",
        r"\btengo \d+ años\b|\bmi cumpleaños es\b|\bj['’]ai \d+ ans\b|\bmon anniversaire est\b|\bje viens d"
        r"|\bje suis née?\b",
        r"\bj['’]habite\b|\bje (?:vis|travaille|étudie) (?:à|en|au|chez|comme|dans|pour)\b",
        r"\bje suis \w+(?:eur|euse|ien|ienne|iste|ère|trice|iante?)\b",
        r"我(?:现在)?住在|我来自|我出生|我是[^，。]{0,8}(?:人|师|生|员|家)|我(?:今年)?\d+岁"
        r"|我在[^，。]{1,12}(?:工作|上学)|我的(?:生日|职业)",
    ),
    "health": (
        rf"(?:\b(?:i have|i['’]ve|i suffer|i was diagnosed|i take|user (?:is|has)|my)|{I_AM})\b.{{0,40}}\b{ILL}",
        rf"(?:\b(?:ich|mein\w*|mir|soy|tengo|estoy|tomo|sufro|je|mon|ma)\b|\bj['’]ai\b).{{0,40}}{ILL}"
        r"|(?:^|: )allergic to\b",
        r"\bi (?:can['’]t|cannot|must not|don['’]t|do not) (?:eat|drink|tolerate|digest)\b",
        r"我.{0,12}(?:过敏|糖尿病|哮喘|怀孕|素食|吃素|乳糖不耐|高血压|抑郁症|癌|偏头痛)",
    ),
    "family": (
        rf"\b(?:my|meine?|mis?|mon|ma|mes) (?:\w+ )?{KIN}(?:['’]s name)?(?: is| are| ist|['’]s)?(?: named)? {NAME}",
        rf"\b(?:my|meine?|mis?|mon|ma|mes) {KIN} (?:is called|are called|is named|hei(?:ß|ss)|se llama|s['’]appell)",
        rf"(?:\bi have|\bi['’]ve got|\bich habe?|\btengo|\bj['’]ai) {MANY} (?:\w+ )?{KIN}\b",
        rf"(?:{I_AM}|\bi got) (?:married|divorced|single|widowed|engaged)\b"
        r"|\bich bin (?:verheiratet|geschieden|ledig|verlobt)",
        r"\bestoy (?:casad|divorciad|solter)[oa]\b|\bje suis (?:mariée?|divorcée?|célibataire|fiancée?|veu(?:f|ve))\b",
        rf"我(?:的)?{KIN_ZH}[^，。]{{0,4}}(?:叫|名)|我有[一二两三四五\d]?[个只位条]?{KIN_ZH}"
        r"|我(?:已经?)?(?:结婚|离婚|单身)",
    ),
    "wish": (
        r"\bi(?:['’]d| would)? prefer\b|\bmy (?:\w+ )?(?:goal|dream|aim|wish) is\b|\bi want to (?:become|learn)\b",
        r"\bich bevorzuge\b|\bmeine? (?:\w+ )?(?:ziel|traum|wunsch) ist\b|\bprefiero\b"
        r"|\bmi (?:meta|sueño|objetivo) es\b",
        r"\bje préfère\b|\bmon (?:rêve|but|objectif) est\b|我的(?:梦想|目标|愿望)|我(?:更喜欢|宁愿|偏好)",
    ),
}
"""Patterns by kind, by priority: a sentence is of the first kind that matches."""


def standing_kind(sentence: str) -> str | None:
    """Return the kind of a standing statement, SECRET for a secret, or None."""
    if len(sentence) <= MAX_STANDING_CHARS:
        return _standing_kind(sentence)
    return SECRET if is_secret(_unsigned(sentence)) else None


@lru_cache(maxsize=MAX_CACHED_SENTENCES)  # cards ask about the same sentences again
def _standing_kind(sentence: str) -> str | None:
    if is_secret(_unsigned(sentence)):  # a name before it may be a number
        return SECRET
    return next((kind for kind in RULES if _is_of(kind, sentence)), None)


def _is_of(kind: str, sentence: str) -> bool:
    return any(_compiled(rule).search(sentence) for rule in RULES[kind])  # one by one is faster than one joined pattern


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when it is first needed, because compiling all takes noticeable time."""
    return re.compile(pattern, re.IGNORECASE)


def _unsigned(sentence: str) -> str:
    found = SIGNED.match(sentence)
    return sentence if found is None else sentence[found.end() :]
