"""Textual widgets that are bound to a store."""

from walstore.textual.text_area import CollabTextArea

__all__ = ["CollabTextArea"]
