"""The language model of the memory server. All requests to it pass through here.

    settings (model.json) ──> ModelDoor.of(workspace) ──> MemoryModel.ask / stream ──> ModelAnswer
                                                             └── each request is a committed row (`calls`)

A failure is a value with a reason. A job that needs a model that is unavailable raises `ModelWaiting` and stays
pending."""
