"""Homes that only look damaged: no finding may name them, no repair may change them."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.audit.stock_wounds import API, MERGED, NEXT, TALK, cut_off, rotated_api, talk
from tests.audit.wounds import CHILD, KEY, OTHER_KEY, PARENT, ROTATED_AT, SIBLING, SUMMARY, Hand, X, rotate
from tests.store import old_files as old

REPORT = "[summary] daily report please"


def long_text_sent_twice(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, old.CLIENT)
    hand.file.run("DELETE FROM sessions WHERE id LIKE '20260528%'")
    for seconds in (0, 1, 30):
        hand.say(old.CLIENT, ROTATED_AT + seconds, "please, " * 60)


def rotation_in_a_terminal(hand: Hand) -> None:
    rotate(hand)
    hand.file.run("UPDATE sessions SET source = 'cli', user_id = NULL WHERE id LIKE '20260528%'")
    if hand.is_current:
        hand.file.run("UPDATE sessions SET session_key = NULL, chat_id = NULL WHERE id LIKE '20260528%'")


def conversation_reset_after_a_rotation(hand: Hand) -> None:
    rotate(hand)
    hand.file.run(f"UPDATE sessions SET end_reason = 'session_reset', ended_at = 1.9e9 WHERE id = '{CHILD}'")
    hand.session(NEXT, ROTATED_AT + 9999, **hand.keyed(KEY))
    hand.route(KEY, NEXT)


def straggling_reply(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    hand.say(PARENT, ROTATED_AT + 3, "one moment", role="assistant")
    hand.say(CHILD, ROTATED_AT + 200, "go on then")


def straggling_result_of_a_tool(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    hand.say(PARENT, ROTATED_AT + 300, "done", role="tool", tool_call_id="c1")


def same_summary_in_two_sessions(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    hand.say(old.CLIENT, ROTATED_AT, SUMMARY)


def group_whose_speaker_changed(hand: Hand) -> None:
    """The first speaker in a group does not own the conversation."""
    rotate(hand)
    key = "agent:main:telegram:group:-100"
    hand.route(key, CHILD)
    hand.file.run(f"UPDATE sessions SET user_id = '42' WHERE id = '{CHILD}'")
    if hand.is_current:
        hand.file.run(f"UPDATE sessions SET session_key = '{key}', chat_id = '-100', chat_type = 'group' "
                      "WHERE id LIKE '20260528%'")  # fmt: skip


def request_that_is_called_a_summary(hand: Hand) -> None:
    for seconds in (0, 0.5, 3600):
        hand.say(old.CLIENT, ROTATED_AT + seconds, REPORT)


def bot_that_answers_with_summaries(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    for seconds in (1, 2, 3):
        hand.say(CHILD, ROTATED_AT + 200 + seconds, "[Summary] all is quiet", role="assistant")


def summary_pasted_by_a_person(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    hand.say(CHILD, ROTATED_AT + 150, SUMMARY)


def summary_pasted_first_thing_after_a_rotation(hand: Hand) -> None:
    rotate(hand, said_later=None)
    hand.route(KEY, CHILD)
    hand.say(CHILD, ROTATED_AT + 40, SUMMARY)


def summary_quoted_twice_right_after_a_rotation(hand: Hand) -> None:
    rotate(hand, said_later=None)
    hand.route(KEY, CHILD)
    for seconds in (2, 4):
        hand.say(CHILD, ROTATED_AT + seconds, "[CONTEXT SUMMARY]: is what you wrote, right?")


def summary_pasted_where_nothing_was_compressed(hand: Hand) -> None:
    hand.say(old.CLIENT, ROTATED_AT, SUMMARY)
    hand.say(old.CLIENT, ROTATED_AT + 0.2, SUMMARY)


def talk_that_repeats_itself(hand: Hand) -> None:
    hand.session(X, ROTATED_AT - 900, **hand.keyed(KEY))
    hand.route(KEY, X)
    for day in range(3):
        talk(hand, X, at=ROTATED_AT + day * 86_400)


def talk_that_repeats_itself_beside_two_words_at_once(hand: Hand) -> None:
    talk_that_repeats_itself(hand)
    for text in ("ok", "and now?"):
        hand.say(X, ROTATED_AT + 9, text)


def same_words_at_the_same_time(hand: Hand) -> None:
    hand.session(X, ROTATED_AT - 900, **hand.keyed(KEY))
    hand.route(KEY, X)
    for _ in range(2):
        hand.say(X, ROTATED_AT, "ok")
    hand.say(X, ROTATED_AT + 1, "noted", role="assistant")


def client_that_followed(hand: Hand) -> None:
    rotated_api(hand)
    hand.say(CHILD, ROTATED_AT + 30, "and the quay?")


def client_that_said_nothing_since(hand: Hand) -> None:
    rotated_api(hand)


def client_that_went_back_and_forth(hand: Hand) -> None:
    rotated_api(hand)
    hand.say(API, ROTATED_AT + 30, "and the quay?")
    hand.say(CHILD, ROTATED_AT + 60, "and the pier?")


def terminal_that_was_cut_off(hand: Hand) -> None:
    hand.session(X, ROTATED_AT - 900, source="cli", ended_at=ROTATED_AT, end_reason="compression")
    talk(hand, X, at=ROTATED_AT - 800)


def reset_after_half_a_compression(hand: Hand) -> None:
    cut_off(hand)
    hand.session(NEXT, ROTATED_AT + 60, ended_at=ROTATED_AT + 90, end_reason="session_reset", **hand.keyed(KEY))
    hand.say(NEXT, ROTATED_AT + 61, "are you there?")
    if not hand.is_current:
        hand.file.run(f"UPDATE sessions SET source = 'cli' WHERE id IN ('{PARENT}', '{NEXT}')")


def compacted_in_place(hand: Hand) -> None:
    hand.session(X, ROTATED_AT - 900, **hand.keyed(KEY))
    hand.route(KEY, X)
    for role, text in TALK:
        hand.say(X, ROTATED_AT - 800, text, role=role, active=0, compacted=1)
    hand.say(X, ROTATED_AT - 800, TALK[0][1])
    hand.say(X, ROTATED_AT, SUMMARY, role="assistant")
    hand.say(X, ROTATED_AT - 800, TALK[2][1])
    hand.say(X, ROTATED_AT + 60, "and the quay?")


def long_text_sent_twice_right_after_a_compaction(hand: Hand) -> None:
    compacted_in_place(hand)
    hand.file.run(f"DELETE FROM messages WHERE session_id = '{X}' AND content = 'and the quay?'")
    for moment in (0.2, 0.6):
        hand.say(X, ROTATED_AT + moment, "please, " * 60)


def rewound(hand: Hand) -> None:
    hand.session(X, ROTATED_AT - 900, rewind_count=1, **hand.keyed(KEY))
    hand.route(KEY, X)
    hand.say(X, ROTATED_AT - 800, "how deep?", active=0)
    hand.say(X, ROTATED_AT - 800, "how deep?")


def remarks_of_another_version(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    for seconds in (1, 2):
        hand.say(CHILD, ROTATED_AT + seconds, "", role="session_meta")


def merged_summary(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    hand.file.run(f"UPDATE messages SET content = '{MERGED}', role = 'assistant' WHERE content = '{SUMMARY}'")


def branch_of_a_rotated_session(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    mark = json.dumps({"_branched_from": PARENT})
    hand.session(SIBLING, ROTATED_AT + 5, parent_session_id=PARENT, model_config=mark)
    hand.say(SIBLING, ROTATED_AT + 6, "on another way")


def run_of_a_helper(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    mark = json.dumps({"_delegate_from": PARENT})
    hand.session(SIBLING, ROTATED_AT + 1, parent_session_id=PARENT, model_config=mark)
    hand.say(SIBLING, ROTATED_AT + 2, "count the boats")


def helper_just_before_the_end(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    hand.session(SIBLING, ROTATED_AT - 2, parent_session_id=PARENT, ended_at=ROTATED_AT - 1, end_reason="user_exit")
    hand.say(SIBLING, ROTATED_AT - 1, "count the boats")


def two_keys_in_one_conversation(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    hand.route(OTHER_KEY, PARENT)


def words_that_both_have(hand: Hand) -> None:
    """The child repeats the parent's last message, because a person says it again."""
    rotate(hand)
    hand.route(KEY, CHILD)
    hand.say(CHILD, ROTATED_AT + 300, "let us plan the harbour")


