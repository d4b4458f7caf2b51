"""Wounds that a stock 0.19 leaves: killed in a compression, used on under an old id, written twice."""

from __future__ import annotations

import json

from tests.audit.wounds import (
    CHILD,
    EVIDENCE,
    KEY,
    LATER,
    OTHER_KEY,
    PARENT,
    ROTATED_AT,
    SIBLING,
    STRAY,
    SUMMARY,
    WOUNDS,
    Hand,
    Wound,
    X,
    Y,
    clock,
    rotate,
)

API = "api-chat-1"
NEXT = "20260529_080000_0d0d0d0d"
MERGED = f"[PRIOR CONTEXT — for reference only; not a new message]\ngladly\n\n[END OF PRIOR CONTEXT — …]\n\n{SUMMARY}"
TALK = (("user", "let us plan the harbour"), ("assistant", "gladly"), ("user", "how deep?"), ("assistant", "nine feet"))


def talk(hand: Hand, session: str, *, at: float, count: int = len(TALK)) -> None:
    for place, (role, text) in enumerate(TALK[:count]):
        hand.say(session, at + place, text, role=role)


def rotated_api(hand: Hand) -> None:
    """Rotate a session of the HTTP API: sessions are named only by their ids."""
    hand.session(API, ROTATED_AT - 900, source="api_server", ended_at=ROTATED_AT, end_reason="compression")
    talk(hand, API, at=ROTATED_AT - 800)
    hand.session(CHILD, ROTATED_AT, source="api_server", parent_session_id=API)
    hand.say(CHILD, ROTATED_AT - 800, "let us plan the harbour")
    hand.say(CHILD, ROTATED_AT + 0.1, SUMMARY, role="assistant")


def client_that_kept_its_id(hand: Hand) -> None:
    rotated_api(hand)
    hand.say(API, ROTATED_AT + 2, "and the quay?")


def client_that_kept_its_id_through_two_rotations(hand: Hand) -> None:
    rotated_api(hand)
    hand.session(SIBLING, ROTATED_AT + 40, source="api_server", parent_session_id=API)
    hand.say(SIBLING, ROTATED_AT + 40.1, SUMMARY, role="assistant")
    hand.say(API, ROTATED_AT + 60, "and the quay?")


def client_whose_compression_was_cut_off(hand: Hand) -> None:
    hand.session(API, ROTATED_AT - 900, source="api_server", ended_at=ROTATED_AT, end_reason="compression")
    talk(hand, API, at=ROTATED_AT - 800)
    hand.say(API, ROTATED_AT + 30, "and the quay?")


def cut_off(hand: Hand) -> None:
    hand.session(PARENT, ROTATED_AT - 900, ended_at=ROTATED_AT, end_reason="compression", **hand.keyed(KEY))
    talk(hand, PARENT, at=ROTATED_AT - 800)


def compression_cut_off(hand: Hand) -> None:
    cut_off(hand)
    hand.route(KEY, PARENT)


def compression_cut_off_and_key_dropped(hand: Hand) -> None:
    cut_off(hand)


def compression_cut_off_with_an_empty_child(hand: Hand) -> None:
    cut_off(hand)
    hand.session(CHILD, ROTATED_AT, parent_session_id=PARENT)


def key_dropped_before_the_child_had_it(hand: Hand) -> None:
    rotate(hand)
    hand.file.run(f"UPDATE sessions SET session_key = NULL, chat_id = NULL, chat_type = NULL WHERE id = '{CHILD}'")


def empty_child_of_a_key_that_began_anew(hand: Hand) -> None:
    cut_off(hand)
    hand.session(CHILD, ROTATED_AT, parent_session_id=PARENT)
    hand.session(NEXT, ROTATED_AT + 60, **hand.keyed(KEY))
    hand.say(NEXT, ROTATED_AT + 61, "are you there?")
    hand.route(KEY, NEXT)


