"""Traits: what a search must know about a message without its text, packed into one number beside its vector.

Classification of utterances by rules: questions, requests, small talk, and other text, which can be remembered.

In English, German, Spanish, French and Chinese. These are the only word lists for this. They are for the agent host,
which loads no word vectors, and for searches, which classify whole messages by the hundred. Everything else is
classified by the memory server's reader (`memory_server.engine.sentences`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from typing import Any, Literal

from hermes.ranking.relative_times import resolve
from hermes.ranking.words import split_words

ASKS = 1 << 0
"""Bit: the message holds a question."""
IS_QUESTION = 1 << 1
"""Bit: the message ends with a question mark."""
NAMES_TIME = 1 << 2
"""Bit: the message names a time, such as a day, a month or "yesterday"."""
OF_ONESELF = 1 << 3
"""Bit: the author speaks of themselves."""
LOW_FLAG_COUNT = 4
"""The number of flags below the message's number of words, which takes 16 bits."""
MAX_LENGTH_WORDS = 0xFFFF
UNWANTED = 1 << 20
"""Bit: the author asked that the message is not remembered; no search returns it."""
CONFIDENTIAL = 1 << 21
"""Bit: the message holds a password, a PIN or the like; a search returns it only if the question asks for one."""
MAX_READ_CHARS = 4000
"""The number of characters that are read; the word count of a longer text is extrapolated."""
QUESTION_MARKS = "?？؟"
TIME = frozenset(
    """
    yesterday today tomorrow tonight ago last next week weeks weekend month months year years day days recently since
    monday tuesday wednesday thursday friday saturday sunday january february march april june july august september
    october november december summer winter spring
    gestern heute morgen vorgestern letzte letzten letzter letztes nächste nächsten seit woche wochen monat jahr jahre
    ayer hoy mañana pasado pasada próximo próxima desde hace semana mes año años
    昨天 今天 明天 去年 今年 明年 上个 下个 昨日 今日 来週 先週 أمس اليوم غدا
    """.split()  # noqa: SIM905 - one word a line would be a page
)
ONESELF = frozenset(
    """
    i me my mine myself we our us ich mich mir mein meine meinem meinen meiner wir uns unser unsere
    yo me mi mis nosotros nosotras nuestro nuestra أنا
    """.split()  # noqa: SIM905
)
ANY_DAY = date(2000, 1, 1)
"""An arbitrary day: whether a text holds a relative time does not depend on it."""
ONESELF_LETTERS = "我私僕俺"


def count_words(traits: Any) -> Any:
    """Return the number of words of messages with these traits (a number or an array of them)."""
    return traits >> LOW_FLAG_COUNT & MAX_LENGTH_WORDS


