"""The status page: one file, nothing from elsewhere, nothing that a stranger wrote as markup.

- Style and script stand in the page and are named by their hashes in its policy, so that nothing
  else is run, whatever ends up in the page.
- The script sets text and makes elements; the policy keeps it from ever making markup of text.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple


class Page(NamedTuple):
    """The page, and the content security policy that it is sent with."""

    body: bytes
    policy: str


@cache
def status_page() -> Page:
    """The status page; it asks `/status` for what it shows."""
    html, style, script = (_read(f"status.{kind}") for kind in ("html", "css", "js"))
    body = html.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script)
    policy = [
        "default-src 'none'",
        f"style-src '{_hash(style)}'",
        f"script-src '{_hash(script)}'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    return Page(body.encode(), "; ".join(policy))


def _read(name: str) -> str:
    return files("walstore.relay").joinpath("static", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
