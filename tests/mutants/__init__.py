"""The library with faults put in on purpose: whether the tests notice them."""
