"""Sentences of plain text, and which of them say something about who speaks. No model is needed."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from hermes.memory_server.engine.standing_kinds import is_instruction

END = re.compile(r"(?<=[.!?])\s+|(?<!\s)\s*\n\s*|(?<=[。！？])\s*")
TITLE = re.compile(
    r"(?:^|[\s(])(?:dr|mr|mrs|ms|mx|prof|rev|hon|gen|col|capt|sgt|lt|st|ste|sta|sto|sr|sra|srta|jr|fr|hr|mme|mlle|mt|ft"
    r"|ca|approx|vs|cf|e\.g|i\.e|z\. ?b|d\. ?h|u\. ?a|p\. ?ej)\.$",
    re.IGNORECASE,
)
"""Ends with a word after which a sentence goes on."""
SHORTENED = re.compile(
    r"(?:^|[\s(])(?:etc|usw|bzw|inc|ltd|co|corp|str|ave|rd|blvd|nr|no|jan|feb|apr|aug|sept?|oct|okt|nov|dec|dez)\.$",
    re.IGNORECASE,
)
"""Ends with a word after which it goes on, if what follows does not begin like a sentence."""
INITIAL = re.compile(r"(?:^|[\s.(])[A-HJ-Z]\.$")
ORDINAL = re.compile(r"(?:^|\s)\d{1,2}\.$")
NUMBERED = re.compile(r"\s{0,20}\d{1,3}\.$")
MONTH = re.compile(
    r"jan|feb|fév|m[aä]r|apr|avr|abr|ma[ijy]|jun|jui|jul|aug|aoû|ago|se[pt]|o[ck]t|out|nov|d[eé][cz]|des|gen|giu|lug|dic",
    re.IGNORECASE,
)
LONGEST_WORD = 12
"""Characters before the end of a sentence that tell whether it is one."""
QUOTED = re.compile(
    r"\"[^\"\n]*\"|“[^“”\n]*”|„[^„“”\n]*[“”]|«[^«»\n]*»|「[^「」\n]*」|‘[^‘’\n]{2,200}’(?!\w)"
    r"|(?<!\w)'(?:[^'\n]|'(?=\w)){2,200}'(?!\w)"
    r"|^[ \t]*>[^\n]*",  # a line that was said before, to the end of its last sentence
    re.MULTILINE,
)
HIDDEN = "\x00"
TAG = re.compile(r"<(?P<end>/?)(?P<name>\w{1,40})>")
PIPED = re.compile(r"stdin_*")
"""The name of the block in which a host puts what was piped in."""
FIRST_PERSON = re.compile(
    r"\b(?:i|i'm|i’m|i've|i’ve|i'd|i'll|my|mine|me|we|we're|our|ours|us"  # English
    r"|ich|mein(?:e[mnrs]?)?|mich|mir|wir|unser(?:e[mnrs]?)?|uns"  # German
    r"|je|mon|ma|mes|moi|nous|notre|nos"  # French
    r"|yo|mi|mis|soy|tengo|vivo|nosotr[oa]s|nuestr[oa]s?"  # Spanish
    r"|mio|mia|miei|mie|sono|noi|nostr[aeio]"  # Italian
    r"|meus?|minhas?|sou|tenho|moro|nossos?|nossas?"  # Portuguese
    r"|ik|mijn|mij|wij|ons|onze"  # Dutch
    r"|jag|jeg|mitt|mina|mine|vår|vårt|våra|oss"  # Scandinavian
    r"|mój|moja|moje|moim|jestem|mam|mieszkam|nasz[ae]?"  # Polish
    r"|ben|benim|bizim"  # Turkish
    r"|я|мой|моя|моё|мое|мои|моего|моей|моих|меня|мне|мной|мы|наш|наша|наше|наши|нас|нам"  # Russian
    r"|أنا|انا|نحن|عندي|لدي|اسمي)\b"  # Arabic
    r"|\b[jJ]['’]|\bm['’](?=app)"
    r"|[我咱俺]|私|僕|わたし|ぼく|うちの"  # Chinese and Japanese
    r"|(?:^|\s)(?:나는|나의|내|내가|저는|저의|제|제가|우리)(?=\s|$)",  # Korean
    re.IGNORECASE,
)
NAMES = frozenset(("us", "ben", "mina", "mia", "mie", "ma", "mi", "mis", "mon", "moro", "vivo", "mir", "noi", "sono"))
"""Words of the speaker in one language that are names or abbreviations in another."""
OF_OTHERS = re.compile(r"['’]s\b| (?:is|was|has|had|does|did|will|would|can|and|likes|lives|works|wants|says|said)\b")
"""How English goes on after a name."""
ASKED = re.compile(
    r"(?:(?:and|but|so|ok|okay|hey|hi|please)[\s,]+)*"
    r"(?:(?:who|what|when|where|why|how|which|whose)(?:'s\b|\s+(?:do|does|did|is|are|am|was|were|can|could|should|would"
    r"|will|shall|have|has|had|to|many|much|long|often|old|far|come)\b)"
    r"|(?:can|could|would|will|should|shall|may|might|do|does|did|is|are|am|was|were|have|has|had)\s+"
    r"(?:i|you|we|they|he|she|it|there|this|that|my|our|someone|anyone|anybody)\b)",
    re.IGNORECASE,
)
"""Begins as questions do, though there may be no question mark."""
ASKED_UNMARKED = re.compile(
    r"(?:(?:(?:und|aber|et|mais|y|pero)[\s,]+)?"
    r"(?:(?:wer|wem|wen|was|wann|wie|wo|woher|wohin|warum|wieso|weshalb|wessen|welche[mnrs]?"
    r"|wo(?:gegen|mit|für|von|r?an|rin))\s+"
    r"(?!(?:ich|mich|mir|wir|uns|du|man|der|die|das|gesagt|schon|immer)\b|mein|unser)"
    r"|(?:bin|ist|sind|war|hab|habe|hatte|hat|kann|soll|muss|darf|mag|weißt|weisst|kennst)\s+"
    r"(?:ich|du|wir|mein\w*|unser\w*)\b"
    r"|(?:qui|quoi|où|comment|pourquoi|combien|quels?|quelles?|quand(?!\s+(?:je|nous|mon|ma|mes)\b|\s+j['’])|est-ce)\b"
    r"|(?:qué|quién(?:es)?|cuándo|dónde|adónde|cómo|cuál(?:es)?|cuánt[oa]s?|por qué)\b"
    r"|(?:que|quien|donde|como|cual)\s+(?:se|es|está|esta|son|vive|hace)\b))"
    r"(?!.*[.!…]$)",
    re.IGNORECASE | re.DOTALL,
)
"""The same in German, French and Spanish, where the order of words alone does not tell: nothing marks its end."""
WANTED = re.compile(
    r"(?:(?:and|but|so|ok|okay|hey|hi|now|then|please|just)[\s,]+)*"
    r"(?:tell|give|show|help|let|let's|let’s|write|rewrite|explain|fix|translate|summari[sz]e|list|find|make|send|describe"
    r"|correct|draft|suggest|recommend|repeat|search|create|generate|compare|convert|improve|thanks|thank|wish"
    r"|remind me (?:what|who|whose|when|where|which|why|how))\b(?!:\s)",
    re.IGNORECASE,
)
"""Begins as requests do that want something done now. What is to be kept in mind is none: `remember that …`."""
SUPPOSED = re.compile(
    r"(?:(?:and|but|so|ok|okay|hey|hi|now|then|please|just|und|aber|et|mais|y|pero)[\s,]+)*"
    r"(?:(?:imagin(?:e|ez|a|emos)|pretend|suppos(?:e|ing|ons|ez)|sup[oó]n|supongamos)\b(?![,:]\s)"  # else it is news
    r"|(?:hypothetically|what if|angenommen)\b"
    r"|if (?:i|we) (?:had|were|was|could|ever)\b(?=.*(?:\b(?:would|could|might)|['’]d)\b)"
    r"|(?:stellt? (?:dir|euch) vor\b.*|(?:wenn|falls) )(?:ich|wir)\b.*\b(?:wäre|hätte|könnte|würde)"
    r"|si (?:j['’]|je |nous )(?:étai|avai|pouvai|étion|avion|pouvion)(?=.*(?:r[ao]is|rions)\b)"
    r"|si (?:yo )?(?:fuera|tuviera|pudiera|fuese|tuviese|pudiese)\b)",
    re.IGNORECASE | re.DOTALL,
)
"""Begins as what is made up does: it is not so."""
EAST_ASIAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
MAX_CHARS = 400
MIN_CHARS = 8
MIN_EAST_ASIAN = 4


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without empty ones."""
    return [text[start:end] for start, end in _spans(text)]


