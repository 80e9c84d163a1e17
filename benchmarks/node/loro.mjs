// loro-crdt: commit ends a transaction; updates come from the local-update subscription.

import { LoroDoc } from "loro-crdt";

export const growth = true;

export const text = (document) => document.getText("text").toString();

function edit(shown, [position, deleted, inserted]) {
  if (deleted) shown.delete(position, deleted);
  if (inserted) shown.insert(position, inserted);
}

export function editOn(document, edits) {
  const shown = document.getText("text");
  for (const one of edits) {
    edit(shown, one);
    document.commit();
  }
}

export function editEach(edits) {
  const document = new LoroDoc();
  editOn(document, edits);
  return document;
}

export function editBursts(bursts) {
  const document = new LoroDoc();
  const shown = document.getText("text");
  for (const burst of bursts) {
    for (const one of burst) edit(shown, one);
    document.commit();
  }
  return document;
}

export function editAndEmit(edits) {
  const document = new LoroDoc();
  const messages = [];
  const unsubscribe = document.subscribeLocalUpdates((update) => messages.push(update));
  editOn(document, edits);
  unsubscribe();
  return [document, messages];
}

export function receive(messages) {
  const document = new LoroDoc();
  for (const message of messages) document.import(message);
  return document;
}

export const history = (document) => document.export({ mode: "update" });
export const fromHistory = (content) => receive([content]);
export const snapshot = (document) => document.export({ mode: "snapshot" });
export const fromSnapshot = fromHistory;
export const shallowSnapshot = (document) =>
  document.export({ mode: "shallow-snapshot", frontiers: document.oplogFrontiers() });

export function replica(number) {
  const document = new LoroDoc();
  document.setPeerId(BigInt(number + 1));
  return document;
}

export function change(document, edits) {
  const before = document.oplogVersion();
  editOn(document, edits);
  return [document, document.export({ mode: "update", from: before })];
}

export function takeIn(document, message) {
  document.import(message);
  return document;
}

export const fromText = (content) => editEach([[0, 0, content]]);

export function setText(document, content) {
  document.getText("text").update(content);
  document.commit();
  return document;
}
