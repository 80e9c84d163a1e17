// @drakkar.software/starfish-wal: the fold of version-1 operations, and the document over it.

import { generateKeyPairSync } from "node:crypto";
import { WalCrdt, WalDocument, createEd25519Signer } from "@drakkar.software/starfish-wal";

export const unit = "points";

// Each local edit walks the whole list.
export const editsMax = 2000;
export const walks = true;

// It compares every character with every other: minutes and gigabytes for 20,000.
export const valuesAbsent = ["scattered"];

const KEY = "bench";
const LIST = "text";

function newSigner() {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const hex = (key, part) => Buffer.from(key.export({ format: "jwk" })[part], "base64url").toString("hex");
  return createEd25519Signer(hex(publicKey, "x"), hex(privateKey, "d"));
}

async function newDocument(log = []) {
  const transport = {
    append: async (_key, body) => ({ ts: log.push({ ...body, ts: log.length + 1 }) }),
    pull: async (_key, checkpoint) => log.slice(checkpoint),
  };
  const document = new WalDocument({ documentKey: KEY, transport, signer: newSigner() });
  await document.open();
  return document;
}

const fresh = await newDocument();

function edit(document, [position, deleted, inserted]) {
  for (let n = 0; n < deleted; n++) document.removeAt(LIST, position);
  if (inserted) document.insertText(LIST, position, inserted);
}

export const text = (document) => document.text(LIST);

export function editEach(edits) {
  for (const one of edits) edit(fresh, one);
  return fresh;
}

export async function signedExchange(edits) {
  const log = [];
  const writer = await newDocument(log);
  const reader = await newDocument(log);
  const spent = [0, 0];
  for (const one of edits) {
    let start = process.cpuUsage();
    edit(writer, one);
    await writer.commit();
    spent[0] += cpuMs(start);
    start = process.cpuUsage();
    await reader.pull();
    spent[1] += cpuMs(start);
  }
  if (reader.text(LIST) !== writer.text(LIST)) throw new Error("the reader shows another text");
  return spent;
}

function cpuMs(start) {
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1000;
}

export function fromOps(ops) {
  const crdt = new WalCrdt();
  crdt.fold(ops);
  return crdt;
}

export const materialize = (crdt) => crdt.materialize();
export const fromHistory = (content) => fromOps(JSON.parse(Buffer.from(content).toString()));
export const snapshot = (crdt) => Buffer.from(JSON.stringify(crdt.exportState()));

export function fromSnapshot(content) {
  const crdt = new WalCrdt();
  crdt.importState(JSON.parse(Buffer.from(content).toString()));
  return crdt;
}

// Typing a large text would take minutes and signing it seconds: its characters go straight in.
export async function fromText(content) {
  const document = await newDocument();
  const r = `${"a1".repeat(32)}:0`;
  const id = (c) => (c ? `${c}@${r}` : "");
  const ops = [...content].map((value, n) => ({
    t: "ins",
    list: LIST,
    id: id(n + 1),
    after: id(n),
    clock: { c: n + 1, r },
    value,
  }));
  document.crdt.fold(ops);
  document.clock.observe({ c: ops.length, r });
  return document;
}

export function setText(document, content) {
  document.setText(LIST, content);
  return document;
}
