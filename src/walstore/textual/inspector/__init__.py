"""A screen over any document or relay: its log, its authors, its versions, and what is wrong.

- `app` is the app, `documents` the list of a relay's documents, `document` one of them.
- `timeline` draws time: slider, lanes and the log; `panes` draws what is below.
- What others have written is cleaned before it is shown, and is never markup.
"""
