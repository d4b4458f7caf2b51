"""The owner's web page: a process of its own, on loopback, beside gateway and chats.

    browser ── door (link, cookie, origin) ── routes ── store · memory book · conversations ── templates

Pages are drawn here and work without scripts; htmx loads parts of the same pages and follows a turn as it happens.
"""
