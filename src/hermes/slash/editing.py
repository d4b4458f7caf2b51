"""`/edit`: a message written in the person's own editor."""

from __future__ import annotations

from hermes.slash.here import Answer, Beginning, Here, Say, console_of

EMPTY = "Nothing was said: the text is empty."
GIVEN_UP = "Nothing was said: the editor gave up."
UNCHANGED = "Nothing was said: the text is as it was. `/retry` has the last message answered once more."


async def edit(here: Here, text: str) -> Answer:
    begun = text or await _last_said(here)
    edited = await console_of(here).edit(begun)
    if edited is None:
        return GIVEN_UP
    if not edited.strip():
        return EMPTY
    return UNCHANGED if not text and edited.strip() == begun.strip() else Say(edited.strip())


async def _last_said(here: Here) -> str:
    """The last message of the person; "" where nothing was said."""
    place = await here.place()
    if isinstance(place, Beginning):
        return ""
    view = await place.store.view(place.session_id)
    return next((m.content for m in reversed(view.messages) if m.role == "user" and m.content), "")
