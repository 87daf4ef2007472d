"""Stored data of people: the vault, export, deletion, redaction, retention."""
