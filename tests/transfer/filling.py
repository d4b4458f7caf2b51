"""A workspace with every kind of item, and what a server shows of it."""

from __future__ import annotations

from typing import Any

import httpx

from tests.memory_server.talking import say, settle

MESSAGES = 260


def fill(http: httpx.Client) -> None:
    """Store peers, scopes, sessions, past and present members, messages, conclusions of all kinds, cards, summaries."""
    http.put(
        str(http.base_url).rstrip("/"),
        json={"metadata": {"über": ["ß", 1]}, "configuration": {"dream": {"enabled": True}}},
    )
    http.post("/peers", json={"id": "ann", "metadata": {"a": {"b": [1, None]}}, "configuration": {"observe_me": True}})
    people = {"ann": {"observe_others": True}, "ben": {"observe_me": False}}
    http.post(
        "/sessions", json={"id": "talk", "peers": people, "scopes": ["x"], "metadata": {"m": 1}}
    ).raise_for_status()
    for start in range(0, MESSAGES, 50):
        numbers = range(start, min(start + 50, MESSAGES))
        messages = [
            {
                "content": f"I own house {n}, 家 \u2028 {'long ' * (n % 7)}",
                "peer_id": ("ann", "ben", "carl")[n % 3],
                "metadata": {"n": n} if n % 2 else {},
                "created_at": f"2026-01-{1 + n % 28:02d}T10:00:00.{n:06d}Z",
            }
            for n in numbers
        ]
        http.post("/sessions/talk/messages", json={"messages": messages}).raise_for_status()
        say(http, f"side{start}", "I like tea.", "I like tea.", "Really?", peer="carl")
    http.request("DELETE", "/sessions/talk/peers", json=["carl"]).raise_for_status()
    http.put("/sessions/talk/peers/ann/config", json={"observe_me": False}).raise_for_status()
    conclude = {"content": "ben knows ann", "observer_id": "ben", "observed_id": "ann", "session_id": "talk"}
    http.post("/conclusions", json={"conclusions": [conclude, {**conclude, "session_id": None}]}).raise_for_status()
    http.put("/peers/ann/card", json={"peer_card": ["Owns houses", "Ærø"]}).raise_for_status()
    http.put("/peers/ann/card?target=ben", json={"peer_card": ["Owns some too"]}).raise_for_status()
    http.post("/sessions", json={"id": "empty"}).raise_for_status()
    settle(http)


def change(http: httpx.Client) -> None:
    """Do what only our own server can: delete a message from the middle, and correct a conclusion."""
    gone = http.post("/sessions/talk/messages/list", json={}).json()["items"][7]
    http.delete(f"/ext/sessions/talk/messages/{gone['id']}").raise_for_status()
    settle(http)
    first = http.post("/conclusions/list?reverse=true", json={}).json()["items"][0]
    http.put(f"/ext/conclusions/{first['id']}", json={"content": "corrected"}).raise_for_status()


def listed(http: httpx.Client, method: str, path: str) -> list[dict[str, Any]]:
    """Return all items of a list."""
    items: list[dict[str, Any]] = []
    page = 1
    while True:
        told = http.request(method, path, params={"page": page, "size": 100}, json={} if method == "POST" else None)
        told.raise_for_status()
        items += told.json()["items"]
        if page >= told.json()["pages"]:
            return items
        page += 1


def shown(http: httpx.Client) -> dict[str, Any]:
    """Return what the public API shows of a workspace, without fields that another server cannot keep: ids and some
    dates."""
    sessions = [session["id"] for session in listed(http, "POST", "/sessions/list")]
    peers = listed(http, "POST", "/peers/list")
    members = {s: sorted(peer["id"] for peer in listed(http, "GET", f"/sessions/{s}/peers")) for s in sessions}
    return {
        "peers": sorted((peer["id"], str(peer["metadata"]), str(peer["configuration"])) for peer in peers),
        "sessions": sorted(sessions),
        "members": members,
        "configs": {(s, p): http.get(f"/sessions/{s}/peers/{p}/config").json() for s in sessions for p in members[s]},
        "messages": {
            s: [
                _without(message, "id", "token_count")
                for message in listed(http, "POST", f"/sessions/{s}/messages/list")
            ]
            for s in sessions
        },
        "conclusions": sorted(
            (one["content"], one["observer_id"], one["observed_id"], str(one["session_id"]))
            for one in listed(http, "POST", "/conclusions/list")
        ),
        "cards": [
            http.get(f"/peers/{a['id']}/card", params={"target": b["id"]}).json()["peer_card"]
            for a in sorted(peers, key=lambda peer: str(peer["id"]))
            for b in sorted(peers, key=lambda peer: str(peer["id"]))
        ],
        "scopes": sorted(session["id"] for session in listed(http, "POST", "/scopes/x/sessions/list")),
        "webhooks": [hook["url"] for hook in listed(http, "GET", "/webhooks")],
    }


def _without(item: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in names}
