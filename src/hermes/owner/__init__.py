"""Queries and operations of the owner on memory and sessions, shared by commands and the web page."""
