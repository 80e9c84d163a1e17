"""The colours of walstore's screens: in the light, and in the dark.

A panel is nearly grey, so that a terminal of 256 colours has one for it that is not the ground's.
"""

from __future__ import annotations

from textual.theme import Theme

LIGHT = Theme(
    name="walstore-light",
    primary="#1d4ed8",
    secondary="#0e7490",
    accent="#9a3412",
    foreground="#1f2328",
    background="#ffffff",
    surface="#ffffff",
    panel="#eef0f2",
    success="#15803d",
    warning="#b45309",
    error="#b91c1c",
    dark=False,
)

DARK = Theme(
    name="walstore-dark",
    primary="#60a5fa",
    secondary="#22b8cf",
    accent="#fbbf24",
    foreground="#e6e8eb",
    background="#15171c",
    surface="#15171c",
    panel="#23262d",
    success="#3fb950",
    warning="#d29922",
    error="#f85149",
    dark=True,
)
