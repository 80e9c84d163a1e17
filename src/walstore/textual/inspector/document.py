"""One document: a slider over its versions, lanes by author, and what a version was like.

- What is shown of a version is worked out in a thread; the slider does not wait for it.
- Whoever looks at the newest version follows it; whoever has gone back stays where they are.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static, TabbedContent, TabPane

from walstore.errors import WalStoreError
from walstore.inspect.diffs import told
from walstore.inspect.subject import Subject
from walstore.textual.inspector.panes import blame_pane, diff_pane, document_pane, health_pane
from walstore.textual.inspector.timeline import Lanes, LogView, Slider, moment_of
from walstore.textual.text_document import shown

# The pause before a place that failed is looked at again, in seconds.
_PAUSE_S: Final = 2.0

_END: Final = 10**9

# Each pane with its title; the key of the first is 1.
_PANES: Final = {
    "tab-log": "Log",
    "tab-document": "Document",
    "tab-diff": "Diff",
    "tab-blame": "Blame",
    "tab-health": "Retention and gaps",
}


class DocumentScreen(Screen[None]):
    """A document under inspection."""

    DEFAULT_CSS = """
    DocumentScreen #title, DocumentScreen #moment {
        height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis;
    }
    DocumentScreen #title { text-style: bold; }
    DocumentScreen #moment { color: $text-muted; }
    DocumentScreen #slider { height: 1; padding: 0 1; }
    DocumentScreen #people { height: auto; max-height: 4; scrollbar-size-vertical: 1; }
    DocumentScreen #lanes { height: auto; padding: 0 1; }
    DocumentScreen TabbedContent { height: 1fr; }
    DocumentScreen TabPane { padding: 0; height: 1fr; }
    DocumentScreen .pane { height: 1fr; scrollbar-size-vertical: 1; }
    DocumentScreen .pane Static { padding: 0 1; height: auto; }
    DocumentScreen LogView { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "Older", priority=True),
        Binding("right", "step(1)", "Newer", priority=True),
        Binding("home", f"step({-_END})", "Oldest", show=False, priority=True),
        Binding("end", f"step({_END})", "Newest", show=False, priority=True),
        Binding("m", "mark", "Compare from"),
        Binding("n", "name", "Next name"),
        *(
            Binding(str(number), f"pane('{name}')", title, show=False)
            for number, (name, title) in enumerate(_PANES.items(), 1)
        ),
        Binding("escape", "leave", "Back"),
    ]

    def __init__(self, subject: Subject) -> None:
        """Show an open document."""
        super().__init__()
        self.subject = subject
        self._at = max(len(subject.versions) - 1, 0)
        self._mark: int | None = None
        self._blamed = 0
        self._state = "live"

    # ── layout ─────────────────────────────────────────────────────────────────────────

    def compose(self) -> ComposeResult:
        """Lay it out."""
        yield Static(id="title", markup=False)
        yield Slider()
        with VerticalScroll(id="people", can_focus=False):
            yield Lanes()
        yield Static(id="moment", markup=False)
        with TabbedContent(initial="tab-log"):
            for key, (name, title) in enumerate(_PANES.items(), 1):
                with TabPane(f"{key} {title}", id=name):
                    if name == "tab-log":
                        yield LogView(self.subject)
                        continue
                    with VerticalScroll(classes="pane"):
                        yield Static(id=name.replace("tab-", "show-"))
        yield Footer()

    def on_mount(self) -> None:
        """Show the newest version, and follow."""
        self.query_one(LogView).focus()
        self.call_after_refresh(self._show)
        self._follow()

    def on_resize(self) -> None:
        """Draw time as wide as there is room."""
        self.call_after_refresh(self._show)

    def on_tabbed_content_tab_activated(self) -> None:
        """Work out what another pane shows."""
        self._show()

    # ── keys ───────────────────────────────────────────────────────────────────────────

    def action_step(self, step: int) -> None:
        """Show an older or a newer version."""
        self._at = min(max(self._at + step, 0), max(len(self.subject.versions) - 1, 0))
        self._show()

    def action_mark(self) -> None:
        """Compare from this version on, or no longer."""
        self._mark = None if self._mark == self._at else self._at
        self._show()

    def action_name(self) -> None:
        """Blame for the next name."""
        self._blamed += 1
        self.query_one(TabbedContent).active = "tab-blame"
        self._show()

    def action_pane(self, name: str) -> None:
        """Show a pane."""
        self.query_one(TabbedContent).active = name

    def action_leave(self) -> None:
        """Go back, where there is something to go back to."""
        if len(self.app.screen_stack) > 2:
            self.dismiss(None)
        else:
            self.app.exit()

    # ── what is shown ──────────────────────────────────────────────────────────────────

    def _show(self) -> None:
        if not self.is_mounted:
            return
        subject, versions = self.subject, self.subject.versions
        self.query_one("#title", Static).update(
            f"{shown(subject.key)}  ·  {shown(subject.place.name)}  ·  {self._state}"
        )
        self.query_one(Slider).show(at=self._at, mark=self._mark, count=len(versions))
        self.query_one(Lanes).show(versions)
        self.query_one("#moment", Static).update(self._moment())
        self.query_one(LogView).show(versions[self._at].ts if versions else 0)
        self._fill()

    def _moment(self) -> str:
        if not self.subject.versions and self.subject.start:
            return f"Only the snapshot is left, up to {moment_of(self.subject.start)}."
        if not self.subject.versions:
            return "Nothing that can be read was committed yet."
        version = self.subject.versions[self._at]
        said = [
            moment_of(version.ts),
            f"by {version.author[:8]}",
            f"{version.runs:,} {'run' if version.runs == 1 else 'runs'}",
            shown(version.message or ""),
        ]
        return "  ·  ".join(filter(None, said))

    @work(exclusive=True, group="fill")
    async def _fill(self) -> None:
        """Work out what the pane in front shows."""
        pane = self.query_one(TabbedContent).active
        if pane in ("", "tab-log"):
            return
        target = self.query_one(f"#{pane.replace('tab-', 'show-')}", Static)
        try:
            target.update(await self._content(pane))
        except (WalStoreError, ValueError) as error:
            target.update(Content(shown(str(error))))

    async def _content(self, pane: str) -> Content:
        subject, versions = self.subject, self.subject.versions
        if pane == "tab-health":
            return health_pane(subject)
        ts = versions[self._at].ts if versions else subject.start
        if not ts:
            return Content("")
        document = await subject.at(ts)
        if pane == "tab-document":
            return document_pane(document)
        if pane == "tab-blame":
            return await self._blame(document, ts)
        before, said = self._before()
        changes = await subject.diff(before, ts)
        differences = told(changes, await subject.at(before), document)
        return diff_pane(differences, before=said, after=f"version {self._at + 1:,}")

    def _before(self) -> tuple[int, str]:
        """What the chosen version is compared with."""
        versions = self.subject.versions
        if self._mark is not None and self._mark < len(versions):
            return versions[self._mark].ts, f"version {self._mark + 1:,}"
        if self._at:
            return versions[self._at - 1].ts, f"version {self._at:,}, the one before,"
        return self.subject.start, "the beginning"

    async def _blame(self, document: dict[str, object], ts: int) -> Content:
        names = list(document)
        if not names:
            return Content("There is nothing in it.")
        name = names[self._blamed % len(names)]
        return blame_pane(name, document[name], await self.subject.blame(name, ts))

    # ── what is new ────────────────────────────────────────────────────────────────────

    @work(group="follow")
    async def _follow(self) -> None:
        """Show what comes, for as long as this is shown."""
        while True:
            try:
                await self.subject.place.wait()
                is_newest = self._at >= len(self.subject.versions) - 1
                is_new = await self.subject.refresh()
                self._state = "live"
            except WalStoreError as error:
                self._state, is_new, is_newest = f"not live: {error}", True, False
                await asyncio.sleep(_PAUSE_S)
            if is_new:
                self.action_step(_END if is_newest else 0)