def compression_in_the_log_of_a_stock_version(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    line = (
        "2026-05-28 16:16:{} INFO [{}] agent.conversation_compression: context compression {}: session={} messages={}\n"
    )
    hand.log(line.format("34,100", PARENT, "started", PARENT, 9) + line.format("35,200", CHILD, "done", CHILD, "9->3"))


BOTH: tuple[Callable[[Hand], None], ...] = (
    long_text_sent_twice, rotation_in_a_terminal, conversation_reset_after_a_rotation, straggling_reply,
    straggling_result_of_a_tool, same_summary_in_two_sessions, group_whose_speaker_changed,
    request_that_is_called_a_summary, bot_that_answers_with_summaries, summary_pasted_by_a_person,
    summary_pasted_first_thing_after_a_rotation, summary_quoted_twice_right_after_a_rotation,
    summary_pasted_where_nothing_was_compressed,
    talk_that_repeats_itself, talk_that_repeats_itself_beside_two_words_at_once, same_words_at_the_same_time,
    client_that_followed, client_that_said_nothing_since,
    client_that_went_back_and_forth, terminal_that_was_cut_off, reset_after_half_a_compression,
    remarks_of_another_version, merged_summary, helper_just_before_the_end, two_keys_in_one_conversation,
    words_that_both_have, compression_in_the_log_of_a_stock_version,
)  # fmt: skip
CURRENT: tuple[Callable[[Hand], None], ...] = (
    compacted_in_place, long_text_sent_twice_right_after_a_compaction, rewound, branch_of_a_rotated_session,
    run_of_a_helper,
)  # fmt: skip
LOOKALIKES = [(make, layout) for make in BOTH for layout in (6, 22)] + [(make, 22) for make in CURRENT]
