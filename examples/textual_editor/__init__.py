"""A note that several people write together, in a terminal: `python -m examples.textual_editor`."""
