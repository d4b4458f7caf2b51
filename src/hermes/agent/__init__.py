"""The turn: what happens between a person's message and the reply.

    run_turn: lane ── accept (commit) ── recall ── converse: context ── model ↔ tools ── record ── after_turn

The person's message is on the disk before the model is asked. Everything said afterwards is recorded as it is said, so
that a kill at any point leaves a session that the next turn can go on with.
"""
