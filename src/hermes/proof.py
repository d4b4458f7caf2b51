"""How a server shows that it is the one that wrote a file: it knows a text in it, which is never sent."""

from __future__ import annotations

import hmac

CHALLENGE, PROOF = "Hermes-Challenge", "Hermes-Proof"
"""The headers that ask and answer."""
CHALLENGE_CHARS = 128


def prove(known: str, challenge: str) -> str:
    """What only those who know the text can answer to a challenge."""
    return hmac.new(known.encode(), challenge.encode(), "sha256").hexdigest()


def is_proof(given: str, known: str, challenge: str) -> bool:
    """Whether it is the right answer; takes as long for a wrong one."""
    return hmac.compare_digest(given.encode(), prove(known, challenge).encode())
