"""The owner's web page: a separate process on loopback, beside gateway and chats.

    browser ── door (link, cookie, origin) ── routes ── store · memory book · conversations ── templates

Pages are rendered here and work without scripts; htmx loads parts of the same pages and follows a running turn.
"""
