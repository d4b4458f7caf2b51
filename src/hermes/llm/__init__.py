"""One way to call a model.

    ModelRequest ──Dialect──> POST /chat/completions ──bytes──> reading ──events──> assemble ──> TextPiece… Completed
                                     └── anything that goes wrong ──failures──> Retrying… or ModelFailed

`Model.stream` never raises for what an endpoint does: a failure is the last event. `openai_compatible` talks to real
endpoints. `assemble`, `failures` and `tokens` are pure.
"""
