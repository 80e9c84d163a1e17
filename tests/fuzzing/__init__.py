"""Everything that reads what others have written, and input made to break it."""
