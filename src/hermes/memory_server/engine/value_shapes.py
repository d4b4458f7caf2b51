"""Shapes of numbers and codes in a sentence: an amount, a date, a card, a key, a lock combination. Pure."""

from __future__ import annotations

import re

KEY = re.compile(r"(?=[\w.+/=-]{0,200}\d)(?=[\d.+/=_-]{0,200}[A-Za-z])[A-Za-z0-9][\w.+/=-]{15,200}")
SHAPES = re.compile(
    r"(?P<mail>[^\s@]{1,64}@[\w-]{1,64}\.\w)"
    r"|(?P<date>\b(?:\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d\d)?)(?!\d))"
    r"|(?P<hex>\b0x[0-9a-fA-F]+)"
    r"|(?P<iban>\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b)"
    r"|(?P<card>(?<![\w-])(?:\d[ .-]?){12,18}\d(?!\w))"
    r"|(?P<phone>(?<![\w-])(?:\+\d|\(?0\d|1[3-9]\d{2})[\d ()/-]{5,14}\d(?!\w))"
    rf"|(?P<key>{KEY.pattern})"
    r"|(?P<turns>(?<![\w-])\d{1,2}(?:-\d{1,2}){2,4}(?!\w))"
    r"|(?P<groups>(?<![\w-])\d{2,4}(?:[ -]\d{2,4}){1,5}(?![\w]))"
    r"|(?P<amount>\d{1,3}(?:[.,]\d{3}){1,4}|\d[\d.,:]{0,9}(?= ?(?:€|£|\$|%|euros?|eur|dollars?|pounds?|francs?|franken"
    r"|pesos|k?m\b|k?g\b|kilos?|mg|ml|pages?|people|words|degrees|块|元|年|公斤|岁|米|人|公里)))"
    r"|(?P<year>\b(?:19|20)\d\d\b)"
    r"|(?P<sized>\b\d{1,4}-?[a-z]{1,6}\b)"
    r"|(?P<code>[A-Za-z0-9!#$%&*_+=/.@-]+)"
)
"""The patterns of values, the most specific first."""
NAMES_IN_CODE = re.compile(r"[A-Za-z]{2,40}\d{0,2}(?:[./][A-Za-z]{1,40}\d{0,2}){1,20}[./]?")
"""Words between dots or slashes, such as a path or a class in a module; not a key."""
STANDARD = re.compile(
    r"(?:html|css|es|utf-?|sha-?|md|mp|ipv|oauth|http|argon|sql\w{0,10}|win|covid-?|gpt-?|python|sdk|rfc-?|iso-?|ps)\d{1,5}"
    r"|[2-6]g|\w{1,20}=(?:true|false|none|null)",
    re.IGNORECASE,
)
"""Names of formats, networks and the like."""
IDENTIFIER = re.compile(r"[A-Za-z]{1,40}(?:[_=+.]{1,2}[A-Za-z]{1,40}){1,9}|[A-Za-z]{1,2}_\d")
VERSION = re.compile(
    r"v?\d{1,4}(?:\.\d{1,4})+|\d{1,5}[x/]\d{1,5}[a-z]{0,2}|v\d{1,4}|\$\d[\d.,]{0,15}(?:/[a-z]{1,15})?|\d[\d.]{0,9}(?:[KMGT]i?B|ms|px|fps)"
)
CODE_CHARS = 6
CODE_SHAPES = (
    "digits as words",
    "iban",
    "card",
    "key",
    "turns",
    "groups",
    "number and sign",
    "mixed with sign",
    "capitals and digits",
)
SIZED_SHAPES = (*(f"number {size}" for size in range(3, 10)), *(f"letters and {size} digits" for size in range(1, 5)))
VALUES = frozenset((*CODE_SHAPES, *SIZED_SHAPES))
"""The shapes that a code may have."""


def holds_value(sentence: str) -> bool:
    """Return True if a sentence holds something like a code: many digits, or letters mixed with digits or signs."""
    return not VALUES.isdisjoint(find_shapes(sentence))


def find_shapes(sentence: str) -> set[str]:
    """Return the shapes of the numbers and codes in a sentence."""
    found = {
        _shape_of_code(part[0].strip(".!?/-*_")) if (name := part.lastgroup) in ("code", "key") else name or ""
        for part in SHAPES.finditer(sentence)
    }
    return found - {""}


def _shape_of_code(part: str) -> str:
    if NAMES_IN_CODE.fullmatch(part) or STANDARD.fullmatch(part):
        return "identifier"
    if KEY.fullmatch(part) is not None:
        return "key"
    digits = sum(map(str.isdigit, part))
    if digits == len(part):
        return f"number {min(digits, 9)}" if digits else ""
    has_sign = any(sign in "!#$%&*_=+@" for sign in part[1:-1]) or part[-1:] in ("!", "#", "$")
    if VERSION.fullmatch(part) is not None:
        return "amount"
    if not any(map(str.isalpha, part)):
        return "number and sign" if digits > 2 else ""
    if IDENTIFIER.fullmatch(part) is not None:
        return "identifier"
    if digits == 0 and not has_sign:
        return "camel" if any(map(str.isupper, part[1:])) and any(map(str.islower, part)) else ""
    if has_sign and (digits or len(part) >= CODE_CHARS):
        return "mixed with sign"
    if part.isupper() or digits >= len(part) // 2:
        return "capitals and digits" if digits else ""
    return f"letters and {min(digits, 4)} digits" if digits else ""
