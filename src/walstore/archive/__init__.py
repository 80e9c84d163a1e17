"""The archive: documents for those who never connect, as a base, diffs and a manifest.

- A base opens an archive epoch, diffs follow as contiguous ranges, and replacing the manifest by
  compare and swap is what commits them. Bytes that no manifest names are orphans.
- `policy`, `manifest`, `rows` and `chain` decide; destinations, formats and sinks carry it out.
"""
