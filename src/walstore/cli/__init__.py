"""The command line: `walstore …`."""
