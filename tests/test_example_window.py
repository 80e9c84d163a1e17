"""The window: what is typed into it is in the document, and what others write shows in it."""

from __future__ import annotations

import importlib.util
import warnings

import pytest

from tests.stores import until
from walstore import ALLOW_ANY, Identity, MemoryTransport, WalStore

if importlib.util.find_spec("nicegui") is None:
    pytest.skip("nicegui is not installed: pip install nicegui", allow_module_level=True)

with warnings.catch_warnings():
    # What its own packages say about one another is not ours to mend.
    warnings.simplefilter("ignore")
    from nicegui import ui
    from nicegui.testing import user_simulation

    from examples.window import window

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def store_of(who: Identity, log: MemoryTransport) -> WalStore:
    """A store of the document that both write to."""
    return WalStore.open(
        "notes/demo", identity=who, relay=log, writers=ALLOW_ANY, snapshot_role=ALLOW_ANY
    )


async def test_a_window_and_a_document_show_the_same_and_merge() -> None:
    log = MemoryTransport()
    async with (
        store_of(Identity.generate(), log) as here,
        store_of(Identity.generate(), log) as there,
        user_simulation(lambda: window(here)) as user,
    ):
        here.set_text("body", "Meet at the lake.")
        await user.open("/")
        await user.should_see("notes/demo")
        await user.should_see("Meet at the lake.")
        await here.flush()
        await until([there], lambda: there.text("body") == "Meet at the lake.")

        # Others' words show in the window.
        there.set_text("body", "Sunday: Meet at the lake.")
        await there.flush()
        await until([here], lambda: here.text("body").startswith("Sunday"))
        await user.should_see("Sunday: Meet at the lake.")

        # What is typed there, over what it showed before, is merged.
        note = next(iter(user.find(kind=ui.textarea).elements))
        there.set_text("body", "On Sunday: Meet at the lake.")
        note.value = "Sunday: Meet at the old lake."
        await here.flush()
        await there.flush()
        for store in (here, there):
            await store.pull()
        assert here.text("body") == there.text("body") == "On Sunday: Meet at the old lake."
        assert note.value == "On Sunday: Meet at the old lake."

        # A tick is a value of its own.
        user.find(kind=ui.checkbox).click()
        assert here["done"] is True
