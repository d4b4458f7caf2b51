"""The turn: everything between a person's message and the reply.

    run_turn: lane ── accept (commit) ── recall ── converse: context ── model ↔ tools ── record ── after_turn

The person's message is on the disk before the model is called. Everything after it is recorded as it happens, so that
a kill at any point leaves a session that the next turn can continue.
"""
