"""The one door to a model, for everything in the memory server that asks one.

    settings (model.json) ──> ModelDoor.of(workspace) ──> MemoryModel.ask / stream ──> ModelAnswer
                                                             └── each request is a committed row (`calls`)

A failure is a value with a reason. A job that has to wait for a model raises `ModelWaiting`; it stays pending.
"""
