"""Slash commands: `table.py` lists them, `acts.py` implements them, `here.py` defines their context."""
