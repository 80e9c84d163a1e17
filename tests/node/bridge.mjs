// Answers calls on the published JavaScript packages, one JSON line each.
//
// - argv[2] is the folder that holds node_modules; packages are found there, not beside this file.
// - A request is {"id", "call", "args"}; the answer {"id", "result"} or {"id", "error"}.
// - Everything that is compared byte for byte is canonical text made by the packages themselves.
// - An empty element id makes the package's list walk endless, so it is refused here.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

import { documentCalls } from "./documents.mjs";
import { relayPorts } from "./relay.mjs";
import { httpPorts, serverCalls } from "./starfish_server.mjs";

const root = process.argv[2];

async function load(name, entry = ".") {
  const folder = join(root, "node_modules", name);
  const { exports } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  return import(pathToFileURL(join(folder, exports[entry].import)));
}

const wal = await load("@drakkar.software/starfish-wal");
const walClient = await load("@drakkar.software/starfish-wal", "./client");
const keyrings = await load("@drakkar.software/starfish-keyring");
const { stableStringify } = await load("@drakkar.software/starfish-protocol");

function byClockThenId(left, right) {
  return wal.compareClocks(left.clock, right.clock) || wal.compareCodePoints(left.id, right.id);
}

function refuseEmptyIds(entries) {
  for (const { id } of entries) {
    if (id === "") throw new Error("an empty element id never ends");
  }
}

function describe(crdt) {
  const state = crdt.exportState();
  const sorted = Object.entries(state.lists).map(([name, nodes]) => [name, [...nodes].sort(byClockThenId)]);
  const names = crdt.listNames();
  return {
    state: stableStringify(state),
    canonical: stableStringify({ regs: state.regs, lists: Object.fromEntries(sorted) }),
    materialize: stableStringify(crdt.materialize()),
    texts: names.map((name) => [name, crdt.text(name)]),
    ids: names.map((name) => [name, crdt.listIds(name)]),
  };
}

const calls = {
  ping: () => "pong",

  // Fold ops in the order given, onto a version-1 state if there is one.
  fold({ state, ops }) {
    refuseEmptyIds(ops);
    const crdt = new wal.WalCrdt();
    if (state) {
      Object.values(state.lists).forEach(refuseEmptyIds);
      crdt.importState(state);
    }
    crdt.fold(ops);
    return describe(crdt);
  },

  // The version-1 state after some ops, as a snapshot would carry it.
  export({ ops }) {
    refuseEmptyIds(ops);
    const crdt = new wal.WalCrdt();
    crdt.fold(ops);
    return crdt.exportState();
  },

  // For the test of the time-out.
  never: () => new Promise(() => {}),

  ...serverCalls(load),
  ...documentCalls({
    wal,
    walClient,
    keyrings,
    describe,
    httpPorts: httpPorts(load, walClient),
    relayPorts: relayPorts(load),
  }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, call, args } = JSON.parse(line);
  let answer;
  try {
    if (!Object.hasOwn(calls, call)) throw new Error(`no call ${call}`);
    answer = { id, result: await calls[call](args) };
  } catch (error) {
    answer = { id, error: String(error?.stack ?? error) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
