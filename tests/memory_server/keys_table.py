"""Permissions by kind of key: each route, and each field of a request that names another object, with its rule.

A rule says for each kind of key which objects it opens. The keys: none, the admin's, that of workspace `w`, that of
peer alice, that of session talk, in which alice and carol are. The objects are alice and talk themselves ("own"), carol
and a session of hers ("co-member's"), bob and a session of his ("stranger's"), and alice and talk of another workspace.

The key of a peer that was merged into another opens nothing anywhere, also not what its name leads to.
"""

from __future__ import annotations

OBJECTS = ("own", "co-member's", "stranger's", "other workspace's")
OWN = {"own"}
INSIDE = {*OBJECTS} - {"other workspace's"}
Rule = dict[str, set[str]]

ADMIN: Rule = {"admin": {*OBJECTS}}
WORKSPACE: Rule = {**ADMIN, "workspace": INSIDE}
PEER: Rule = {**WORKSPACE, "peer": OWN}
SESSION: Rule = {**WORKSPACE, "session": OWN}
MEMBER: Rule = {**SESSION, "peer": OWN}
"""Members and wider keys read a session; its own and wider keys change it."""
ANYONE: Rule = {**WORKSPACE, "peer": INSIDE, "session": INSIDE}
PEERS_VIEW: Rule = {**WORKSPACE, "peer": INSIDE}
"""A peer's key reads the conclusions that the peer holds about anyone, not those that others hold."""