def find_statements(text: str) -> list[str]:
    """The sentences in which whoever speaks states something about themselves. What is quoted, piped in, or stands in a
    block of code, is nobody's statement."""
    hidden = _hide_quotes(_hide_blocks(text))
    return [text[start:end] for start, end in _spans(hidden) if _states(hidden[start:end])]


def is_statement(sentence: str) -> bool:
    """Does it state something about the speaker, rather than ask, want something, make it up or quote?"""
    return _states(_hide_quotes(sentence))


def telling(sentence: str) -> int:
    """How much a sentence says, roughly: names, numbers and words, questions less."""
    words = re.findall(r"\w+", sentence)
    weight = sum(2 if word[:1].isupper() or word.isdigit() else 1 for word in words[:40])
    return weight - (8 if sentence.endswith("?") else 0)


def _states(sentence: str) -> bool:
    least = MIN_EAST_ASIAN if EAST_ASIAN.search(sentence) else MIN_CHARS
    if not least <= len(sentence) <= MAX_CHARS or sentence.rstrip("\"'”’) ").endswith(("?", "？")):
        return False
    if any(begins.match(sentence) for begins in (ASKED, ASKED_UNMARKED, WANTED, SUPPOSED)):
        return False
    if any(not _is_name(sentence, found) for found in FIRST_PERSON.finditer(sentence)):
        return True
    return is_instruction(sentence)


