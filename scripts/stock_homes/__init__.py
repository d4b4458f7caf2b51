"""Homes that a stock Hermes made, broken where it was killed: material for the audit.

    python -m scripts.stock_homes make FOLDER [NAME …]     # install it once, then make the homes
    python -m scripts.stock_homes check FOLDER [NAME …]    # repair each, go on in it, and write FOLDER/table.md
    python -m scripts.stock_homes together FOLDER          # it and ours in one home, in turns and at once
    python -m scripts.stock_homes list

A home is made by the real thing: `hermes gateway run` of `hermes-agent`, installed in an environment of its own, talks
to people on a loopback IRC server and over its HTTP API, with a loopback model; it compresses by rotation or in place
and is killed right before or after one of its own durable steps. Beside the home stands what was said (`said.json`).
"""
