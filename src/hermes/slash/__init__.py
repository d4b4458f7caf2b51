"""Slash commands: `table.py` names them, `acts.py` does them, `here.py` is what they need of a surface."""