def _is_name(sentence: str, found: re.Match[str]) -> bool:
    """Whether a word that could mean the speaker is a name, or a country: Ben, Mia, the US. It has a capital where no
    sentence begins, or English goes on with it as with somebody else."""
    word = found[0].strip()
    if word.lower() not in NAMES or not word[0].isupper() or sentence.isupper():
        return False
    return any(map(str.isalpha, sentence[: found.start()])) or OF_OTHERS.match(sentence, found.end()) is not None


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where sentences begin and end."""
    start = 0
    for end in END.finditer(text):
        if "\n" in end[0] or not _goes_on(text, start, end):
            yield from _trimmed(text, start, end.start())
            start = end.end()
    yield from _trimmed(text, start, len(text))


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    part = text[start:end]
    if kept := part.strip():
        begin = start + part.index(kept[0])
        yield begin, begin + len(kept)


def _goes_on(text: str, start: int, end: re.Match[str]) -> bool:
    """Whether the full stop before a gap belongs to a shortened word or a number."""
    before, after = text[max(start, end.start() - LONGEST_WORD) : end.start()], text[end.end() : end.end() + 3]
    if not before.endswith("."):
        return False
    if TITLE.search(before) or INITIAL.search(before) or NUMBERED.fullmatch(text, start, end.start()):
        return True
    if ORDINAL.search(before):
        return after[:1].islower() or MONTH.match(after) is not None
    return SHORTENED.search(before) is not None and not after[:1].isupper()


def _hide_quotes(text: str) -> str:
    return QUOTED.sub(lambda quoted: HIDDEN * len(quoted[0]), text)


def _hide_blocks(text: str) -> str:
    """The text with blocks of code, and those between a line `<name>` and a line `</name>`, hidden but for the end of
    their last line: what follows is another sentence."""
    if "```" not in text and "<" not in text:
        return text
    lines = text.splitlines(keepends=True)
    for find_blocks in (_code_blocks, _tagged_blocks):
        for block in find_blocks(lines):
            for place in block:
                lines[place] = HIDDEN * len(lines[place])
            lines[block[-1]] = lines[block[-1]][:-1] + "\n"
    return "".join(lines)


def _code_blocks(lines: Sequence[str]) -> list[range]:
    """Between lines of three backticks; one that is not closed goes on to the end."""
    fences = [place for place, line in enumerate(lines) if line.lstrip().startswith("```")]
    ends = [*fences[1::2], len(lines) - 1]
    return [range(start, end + 1) for start, end in zip(fences[::2], ends, strict=False)]


def _tagged_blocks(lines: Sequence[str]) -> list[range]:
    """Of what was piped in, which may come in several messages, the first or the last line may be missing."""
    tags = {place: tag for place, line in enumerate(lines) if (tag := TAG.fullmatch(line.strip())) is not None}
    closings: dict[str, list[int]] = {}
    for place, tag in tags.items():
        if tag["end"]:
            closings.setdefault(tag["name"], []).append(place)
    blocks: list[range] = []
    for place, tag in tags.items():
        if blocks and place in blocks[-1]:
            continue
        known = closings.get(tag["name"], [])
        next_one = bisect_right(known, place)
        if not tag["end"] and next_one < len(known):
            blocks.append(range(place, known[next_one] + 1))
        elif PIPED.fullmatch(tag["name"]):
            blocks = [range(place + 1)] if tag["end"] else [*blocks, range(place, len(lines))]
    return blocks
