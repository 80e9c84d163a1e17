"""The editor: what a key-press costs until it is on the screen, with others at the document."""
