// yjs: every call outside a transaction is one; updates come from the "update" event.

import * as Y from "yjs";

export const text = (document) => document.getText("text").toString();

export function editOn(document, edits) {
  const shown = document.getText("text");
  for (const [position, deleted, inserted] of edits) {
    if (deleted && inserted)
      document.transact(() => {
        shown.delete(position, deleted);
        shown.insert(position, inserted);
      });
    else if (deleted) shown.delete(position, deleted);
    else shown.insert(position, inserted);
  }
}

export function editEach(edits) {
  const document = new Y.Doc();
  editOn(document, edits);
  return document;
}

export function editBursts(bursts) {
  const document = new Y.Doc();
  for (const burst of bursts) document.transact(() => editOn(document, burst));
  return document;
}

export function editAndEmit(edits) {
  const document = new Y.Doc();
  const messages = [];
  document.on("update", (update) => messages.push(update));
  editOn(document, edits);
  return [document, messages];
}

export function receive(messages) {
  const document = new Y.Doc();
  for (const message of messages) Y.applyUpdate(document, message);
  return document;
}

// The second encoding is the smaller one; single messages are smaller in the first.
export const history = (document) => Y.encodeStateAsUpdateV2(document);
export const snapshot = history;

export function fromHistory(content) {
  const document = new Y.Doc();
  Y.applyUpdateV2(document, content);
  return document;
}
export const fromSnapshot = fromHistory;

export function replica(number) {
  const document = new Y.Doc();
  document.clientID = number + 1;
  return document;
}

export function change(document, edits) {
  // A difference of states repeats every deletion so far; the event has this one's alone.
  let message;
  document.once("update", (update) => (message = update));
  document.transact(() => editOn(document, edits));
  return [document, message];
}

export function takeIn(document, message) {
  Y.applyUpdate(document, message);
  return document;
}