def traits_of(text: str) -> int:
    part = text[:MAX_READ_CHARS]
    words = split_words(part)
    found = min(len(words) * len(text) // max(len(part), 1), MAX_LENGTH_WORDS) << LOW_FLAG_COUNT
    if any(mark in text for mark in QUESTION_MARKS):
        found |= ASKS | (IS_QUESTION if text.rstrip()[-1] in QUESTION_MARKS else 0)
    if not TIME.isdisjoint(words) or " May" in part or _names_other_time(part):  # lower-case "may" is a verb
        found |= NAMES_TIME
    return found | OF_ONESELF if speaks_of_oneself(part, words) else found


def _names_other_time(text: str) -> bool:
    """Return True if a text names a time in words that TIME lacks, as in French and Chinese."""
    return not text.isascii() and bool(resolve(text, ANY_DAY))


def speaks_of_oneself(text: str, words: Sequence[str]) -> bool:
    """Return True if the author of a text with these words speaks of themselves."""
    return not ONESELF.isdisjoint(words) or (not text.isascii() and any(letter in text for letter in ONESELF_LETTERS))


SmallTalk = Literal["greeting", "farewell", "thanks", "nod"]
MAX_SMALL_TALK_CHARS = 100
MAX_CACHED_CHARS, MAX_CACHED_SENTENCES = 500, 4096
"""The length up to which it is cached whether a sentence asks, and the number of cached sentences."""
MAX_UNMARKED_CHARS = 80
"""A longer question without a question mark also states something."""
MIN_TELLING_WORDS = 4
"""Fewer words before a question ("I wonder, …") state nothing."""
SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+")
CLAUSE_END = re.compile(r"[,;:，、；：–—]|\s-\s")
CLOSING = "\"'”’»)] "
"""Characters that may follow the mark that ends a sentence."""
NOT_WORDS = re.compile(r"[\W_]+")
ASKING = re.compile(
    r"(?:(?:what|what['’]?s|who|who['’]?s|whose|when|where|where['’]?s|which|why|how|do|does|did|is|are|was|were|can"
    r"|could|wer|wem|wen|wann|wie|wo|woher|wohin|warum|wieso|weshalb|wessen|welche[mnrs]?|wo(?:gegen|mit|für|von|r?an"
    r"|rin)|qui|quoi|quand|où|comment|pourquoi|combien|quels?|quelles?|est-ce|qu['’]est-ce|que sais|qué|quién(?:es)?"
    r"|cuándo|d[oó]nde|cómo|como (?:se|me)|cuál(?:es)?|cuánt[oa]s?|por qué|que sabes|quien soy)\b(?!\s+(?:ich|je)\b"
    r"|\s+j['’])|remind me (?:what|who|whose|when|where|which|why|how)\b)(?!.*[.!…]$)|¿|tell me\b"
    r"|[^。！]{0,30}(?:(?<!没)什么|谁|哪|怎么|多少|吗$)(?!都)[^。！]{0,20}$",
    re.IGNORECASE | re.DOTALL,
)
NOTED = re.compile(
    r"(?:do|does|did|is|are|was|were|can|could)\s+(?!(?:i|you|we|my|your|our|there|ist|habe?)\b)", re.IGNORECASE
)
"""Matches the beginning of a note that leaves out its subject ("is called Ada")."""
REQUEST = re.compile(
    r"(?:please |bitte |por favor |s['’]il te plaît,? )?(?:(?:write|translate|summari[sz]e|explain|fix|draft"
    r"|calculate|generate|help me|give me|make me|tell me (?:a|an) |schreibe?|übersetze?|erkläre?|hilf mir|escribe"
    r"|traduce|explica|ayúdame|écris|traduis|explique|aide-moi)\b(?!:)|帮我|请?(?:写|翻译|解释)|help[.!?]?$"
    r"|who are you\b|what (?:can|are) you\b(?! (?:tell|remember|know))|wer bist du\b|was kannst du\b|quién eres\b"
    r"|qui es-tu\b|你是谁)",
    re.IGNORECASE,
)
FORGET = re.compile(
    r"(?:please |bitte |por favor )?(?:(?:forget|delete) (?:that|this|it|what|everything|about|all|my|me)\b|vergiss\b"
    r"|lösche?\b|olvida\b|borra\b|oublie\b|efface\b|忘[记了掉]|删除)",
    re.IGNORECASE,
)
SECRET = re.compile(
    r"(?i)\bpass(?:word|code|phrase)s?\b|\bpasswd\b|\b(?:my|the|a|card|sim|bank|phone) pin\b|\bpin(?: code| is|:)"
    r"|\b(?:api|secret|access|private)[ _-]?(?:key|token)s?\b|\btokens? (?:is|:)|\bsk-[\w-]{8,}|\b(?:account|iban"
    r"|card|routing|social security|passport) (?:number|no\b)|\biban\b|\bcvv\b|\bssn\b|\b(?:safe|lock|locker|alarm"
    r"|door|gate|garage|entry) (?:code|combination)\b|\bpassw(?:ort|örter)\b|\bkennw[oö]rt|\bgeheimzahl\b|\b(?:konto"
    r"|karten)nummer\b|\bcontraseñas?\b|\bclave\b|\bnúmero de cuenta\b|\bmots? de passe\b|\bcode (?:secret|pin)\b"
    r"|\bnuméro de (?:compte|carte)\b|密码|口令|账号|卡号"
)
"""Words for secrets. The memory server reads sentences instead; the host must not load what that takes."""
GREETINGS = frozenset(
    """
    hi hello hey hiya howdy hallo hoi servus moin hola salut bonjour bonsoir coucou morning afternoon evening day good
    guten gute morgen tag abend grüß grüezi gott dich buenos buenas días dias tardes noches there again hermes all
    """.split()  # noqa: SIM905 - one word a line would be a page
)
FAREWELLS = frozenset(
    """
    bye goodbye cya see you later soon tomorrow good night gute nacht tschüss tschüs ciao bis bald morgen später auf
    wiedersehen adiós adios hasta luego mañana pronto buenas noches au revoir à demain bientôt bonne nuit
    """.split()  # noqa: SIM905
)
THANKS = frozenset(
    """
    thanks thx ty thank you so very much many a lot danke schön vielen dank sehr gracias muchas mil merci beaucoup
    bien please bitte
    """.split()  # noqa: SIM905
)
NODS = frozenset(
    """
    yes yeah yep yup y no nope nah n ok okay k sure fine good great nice cool perfect right exactly done next stop
    continue thanks thx ty please hm hmm ah oh lol lgtm ja nein danke bitte oui non merci si sí gracias
    好 好的 嗯 是 不是 对
    """.split()  # noqa: SIM905
)
NOD_PHRASES = frozenset({"thank you", "got it", "go on", "go ahead", "do it", "all right", "sounds good", "i see"})
WHOLE = re.compile(
    r"(?P<greeting>how are you(?: doing)?(?: today)?|how['’]s it going|how do you do|what['’]?s up"
    r"|wie geht['’]?s(?: dir)?|wie geht es (?:dir|ihnen)|(?:¿ ?)?qué tal(?: estás)?|(?:¿ ?)?cómo estás"
    r"|(?:comment )?ça va|你好[吗啊呀]?|您好|早上好|下午好|晚上好|早安|嗨|哈喽)|(?P<farewell>再见|拜拜|晚安|明天见)"
    r"|(?P<thanks>(?:谢谢|多谢)你?)",
    re.IGNORECASE,
)
"""Small talk that is recognised only as a whole."""
FIRST = {
    "greeting": re.compile(
        r"hi|hello|hey|hiya|howdy|hallo|hoi|servus|moin|hola|salut|bonjour|bonsoir|coucou|grü(?:ß|ezi)|buen[oa]s"
        r"|guten? (?:morgen|tag|abend)|good (?:morning|afternoon|evening|day)|morning|morgen$"
    ),
    "farewell": re.compile(
        r"bye|goodbye|cya|see you|good night|gute nacht|tschüss?|ciao|bis (?:bald|morgen|später)|auf wieder|adi[oó]s"
        r"|hasta|buenas noches|au revoir|à (?:demain|bientôt)|bonne nuit"
    ),
    "thanks": re.compile(r"thanks|thank you|thx|ty$|many thanks|danke|vielen dank|(?:muchas |mil )?gracias|merci"),
}
"""How small talk of each kind begins, lower-cased and without punctuation."""
VOCABULARIES: dict[SmallTalk, frozenset[str]] = {"farewell": FAREWELLS, "greeting": GREETINGS, "thanks": THANKS}


def is_question(text: str) -> bool:
    """Return True if a text asks for an answer: it ends with a question mark, or begins with a question word and has
    no full stop at the end.
    """
    flat = text.strip()
    return flat.rstrip(CLOSING + "!").endswith(tuple(QUESTION_MARKS)) or ASKING.match(flat) is not None


def is_request(text: str) -> bool:
    """Return True if a text asks for something that memory alone cannot do, or asks what the agent can do."""
    return REQUEST.match(text.strip()) is not None


def wants_forgetting(text: str) -> bool:
    """Return True if a text asks to forget something."""
    return FORGET.match(text.strip()) is not None


def holds_secret(text: str) -> bool:
    """Return True if a text mentions a password, a PIN, a token or an account number."""
    return SECRET.search(text) is not None


def find_small_talk(text: str) -> SmallTalk | None:
    """Return the kind of small talk that a whole text is, or None."""
    if len(text) > MAX_SMALL_TALK_CHARS:
        return None
    plain = text.strip().lower()
    whole = WHOLE.fullmatch(plain.strip(" .!?！？。¡"))
    if whole is not None:
        return next(kind for kind in ("greeting", "farewell", "thanks") if whole[kind])
    words = NOT_WORDS.sub(" ", plain).strip()
    for kind, vocabulary in VOCABULARIES.items():
        if FIRST[kind].match(words) and vocabulary.issuperset(words.split()):
            return kind
    return "nod" if is_nod(plain) else None


def is_nod(text: str) -> bool:
    """Return True for assent, thanks and the like ("ok", "go on"), to which memory can add nothing."""
    words = NOT_WORDS.sub(" ", text[:MAX_SMALL_TALK_CHARS].lower()).strip()
    is_short = len(text.strip()) <= MAX_SMALL_TALK_CHARS
    return is_short and bool(words) and (words in NOD_PHRASES or NODS.issuperset(words.split()))


def only_asks(text: str) -> bool:
    """Return True if a text consists of questions and states nothing about its author ("I moved to Ghent, …?" does)."""
    sentences = [sentence.strip() for sentence in SENTENCE_END.split(text) if sentence.strip()]
    return bool(sentences) and all(map(_only_asks, sentences))


def _only_asks(sentence: str) -> bool:
    return (_asks if len(sentence) <= MAX_CACHED_CHARS else _asks.__wrapped__)(sentence)


@lru_cache(MAX_CACHED_SENTENCES)  # the next turn finds the same sentences again
def _asks(sentence: str) -> bool:
    if not sentence.rstrip(CLOSING).endswith(tuple(QUESTION_MARKS)):
        is_short = len(sentence) <= MAX_UNMARKED_CHARS
        return is_short and ASKING.match(sentence) is not None and NOTED.match(sentence) is None
    before = sentence[: max((found.start() for found in CLAUSE_END.finditer(sentence)), default=0)]
    words = split_words(before)
    return len(words) < MIN_TELLING_WORDS or not speaks_of_oneself(before, words)