def words_in_the_parent_at_once(hand: Hand) -> None:
    rotate(hand, said_later=None)
    hand.route(KEY, CHILD)
    hand.say(PARENT, ROTATED_AT + 2, "bots are fast")


def child_a_moment_early(hand: Hand) -> None:
    rotate(hand)
    hand.file.run(f"UPDATE sessions SET started_at = {ROTATED_AT - 3} WHERE id = '{CHILD}'")
    hand.route(KEY, PARENT)


def branch_beside_a_child(hand: Hand) -> None:
    rotate(hand)
    mark = json.dumps({"_branched_from": PARENT})
    hand.session(SIBLING, ROTATED_AT + 200, parent_session_id=PARENT, model_config=mark, **hand.keyed(KEY))
    hand.say(SIBLING, ROTATED_AT + 201, "on another way")
    hand.file.run(f"UPDATE sessions SET ended_at = {ROTATED_AT + 300}, end_reason = 'session_switch' "
                  f"WHERE id = '{SIBLING}'")  # fmt: skip
    hand.route(KEY, PARENT)


def written_twice(hand: Hand, count: int) -> None:
    hand.session(X, ROTATED_AT - 900, **hand.keyed(KEY))
    talk(hand, X, at=ROTATED_AT - 800)
    talk(hand, X, at=ROTATED_AT - 800, count=count)
    hand.route(KEY, X)


def everything_twice(hand: Hand) -> None:
    written_twice(hand, len(TALK))
    hand.say(X, ROTATED_AT + 60, "and the quay?")


def half_of_it_twice(hand: Hand) -> None:
    written_twice(hand, 2)


def twice_with_later_replies(hand: Hand) -> None:
    """In some versions replies have no separate time: their copies have that of the second writing. White space at the
    end of a text may differ."""
    written_twice(hand, 0)
    for place, (role, text) in enumerate(TALK):
        hand.say(X, ROTATED_AT - 800 + place if role == "user" else ROTATED_AT, f"{text} ", role=role)


