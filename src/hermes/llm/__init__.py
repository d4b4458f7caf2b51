"""One way to call a model.

    ModelRequest ──dialect──> POST /chat/completions ──bytes──> sse ──events──> assemble ──> TextPiece… Completed
                                     └── anything that goes wrong ──failures──> Retrying… or ModelFailed

`Model.stream` never raises for what an endpoint does: a failure is the last event. `openai_compatible` talks to real
endpoints, `scripted` is for the tests of anyone who calls a model. `sse`, `assemble`, `dialect`, `failures` and
`tokens` are pure.
"""
