"""Two values that every key may have, and one that it may not."""

from __future__ import annotations

from typing import Any

VALUES: dict[str, tuple[Any, Any, Any]] = {
    "apiKey": ("k1", "k2", ["k"]),
    "oauth": ({"refreshToken": "r1"}, {"refreshToken": "r2"}, {"clientId": "x"}),
    "baseUrl": ("http://one:8000", "http://two:8000", "one:8000"),
    "environment": ("local", "production", "staging"),
    "server": ("embedded", "auto", "cloud"),
    "enabled": (False, True, "perhaps"),
    "workspace": ("one", "two", "会话"),
    "peerName": ("one", "two", "x" * 101),
    "aiPeer": ("one", "two", {"name": "x"}),
    "pinUserPeer": (True, False, "sure"),
    "pinGuests": (True, False, 2),
    "userPeerAliases": ({"1": "ann"}, {"2": "bob"}, {"1": ""}),
    "runtimePeerPrefix": ("a_", "b_", "x" * 51),
    "recallMode": ("tools", "context", "both"),
    "observationMode": ("unified", "directional", "all"),
    "observation": ({"user": {"observeMe": False}}, {"ai": {"observeMe": False}}, {"me": {}}),
    "writeFrequency": ("turn", 5, 0),
    "saveMessages": (False, True, "x"),
    "sessionStrategy": ("global", "per-repo", "per-user"),
    "sessionPeerPrefix": (True, False, "x"),
    "sessions": ({"/a": "one"}, {"/a": "two"}, ["/a"]),
    "newSessionPolicy": ("rotate", "keep", "drop"),
    "dialecticDepth": (2, 3, "deep"),
    "dialecticDepthLevels": (["low"], ["high", "max"], ["highest"]),
    "dialecticReasoningLevel": ("max", "high", 3),
    "dialecticDynamic": (False, True, "x"),
    "dialecticMaxChars": (10, 20, -1),
    "dialecticMaxInputChars": (10, 20, 0),
    "reasoningHeuristic": (False, True, "x"),
    "reasoningLevelCap": ("low", "max", "none"),
    "contextTokens": (800, 900, 0),
    "messageMaxChars": (10, 20, 0),
    "contextCadence": (2, 3, 0),
    "dialecticCadence": (2, 3, 1.5),
    "injectionFrequency": ("first-turn", "every-turn", "never"),
}
