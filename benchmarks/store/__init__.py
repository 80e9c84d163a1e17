"""The store: what a key-press costs, and how fast a document opens."""
