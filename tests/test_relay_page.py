"""The status page, in a real browser."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.browser import Tab, find_browser, new_tab, running_browser
from tests.served import TOKEN, Front, port_of, serving
from walstore.relay.config import Settings
from walstore.relay.exchange import ConnectionStatus
from walstore.relay.info import Retained
from walstore.relay.log import DocumentStatus

GUARDED = Settings(roles_table={"grant": []}, roles_source="roles.toml", admin_token=TOKEN)
NOW_MS = 1_700_000_000_000

HOSTILE = [
    "<img src=x onerror=\"window.hacked='img'\">",
    "</script><script>window.hacked='script'</script>",
    "\"'><svg onload=window.hacked='svg'>",
    "javascript:window.hacked='url'",
    "{{7*7}}${7*7}",
    "__proto__",
    "constructor",
    "שלום/עולם",
    "a" * 512,
]


@pytest.fixture(scope="module")
def browser() -> Iterator[str]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on this machine; install one, or name it in CHROMIUM")
    with running_browser(program) as address:
        yield address


def document(key: str, *, elements: int = 3, head: int = 9) -> DocumentStatus:
    return DocumentStatus(key, elements, 2048 * elements, head, 0, 1, 5, NOW_MS)


def peer(name: str, key: str) -> ConnectionStatus:
    return ConnectionStatus(name, "127.0.0.1:5000", [key], 2, 1536, 0, 7, NOW_MS)


def full() -> Front:
    return Front(
        started_ms=NOW_MS,
        kept=[document("notes/a", elements=1234), document("notes/b")],
        peers=[peer("1", "ab" * 32), peer("2f", "cd" * 32)],
        numbers=Retained(3, 5000, "nondominated_plus_recent_history", 4, NOW_MS),
    )


async def rows(tab: Tab, table: str) -> list[str]:
    expression = (
        f"Array.from(document.querySelectorAll('#{table} tr'), (row) => row.cells[0].innerText)"
    )
    found: list[str] = await tab.evaluate(expression)
    return found


async def shown(tab: Tab, port: int) -> None:
    await tab.open(f"http://127.0.0.1:{port}/")
    await tab.until("document.querySelector('#state')?.dataset.state === 'live'")


async def test_it_shows_what_the_relay_holds_and_who_is_there(browser: str) -> None:
    async with serving(full()) as server, new_tab(browser) as tab:
        await shown(tab, port_of(server))
        assert await rows(tab, "documents") == ["notes/a", "notes/b"]
        assert await rows(tab, "connections") == ["1 · 127.0.0.1:5000", "2f · 127.0.0.1:5000"]
        text = await tab.text("body")
        for part in ("1,234", "2.4 MiB", "5,000", "abababab", "recent count", "1.5 KiB"):
            assert part in text
        assert tab.faults == []


async def test_it_follows_the_relay_by_itself(browser: str) -> None:
    relay = full()
    async with serving(relay) as server, new_tab(browser) as tab:
        await shown(tab, port_of(server))
        relay.kept.insert(0, document("notes/new"))
        relay.kept[1] = document("notes/a", elements=1300, head=12)
        relay.peers.clear()
        await tab.until("document.querySelectorAll('#documents tr').length === 3")
        assert await rows(tab, "documents") == ["notes/new", "notes/a", "notes/b"]
        assert "1,300" in await tab.text("#documents")
        assert await tab.evaluate("document.querySelectorAll('tr.changed').length") == 1
        assert await tab.text("#connections-note") == "Nobody is connected."
        relay.policy["recent_count"] = 77
        await tab.until("document.querySelector('#retention').innerText.includes('77')")
        assert tab.faults == []


async def test_what_strangers_wrote_is_shown_and_never_run(browser: str) -> None:
    relay = full()
    relay.kept[:] = [document(key) for key in HOSTILE]
    relay.policy["note"] = HOSTILE[0]
    relay.settings = replace(relay.settings, name=HOSTILE[1])
    async with serving(relay) as server, new_tab(browser) as tab:
        await shown(tab, port_of(server))
        assert await rows(tab, "documents") == HOSTILE
        assert await tab.text("h1") == HOSTILE[1]
        relay.kept.reverse()
        await tab.until(
            "document.querySelector('#documents tr').cells[0].innerText.startsWith('aaa')"
        )
        assert await rows(tab, "documents") == HOSTILE[::-1]
        assert await tab.evaluate("window.hacked") is None
        assert await tab.evaluate("document.querySelectorAll('img, svg, script').length") == 1
        assert tab.faults == []


async def test_the_policy_of_the_page_stops_scripts_and_markup(browser: str) -> None:
    async with serving(full()) as server, new_tab(browser) as tab:
        await shown(tab, port_of(server))
        await tab.evaluate(
            "(() => { const script = document.createElement('script');"
            " try { script.text = 'window.hacked = 1' } catch {}"
            " document.body.append(script); })()"
        )
        assert await tab.evaluate("window.hacked") is None
        refused = (
            "(() => { try { document.body.innerHTML = '<b>x</b>'; return false }"
            " catch { return true } })()"
        )
        assert await tab.evaluate(refused) is True


async def test_it_asks_nobody_else_for_anything(browser: str) -> None:
    async with serving(full()) as server, new_tab(browser) as tab:
        await shown(tab, port_of(server))
        here = f"http://127.0.0.1:{port_of(server)}/"
        assert {url for url in tab.requested if not url.startswith("data:")} == {
            here,
            f"{here}status",
        }


async def test_the_documents_can_be_filtered(browser: str) -> None:
    async with serving(full()) as server, new_tab(browser) as tab:
        await shown(tab, port_of(server))
        for text, expected in (("/b", ["notes/b"]), ("zzz", []), ("", ["notes/a", "notes/b"])):
            await tab.evaluate(
                "(() => { const filter = document.querySelector('#filter');"
                f" filter.value = {json.dumps(text)};"
                " filter.dispatchEvent(new Event('input')); })()"
            )
            assert await rows(tab, "documents") == expected


async def enter(tab: Tab, token: str) -> None:
    await tab.evaluate(
        f"(() => {{ document.querySelector('#token').value = {json.dumps(token)};"
        " document.querySelector('#ask').requestSubmit(); })()"
    )


async def test_it_asks_for_the_token_and_keeps_it_nowhere(browser: str) -> None:
    relay = full()
    relay.settings = GUARDED
    async with serving(relay) as server, new_tab(browser) as tab:
        await tab.open(f"http://127.0.0.1:{port_of(server)}/")
        await tab.until("document.querySelector('#ask')?.hidden === false")
        assert "notes/a" not in await tab.text("body")
        for wrong in ("wrong", "wr\u00f6ng\u2028", " "):
            await enter(tab, wrong)
            await tab.until("document.querySelector('#ask-fault').innerText.includes('not this')")
            await tab.evaluate("document.querySelector('#ask-fault').textContent = ''")
        await enter(tab, TOKEN)
        await tab.until("document.querySelector('#status').hidden === false")
        assert await rows(tab, "documents") == ["notes/a", "notes/b"]
        kept = "[localStorage.length, sessionStorage.length, document.cookie, location.href]"
        assert await tab.evaluate(kept) == [0, 0, "", f"http://127.0.0.1:{port_of(server)}/"]
        assert TOKEN not in await tab.evaluate("document.documentElement.outerHTML")
        assert not any(TOKEN in url for url in tab.requested)
        await tab.open(f"http://127.0.0.1:{port_of(server)}/")
        await tab.until("document.querySelector('#ask')?.hidden === false")
        assert tab.faults == []


async def test_without_a_token_to_ask_for_it_says_why_there_is_nothing(browser: str) -> None:
    relay = full()
    relay.settings = replace(GUARDED, admin_token=None)
    async with serving(relay) as server, new_tab(browser) as tab:
        await tab.open(f"http://127.0.0.1:{port_of(server)}/")
        await tab.until("document.querySelector('#closed')?.hidden === false")
        assert "WALSTORE_RELAY_ADMIN_TOKEN" in await tab.text("#closed")


async def test_it_says_when_there_is_no_answer_and_goes_on_when_there_is(browser: str) -> None:
    relay = full()
    async with serving(relay) as server, new_tab(browser) as tab:
        await shown(tab, port_of(server))
        relay.is_log_lost = True
        await tab.until("document.querySelector('#state').dataset.state === 'lost'")
        assert await rows(tab, "documents") == ["notes/a", "notes/b"]
        relay.is_log_lost = False
        await tab.until("document.querySelector('#state').dataset.state === 'live'")
        relay.is_draining = True
        await tab.until("document.querySelector('#state').innerText.includes('shutting down')")


async def test_it_is_readable_in_the_light_and_in_the_dark(browser: str) -> None:
    pictures = os.environ.get("WALSTORE_PICTURES")
    async with serving(full()) as server, new_tab(browser) as tab:
        await tab.resize(1100, 820)
        seen = []
        for scheme in ("light", "dark"):
            await tab.prefer(scheme)
            await shown(tab, port_of(server))
            seen.append(await tab.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert await contrast(tab) > 7
            if pictures:
                Path(pictures, f"status-{scheme}.png").write_bytes(await tab.picture())
        assert seen[0] != seen[1]
        await tab.resize(380, 800)
        too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert await tab.evaluate(too_wide) is False
        if pictures:
            Path(pictures, "status-narrow.png").write_bytes(await tab.picture())


async def contrast(tab: Tab) -> float:
    """How much the text of a table stands out from what is behind it, as WCAG counts it."""
    colours: list[str] = await tab.evaluate(
        "[getComputedStyle(document.querySelector('td')).color,"
        " getComputedStyle(document.querySelector('section')).backgroundColor]"
    )
    light, dark = sorted((luminance(colour) for colour in colours), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    channels = [int(part) / 255 for part in colour.removeprefix("rgb(").rstrip(")").split(",")]
    red, green, blue = (
        channel / 12.92 if channel <= 0.03928 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
