"""The relay: an untrusted server that orders, keeps and forgets logs safely."""