W = "/v3/workspaces/{workspace_id}"
ROUTES: dict[str, Rule] = {
    "POST /v3/workspaces": ANYONE,
    "POST /v3/workspaces/list": {**ADMIN, "workspace": {*OBJECTS}},  # it lists its own alone
    "POST /v3/keys": ADMIN,
    "GET /metrics": ADMIN,
    f"PUT {W}": WORKSPACE,
    f"DELETE {W}": WORKSPACE,
    f"POST {W}/search": WORKSPACE,
    f"POST {W}/ext/search": WORKSPACE,
    f"GET {W}/queue/status": WORKSPACE,
    f"POST {W}/schedule_dream": WORKSPACE,
    f"POST {W}/chat": WORKSPACE,
    f"POST {W}/peers": {**PEER, "session": {"own", "co-member's"}},
    f"POST {W}/peers/list": WORKSPACE,
    f"PUT {W}/peers/{{peer_id}}": PEER,
    f"POST {W}/peers/{{peer_id}}/sessions": PEER,
    f"POST {W}/peers/{{peer_id}}/chat": PEER,
    f"POST {W}/peers/{{peer_id}}/representation": PEER,
    f"GET {W}/peers/{{peer_id}}/card": PEER,
    f"PUT {W}/peers/{{peer_id}}/card": PEER,
    f"GET {W}/peers/{{peer_id}}/context": PEER,
    f"POST {W}/peers/{{peer_id}}/search": PEER,
    f"POST {W}/sessions": MEMBER,
    f"POST {W}/sessions/list": WORKSPACE,
    f"PUT {W}/sessions/{{session_id}}": SESSION,
    f"DELETE {W}/sessions/{{session_id}}": SESSION,
    f"POST {W}/sessions/{{session_id}}/clone": SESSION,
    f"POST {W}/sessions/{{session_id}}/peers": SESSION,
    f"PUT {W}/sessions/{{session_id}}/peers": SESSION,
    f"DELETE {W}/sessions/{{session_id}}/peers": SESSION,
    f"GET {W}/sessions/{{session_id}}/peers": MEMBER,
    f"GET {W}/sessions/{{session_id}}/peers/{{peer_id}}/config": MEMBER,
    f"PUT {W}/sessions/{{session_id}}/peers/{{peer_id}}/config": SESSION,
    f"GET {W}/sessions/{{session_id}}/context": MEMBER,
    f"GET {W}/sessions/{{session_id}}/summaries": MEMBER,
    f"POST {W}/sessions/{{session_id}}/search": MEMBER,
    f"POST {W}/sessions/{{session_id}}/messages": SESSION,
    f"POST {W}/sessions/{{session_id}}/messages/": SESSION,
    f"POST {W}/sessions/{{session_id}}/messages/upload": SESSION,
    f"POST {W}/sessions/{{session_id}}/messages/list": MEMBER,
    f"GET {W}/sessions/{{session_id}}/messages/{{message_id}}": MEMBER,
    f"PUT {W}/sessions/{{session_id}}/messages/{{message_id}}": SESSION,
    f"POST {W}/conclusions": WORKSPACE,
    f"POST {W}/conclusions/list": WORKSPACE,
    f"POST {W}/conclusions/query": WORKSPACE,
    f"GET {W}/conclusions/{{conclusion_id}}": WORKSPACE,
    f"DELETE {W}/conclusions/{{conclusion_id}}": WORKSPACE,
    f"POST {W}/scopes": WORKSPACE,
    f"POST {W}/scopes/list": WORKSPACE,
    f"GET {W}/scopes/{{scope_id}}": WORKSPACE,
    f"POST {W}/scopes/{{scope_id}}/sessions": WORKSPACE,
    f"POST {W}/scopes/{{scope_id}}/sessions/list": WORKSPACE,
    f"DELETE {W}/scopes/{{scope_id}}/sessions/{{session_id}}": WORKSPACE,
    f"GET {W}/scopes/{{scope_id}}/status": WORKSPACE,
    f"POST {W}/webhooks": WORKSPACE,
    f"GET {W}/webhooks": WORKSPACE,
    f"GET {W}/webhooks/test": WORKSPACE,
    f"DELETE {W}/webhooks/{{endpoint_id}}": WORKSPACE,
    f"DELETE {W}/ext/peers/{{peer_id}}": WORKSPACE,
    f"GET {W}/ext/peers/{{peer_id}}/merge": WORKSPACE,
    f"POST {W}/ext/peers/{{peer_id}}/merge": WORKSPACE,
    f"POST {W}/ext/evidence": WORKSPACE,
    f"POST {W}/ext/context": WORKSPACE,
    f"POST {W}/ext/sessions/{{session_id}}/peers/{{peer_id}}/move": WORKSPACE,
    f"GET {W}/ext/merges": WORKSPACE,
    f"DELETE {W}/ext/merges/{{merge_id}}": WORKSPACE,
    f"GET {W}/ext/dreams": WORKSPACE,
    f"DELETE {W}/ext/dreams/{{dream_id}}": WORKSPACE,
    f"GET {W}/ext/reread": WORKSPACE,
    f"POST {W}/ext/reread": WORKSPACE,
    f"DELETE {W}/ext/reread": WORKSPACE,
    f"DELETE {W}/ext/supersessions/{{supersession_id}}": WORKSPACE,
    f"GET {W}/ext/conclusions/{{conclusion_id}}/history": WORKSPACE,
    f"DELETE {W}/ext/sessions/{{session_id}}/messages": SESSION,
    f"DELETE {W}/ext/sessions/{{session_id}}/messages/{{message_id}}": SESSION,
    f"GET {W}/ext/sessions/{{session_id}}/messages/{{message_id}}/conclusions": WORKSPACE,
    f"GET {W}/ext/conclusions/{{conclusion_id}}/messages": WORKSPACE,
    f"GET {W}/ext/conclusions/{{conclusion_id}}/versions": WORKSPACE,
    f"PUT {W}/ext/conclusions/{{conclusion_id}}": WORKSPACE,
    f"GET {W}/ext/export/{{section}}": WORKSPACE,
    f"POST {W}/ext/import/{{section}}": WORKSPACE,
}

