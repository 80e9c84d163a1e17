"use strict";
// Everything shown here was chosen by strangers: it is only ever set as text, never as markup.
(() => {
  const INTERVAL_MS = 2000;
  const PATIENCE_MS = 10000;
  const find = (id) => document.getElementById(id);
  const numbers = new Intl.NumberFormat("en");
  let token = null;
  let before = null;
  let last = null;

  function bytes(count) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
    return `${count.toFixed(unit === 0 || count >= 100 ? 0 : 1)} ${units[unit]}`;
  }

  function ago(ms, now) {
    if (!ms) return "never";
    const seconds = Math.max(0, Math.round((now - ms) / 1000));
    if (seconds < 5) return "just now";
    for (const [size, unit] of [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]]) {
      const count = Math.floor(seconds / size);
      if (count) return `${count} ${unit}${count > 1 ? "s" : ""} ago`;
    }
  }

  function set(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }

  function show(state, text) {
    find("state").dataset.state = state;
    set(find("state-text"), text);
  }

  function only(id) {
    for (const each of ["ask", "closed", "status"]) find(each).hidden = each !== id;
  }

  // Rows are kept and changed in place, so that what somebody has selected stays selected.
  function fill(body, rows, { mark }) {
    const known = new Map(Array.from(body.rows, (row) => [row.dataset.key, row]));
    const wanted = rows.map(({ key, title, cells, version }) => {
      const row = known.get(key) || newRow(key, cells);
      cells.forEach(([text], place) => set(row.cells[place].firstChild, text));
      row.cells[0].title = title;
      if (mark && known.has(key) && row.dataset.version !== version) {
        row.classList.remove("changed");
        void row.offsetWidth;
        row.classList.add("changed");
      }
      row.dataset.version = version;
      return row;
    });
    if (wanted.length !== body.rows.length || wanted.some((row, at) => row !== body.rows[at])) {
      body.replaceChildren(...wanted);
    }
  }

  function newRow(key, cells) {
    const row = document.createElement("tr");
    row.dataset.key = key;
    for (const [, kind] of cells) {
      const cell = row.insertCell();
      if (kind) cell.className = kind;
      cell.append(document.createElement("bdi"));
    }
    return row;
  }

  function showDocuments(status, now) {
    const filter = find("filter").value;
    const matching = status.documents.filter((each) => each.document.includes(filter));
    fill(find("documents"), matching.map((each) => ({
      key: each.document,
      title: each.document,
      version: `${each.head} ${each.snapshots}`,
      cells: [
        [each.document, "code"],
        [numbers.format(each.elements), "number"],
        [bytes(each.payload_bytes), "number"],
        [numbers.format(each.snapshots), "number"],
        [ago(each.last_accepted_ms, now), ""],
      ],
    })), { mark: true });
    const unlisted = status.documents_total - status.documents.length;
    set(find("documents-note"),
      status.documents.length === 0 ? "No documents yet."
        : matching.length === 0 ? "No document's key contains this."
          : unlisted > 0 ? `and ${numbers.format(unlisted)} that changed longer ago` : "");
  }

  function showConnections(status, now) {
    fill(find("connections"), status.connections.map((each) => ({
      key: each.peer,
      title: `${each.peer} ${each.address}`,
      version: "",
      cells: [
        [`${each.peer} · ${each.address}`, ""],
        [each.keys.map((key) => key.slice(0, 8)).join(" ") || "none", "code"],
        [numbers.format(each.subscriptions), "number"],
        [bytes(each.pending_bytes), "number"],
        [numbers.format(each.in_flight), "number"],
        [ago(each.connected_ms, now), ""],
      ],
    })), { mark: false });
    const unlisted = status.connections_total - status.connections.length;
    set(find("connections-note"),
      status.connections.length === 0 ? "Nobody is connected."
        : unlisted > 0 ? `and ${numbers.format(unlisted)} more` : "");
  }

  function showRetention(retention) {
    const list = find("retention");
    const text = JSON.stringify(retention);
    if (list.dataset.shown === text) return;
    list.dataset.shown = text;
    list.replaceChildren(...Object.entries(retention).flatMap(([name, value]) => {
      const term = document.createElement("dt");
      const said = document.createElement("dd");
      term.textContent = name.replaceAll("_", " ");
      said.textContent = value === null ? "off"
        : typeof value === "object" ? JSON.stringify(value) : String(value);
      return [term, said];
    }));
  }

  function showAll(status) {
    const now = Date.now();
    document.title = status.name;
    set(find("name"), status.name);
    set(find("about"), `walstore ${status.version} · started ${ago(status.started_ms, now)}`);
    set(find("documents-total"), numbers.format(status.documents_total));
    set(find("connections-total"), numbers.format(status.connections_total));
    set(find("head"), numbers.format(status.head_seq));
    set(find("min"), numbers.format(status.min_seq));
    set(find("pending"), bytes(status.pending_bytes));
    if (before) {
      const rate = (status.head_seq - before.head) * 1000 / Math.max(1, now - before.at);
      set(find("rate"), `${numbers.format(Math.max(0, Math.round(rate)))} per second`);
    }
    before = { head: status.head_seq, at: now };
    showDocuments(status, now);
    showConnections(status, now);
    showRetention(status.retention);
    only("status");
    show(status.is_draining ? "lost" : "live", status.is_draining ? "shutting down" : "live");
  }

  function askForToken(fault) {
    show("waiting", "locked");
    set(find("ask-fault"), fault);
    if (find("ask").hidden) {
      only("ask");
      find("token").focus();
    }
  }

  async function look() {
    const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
    const response = await fetch("status", {
      headers, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(PATIENCE_MS),
    });
    if (response.ok) {
      last = await response.json();
      showAll(last);
      return true;
    }
    if (response.status === 401) {
      askForToken(token === null ? "" : "That is not this relay's token.");
      token = null;
      return false;
    }
    if (response.status === 503 && token === null && last === null) {
      only("closed");
      show("waiting", "closed");
      return false;
    }
    throw new Error(`status ${response.status}`);
  }

  async function follow() {
    let goOn = true;
    while (goOn) {
      try {
        if (!document.hidden || last === null) goOn = await look();
      } catch {
        show("lost", "no answer, trying again");
      }
      if (goOn) await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
    }
  }

  find("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    // A header takes no other characters, and no token has them.
    token = find("token").value.replace(/[^!-~]/g, "") || "-";
    find("token").value = "";
    follow();
  });
  find("filter").addEventListener("input", () => { if (last) showDocuments(last, Date.now()); });
  follow();
})();
