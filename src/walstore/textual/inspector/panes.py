"""What the panes below the timeline say: the document, a diff, blame, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual.content import Content

from walstore.document.history import Blame
from walstore.inspect.diffs import Difference, Mark, as_text, value_text
from walstore.inspect.subject import Subject
from walstore.inspect.summary import faults_in, summary_of, time_of
from walstore.textual.carets import author_color
from walstore.textual.inspector.timeline import moment_of
from walstore.textual.text_document import shown

# Names, stretches and keys that are shown; what is beyond is counted.
SHOWN_MAX = 500

_MARKS: Mapping[Mark, str] = {
    "same": "$text-muted",
    "gone": "$text-error on $error-muted",
    "new": "$text-success on $success-muted",
}


def document_pane(document: Mapping[str, Any]) -> Content:
    """A version of a document, name by name."""
    parts: list[Content] = []
    for name, value in list(document.items())[:SHOWN_MAX]:
        parts.append(Content.styled(f"{shown(name)}\n", "bold"))
        parts.append(Content(f"{lines_of(value_text(value))}\n\n"))
    if len(document) > SHOWN_MAX:
        parts.append(Content(f"… and {len(document) - SHOWN_MAX:,} more"))
    return Content("").join(parts) if parts else Content("There is nothing in it.")


def diff_pane(differences: Sequence[Difference], *, before: str, after: str) -> Content:
    """What is different between two versions."""
    parts = [Content.styled(f"from {before} to {after}\n\n", "$text-muted")]
    for difference in differences[:SHOWN_MAX]:
        parts.append(Content.styled(f"{shown(difference.name)}\n", "bold"))
        parts += [
            Content.styled(lines_of(stretch.text), _MARKS[stretch.mark])
            for stretch in difference.stretches
        ]
        parts.append(Content("\n\n"))
    if not differences:
        parts.append(Content("Nothing is different."))
    return Content("").join(parts)


def blame_pane(name: str, value: Any, blames: Sequence[Blame]) -> Content:
    """Who wrote each stretch of something."""
    text = as_text(value)
    head = Content.styled(shown(name), "bold")
    authors = dict.fromkeys(blame.author for blame in blames)
    legend = [Content.styled(f" {shown(author[:8])} ", ground(author)) for author in authors]
    top = Content("  ").join([head, *legend]) + "\n\n"
    if text is None:
        return top + _listed(value, blames)
    body = [
        Content.styled(lines_of(text[each.start : each.start + each.size]), ground(each.author))
        for each in blames
    ]
    return top + Content("").join(body)


def _listed(value: Any, blames: Sequence[Blame]) -> Content:
    keys = sorted(value) if isinstance(value, Mapping) else None
    items = value if isinstance(value, list) else [value]
    rows = []
    for each in blames[:SHOWN_MAX]:
        what = keys[each.start] if keys is not None else _item(items, each)
        when = "only the snapshot vouches for it" if each.ts is None else moment_of(each.ts)
        rows.append(
            Content.styled(f" {shown(each.author[:8])} ", ground(each.author))
            + Content(f"  {when:<24}  {lines_of(what)}\n")
        )
    return Content("").join(rows)


def _item(items: Sequence[Any], blame: Blame) -> str:
    return ", ".join(value_text(item) for item in items[blame.start : blame.start + blame.size])


def health_pane(subject: Subject) -> Content:
    """What is gone, missing or wrong, and who is believed."""
    summary = summary_of(subject)
    upto, verdict = subject.snapshot
    start = subject.start
    back = f"versions start at {moment_of(start)}" if start else "the log is there from its start"
    lines = [
        f"believed   {shown(summary['believed'])}",
        f"elements   {summary['elements']:,} in {summary['bytes']:,} bytes,"
        f" {summary['versions']:,} of them can be read as versions",
        f"retention  {back}",
        f"snapshot   {verdict}" + (f", up to {time_of(upto) or upto}" if upto else ""),
        "",
        *(shown(each) for each in faults_in(summary)),
    ]
    return Content("\n".join(lines))


def ground(author: str) -> str:
    """What the text of an author stands on: enough of their colour, in light and in dark."""
    return f"on {author_color(author)} 40%"


def lines_of(text: str) -> str:
    """A text as it may be shown, with its lines."""
    return "\n".join(map(shown, text.split("\n")))
