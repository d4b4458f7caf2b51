"""How much a word tells: the more, the fewer messages hold it."""

from __future__ import annotations

import numpy as np

from hermes.ranking.scoring import Floats

FEW = 5
"""A number that at most so many messages hold is taken to be meant exactly."""


def rarity(holders: Floats, size: int) -> Floats:
    """The weight of each word, given how many of `size` messages hold it."""
    weights: Floats = np.log1p(np.maximum(size - holders + 0.5, 0.5) / (holders + 0.5))
    return weights


def is_exact(word: str, holders: int) -> bool:
    """Is it a number, other than a year, that is meant exactly?"""
    is_year = len(word) == 4 and word[:2] in ("19", "20")
    return holders <= FEW and len(word) > 2 and any(letter.isdigit() for letter in word) and not is_year
