// @automerge/automerge: change() is a transaction and gives a new document.

import * as Automerge from "@automerge/automerge";

// An edit takes a tenth of a millisecond; a received change as long as the document is large.
export const editsMax = 20000;
export const messagesMax = 2000;

const PATH = ["text"];

// Replicas must share the change that makes the text, in every process.
const ORIGIN = Automerge.getLastLocalChange(
  Automerge.change(Automerge.init({ actor: "00" }), { time: 0 }, (draft) => {
    draft.text = "";
  }),
);

function start(actor) {
  return Automerge.applyChanges(Automerge.init({ actor }), [ORIGIN])[0];
}

export const text = (document) => document.text;

function edit(document, [position, deleted, inserted]) {
  return Automerge.change(document, (draft) => Automerge.splice(draft, PATH, position, deleted, inserted));
}

export function editEach(edits) {
  let document = start("01");
  for (const one of edits) document = edit(document, one);
  return document;
}

export const editOn = (document, edits) => edits.reduce(edit, document);

export function editBursts(bursts) {
  let document = start("01");
  for (const burst of bursts)
    document = Automerge.change(document, (draft) => {
      for (const [position, deleted, inserted] of burst)
        Automerge.splice(draft, PATH, position, deleted, inserted);
    });
  return document;
}

export function editAndEmit(edits) {
  let document = start("01");
  const messages = [];
  for (const one of edits) {
    document = edit(document, one);
    messages.push(Automerge.getLastLocalChange(document));
  }
  return [document, messages];
}

export function receive(messages) {
  let document = start("02");
  for (const message of messages) document = Automerge.applyChanges(document, [message])[0];
  return document;
}

export const history = (document) => Automerge.save(document);
export const fromHistory = (content) => Automerge.load(content);
export const snapshot = history;
export const fromSnapshot = fromHistory;

export const fromText = (content) => editEach([[0, 0, content]]);

export const setText = (document, content) =>
  Automerge.change(document, (draft) => Automerge.updateText(draft, PATH, content));