def child_written_twice(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    hand.say(CHILD, ROTATED_AT + 130, SUMMARY)
    hand.say(CHILD, ROTATED_AT + 130, "after the harbour")
    hand.say(CHILD, ROTATED_AT + 130, "so it was", role="assistant")


def merged_summary_twice(hand: Hand) -> None:
    rotate(hand, said_later=None)
    hand.file.run(f"DELETE FROM messages WHERE session_id = '{CHILD}'")
    hand.say(CHILD, ROTATED_AT + 0.1, MERGED, role="assistant")
    hand.say(CHILD, ROTATED_AT + 0.2, MERGED, role="assistant")
    hand.say(CHILD, ROTATED_AT + 60, "after the harbour")
    hand.route(KEY, CHILD)


def crossed_and_compacted_since(hand: Hand) -> None:
    """Anomaly B, followed by the session's own compression, which has read foreign messages."""
    line = "2026-05-28 16:{} INFO [{}] agent.conversation_compression: context compression {}: session={} messages=9"
    hand.log(EVIDENCE + line.format("20:00", X, "started", X) + "\n" + line.format("20:40", X, "done", X) + "\n")
    hand.session(X, clock("15:52:01"), **hand.keyed(KEY))
    hand.session(Y, clock("09:35:10"), **hand.keyed(OTHER_KEY))
    hand.say(Y, clock("16:00:00"), "only Y knows of the lighthouse")
    for at, text in (("15:53:00", "let us plan the harbour"), ("16:13:17", SUMMARY), ("16:13:40", "and the quay?"),
                     ("16:14:28", STRAY), ("16:14:28", "only Y knows of the lighthouse"),
                     ("16:19:00", "are you there?")):  # fmt: skip
        hand.say(X, clock(at), text, active=0, compacted=1)
    hand.say(X, clock("16:20:39"), f"{SUMMARY} and the quay")
    hand.say(X, clock("16:30:00"), "good")
    hand.route(KEY, X)
    hand.route(OTHER_KEY, Y)


SAID = [text for _, text in TALK]
STOCK_WOUNDS = (
    Wound(client_that_kept_its_id, "orphan-child", (API, CHILD), open_sessions=frozenset({API}),
          ended={CHILD: "orphaned_compression"}, sees={API: [*SAID, "and the quay?"]}),
    Wound(client_that_kept_its_id_through_two_rotations, "orphan-child", (API, CHILD, SIBLING),
          open_sessions=frozenset({API}), ended={CHILD: "orphaned_compression", SIBLING: "orphaned_compression"},
          sees={API: [*SAID, "and the quay?"]}),
    Wound(client_whose_compression_was_cut_off, "orphan-child", (API,), open_sessions=frozenset({API}),
          sees={API: [*SAID, "and the quay?"]}),
    Wound(compression_cut_off, "orphan-child", (PARENT,), routes={KEY: PARENT}, open_sessions=frozenset({PARENT}),
          sees={PARENT: SAID}),
    Wound(compression_cut_off_and_key_dropped, "orphan-child", (PARENT,), layouts=(22,), routes={KEY: PARENT},
          open_sessions=frozenset({PARENT}), sees={PARENT: SAID}),
    Wound(compression_cut_off_with_an_empty_child, "orphan-child", (PARENT,), layouts=(22,), routes={KEY: PARENT},
          open_sessions=frozenset({PARENT}), ended={CHILD: "orphaned_compression"}, sees={PARENT: SAID}),
    Wound(key_dropped_before_the_child_had_it, "orphan-child", (PARENT, CHILD), layouts=(22,), routes={KEY: CHILD},
          open_sessions=frozenset({CHILD}), sees={CHILD: LATER}),
    Wound(empty_child_of_a_key_that_began_anew, "orphan-child", (CHILD,), layouts=(22,), routes={KEY: NEXT},
          open_sessions=frozenset({NEXT}), ended={CHILD: "orphaned_compression", PARENT: "compression"},
          sees={NEXT: ["are you there?"], PARENT: SAID}),
    Wound(words_in_the_parent_at_once, "route-to-child", (PARENT, CHILD), routes={KEY: PARENT},
          open_sessions=frozenset({PARENT}), ended={CHILD: "superseded"},
          sees={PARENT: ["let us plan the harbour", "gladly", "bots are fast"]}),
    Wound(child_a_moment_early, "orphan-child", (PARENT, CHILD), routes={KEY: CHILD},
          open_sessions=frozenset({CHILD}), sees={CHILD: LATER}),
    Wound(branch_beside_a_child, "orphan-child", (PARENT, CHILD), layouts=(22,), routes={KEY: CHILD},
          open_sessions=frozenset({CHILD}), ended={SIBLING: "session_switch"}, sees={CHILD: LATER}),
    Wound(everything_twice, "double-rows", (X,), routes={KEY: X}, open_sessions=frozenset({X}),
          sees={X: [*SAID, "and the quay?"]}, hidden={X: SAID}),
    Wound(half_of_it_twice, "double-rows", (X,), sees={X: SAID}, hidden={X: SAID[:2]}),
    Wound(twice_with_later_replies, "double-rows", (X,), sees={X: SAID}, hidden={X: [f"{text} " for text in SAID]}),
    Wound(child_written_twice, "double-rows", (CHILD,), sees={CHILD: LATER}, hidden={CHILD: LATER}),
    Wound(merged_summary_twice, "double-summary", (CHILD,), sees={CHILD: [MERGED, "after the harbour"]},
          hidden={CHILD: [MERGED]}),
    Wound(crossed_and_compacted_since, "cross-session", (X, Y), layouts=(22,),
          sees={X: [f"{SUMMARY} and the quay", "good"]}, hidden={X: [STRAY, "only Y knows of the lighthouse"]}),
)  # fmt: skip

CASES = [(wound, layout) for wound in (*WOUNDS, *STOCK_WOUNDS) for layout in wound.layouts]
