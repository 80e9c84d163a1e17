"""Suites that every implementation of a port must pass, for whoever writes one."""