ALICE = f"{W}/peers/alice"
TALK = f"{W}/sessions/talk"
FIELDS: dict[tuple[str, str], tuple[Rule, str, object]] = {
    # what alice's own routes may name
    (f"POST {ALICE}/chat", "target"): (PEERS_VIEW, "", {"query": "who?", "target": "{peer_id}"}),
    (f"POST {ALICE}/chat", "session_id"): (PEER, "", {"query": "who?", "session_id": "{session_id}"}),
    (f"POST {ALICE}/chat", "filters"): (PEER, "", {"query": "who?", "filters": {"session_id": ["{session_id}"]}}),
    (f"POST {ALICE}/chat", "with_own_view"): (WORKSPACE, "", {"query": "who?", "with_own_view": True}),
    (f"POST {ALICE}/chat", "scope"): (WORKSPACE, "", {"query": "who?", "scope": ["x"]}),
    (f"POST {ALICE}/representation", "target"): (PEERS_VIEW, "", {"target": "{peer_id}"}),
    (f"POST {ALICE}/representation", "session_id"): (PEERS_VIEW, "", {"session_id": "{session_id}"}),
    (f"POST {ALICE}/representation", "filters"): (PEERS_VIEW, "", {"filters": {"session_id": "{session_id}"}}),
    (f"POST {ALICE}/representation", "scope"): (WORKSPACE, "", {"scope": "x"}),
    (f"POST {ALICE}/search", "filters"): (PEERS_VIEW, "", {"query": "I", "filters": {"peer_perspective": "{peer_id}"}}),
    (f"POST {ALICE}/sessions", "filters"): (PEERS_VIEW, "", {"filters": {"peer_id": "{peer_id}"}}),
    (f"GET {ALICE}/card", "target"): (PEERS_VIEW, "?target={peer_id}", None),
    (f"PUT {ALICE}/card", "target"): (PEERS_VIEW, "?target={peer_id}", {"peer_card": ["card: I like saffron."]}),
    (f"GET {ALICE}/context", "target"): (PEERS_VIEW, "?target={peer_id}", None),
    # what those who are in talk may name; a session's key shows what comes from that session
    (f"GET {TALK}/context", "peer_target"): ({**PEER, "session": INSIDE}, "?peer_target={peer_id}", None),
    (f"GET {TALK}/context", "peer_perspective"): (
        {**PEER, "session": INSIDE},
        "?peer_target=alice&peer_perspective={peer_id}",
        None,
    ),
    (f"GET {TALK}/context?peer_perspective=alice", "peer_target"): (
        {**PEERS_VIEW, "session": INSIDE},
        "&peer_target={peer_id}",
        None,
    ),
    (f"GET {TALK}/context", "sessions"): (
        {**PEER, "session": OWN},
        "?peer_target=alice&sessions=talk&sessions={session_id}",
        None,
    ),
    (f"GET {TALK}/context", "limit_to_session"): (
        {**PEER, "session": INSIDE},
        "?peer_target={peer_id}&limit_to_session=true",
        None,
    ),
    (f"GET {TALK}/context", "scope"): (WORKSPACE, "?peer_target=alice&scope=x", None),
    (f"POST {TALK}/search", "filters"): (ANYONE, "", {"query": "I", "filters": {"peer_perspective": "{peer_id}"}}),
    (f"POST {TALK}/messages/list", "filters"): (ANYONE, "", {"filters": {"session_id": "{session_id}"}}),
    # what is said of a session when it is opened or changed
    (f"POST {W}/sessions", "peers"): ({**PEER, "session": INSIDE}, "", {"id": "talk", "peers": {"{peer_id}": {}}}),
    (f"POST {W}/sessions", "scopes"): (WORKSPACE, "", {"id": "talk", "scopes": ["x"]}),
    (f"POST {W}/sessions", "metadata"): ({**WORKSPACE, "session": INSIDE}, "", {"id": "talk", "metadata": {}}),
    (f"POST {W}/sessions", "configuration"): (
        {**WORKSPACE, "session": INSIDE},
        "",
        {"id": "talk", "configuration": {}},
    ),
    (f"POST {TALK}/messages", "messages[].peer_id"): (
        {**WORKSPACE, "session": INSIDE},
        "",
        {"messages": [{"content": "", "peer_id": "{peer_id}"}]},
    ),
    (f"POST {TALK}/messages/upload", "peer_id"): ({**WORKSPACE, "session": INSIDE}, "", [1]),
    (f"DELETE {W}/ext/sessions/talk/messages", "first_id"): (
        {**WORKSPACE, "session": INSIDE},
        "?first_id={message_id}&last_id=none",
        None,
    ),
    (f"DELETE {W}/ext/sessions/talk/messages", "last_id"): (
        {**WORKSPACE, "session": INSIDE},
        "?first_id=none&last_id={message_id}",
        None,
    ),
    (f"POST {TALK}/clone", "message_id"): ({**WORKSPACE, "session": INSIDE}, "?message_id={message_id}", None),
}
"""By route and field: the rule for the objects that the field can name, and the query and body that name them."""
