// One measurement of one Node library: node worker.mjs ADAPTER WORKLOAD INPUTS MADE
//
// - Only the adapter beside this file knows the library; what it does not export is absent.
// - Timed by CPU time around the measured section only, as the Python worker does.
// - Prints one JSON object: figures by case and the digest of what was shown, or why it is absent.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { deflateSync } from "node:zlib";

const REPEATS_MAX = 5;
const REPEAT_MS_MAX = 1000;
const SIGNED_EDITS = 300;

class Absent extends Error {}

const [adapterName, workload, inputs, made] = process.argv.slice(2);
const library = await import(`./${adapterName}.mjs`);
let digest = "";

function ask(name) {
  if (!(name in library)) throw new Absent("not offered, or not compared");
  return library[name];
}

const lines = (name) =>
  readFileSync(join(inputs, `${name}.jsonl`), "utf8").trimEnd().split("\n").map((line) => JSON.parse(line));

const read = (name) => JSON.parse(readFileSync(join(inputs, `${name}.json`), "utf8"));

const wholeTrace = () => lines(`edits-${library.unit ?? "utf16"}`);

// A library whose edits cost too much for the whole trace names how many it is measured on.
const trace = () => wholeTrace().slice(0, library.editsMax);

function sizes(kind) {
  const names = readdirSync(inputs).filter((name) => name.startsWith(`${kind}-`));
  return [...new Set(names.map((name) => parseInt(name.split("-")[1])))].sort((a, b) => a - b);
}

function keep(name, parts) {
  mkdirSync(made, { recursive: true });
  const framed = parts.flatMap((part) => {
    const size = Buffer.alloc(4);
    size.writeUInt32LE(part.length);
    return [size, part];
  });
  writeFileSync(join(made, name), Buffer.concat(framed));
}

function kept(name) {
  const path = join(made, name);
  if (!existsSync(path)) throw new Absent(`it makes no ${name}`);
  const content = readFileSync(path);
  const parts = [];
  for (let at = 0; at < content.length; ) {
    const size = content.readUInt32LE(at);
    // A copy of its own: some libraries keep or misread a view into a larger buffer.
    parts.push(new Uint8Array(content.subarray(at + 4, at + 4 + size)));
    at += 4 + size;
  }
  return parts;
}

function check(text, edits) {
  digest = createHash("sha256").update(text, "utf8").digest("hex");
  if (edits !== undefined && read("expected")[edits] !== digest)
    throw new Error(`wrong text after ${edits} edits`);
}

function timed(work) {
  globalThis.gc();
  const start = process.cpuUsage();
  const result = work();
  const { user, system } = process.cpuUsage(start);
  return [(user + system) / 1000, result];
}

function timedOften(work) {
  let [spent, result] = timed(work);
  const samples = [spent];
  while (samples.length < REPEATS_MAX && samples.reduce((a, b) => a + b) < REPEAT_MS_MAX) {
    [spent, result] = timed(work);
    samples.push(spent);
  }
  samples.sort((a, b) => a - b);
  const middle = samples.length >> 1;
  return [samples.length % 2 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2, result];
}

function bursts(edits) {
  const grouped = [];
  for (const edit of edits) {
    if (edit[3]) grouped.push([]);
    grouped.at(-1).push(edit);
  }
  return grouped;
}

function localEdits() {
  const editEach = ask("editEach");
  const edits = trace();
  const [ms, text] = timed(() => library.text(editEach(edits)));
  check(text, edits.length);
  return { edit: (ms / edits.length) * 1000 };
}

function burstEdits() {
  const editBursts = ask("editBursts");
  const edits = trace();
  const grouped = bursts(edits);
  const [ms, text] = timed(() => library.text(editBursts(grouped)));
  check(text, edits.length);
  return { edit: (ms / edits.length) * 1000 };
}

function emittingEdits() {
  const editAndEmit = ask("editAndEmit");
  const edits = trace();
  const [ms, [document, messages]] = timed(() => editAndEmit(edits));
  check(library.text(document), edits.length);
  if (messages.length !== edits.length) throw new Error(`${messages.length} messages`);
  return { edit: (ms / edits.length) * 1000 };
}

async function signedEdits() {
  const edits = trace().slice(0, SIGNED_EDITS);
  const [send, receive] = await ask("signedExchange")(edits);
  const each = (ms) => (ms / edits.length) * 1000;
  return { send: each(send), receive: each(receive) };
}

function receivedMessages() {
  const receive = ask("receive");
  const messages = kept("messages").slice(0, library.messagesMax);
  const [ms, text] = timed(() => library.text(receive(messages)));
  check(text, messages.length);
  return { message: (ms / messages.length) * 1000 };
}

function wholeHistory() {
  const fromHistory = ask("fromHistory");
  const [history] = kept("history");
  const [ms, text] = timedOften(() => library.text(fromHistory(history)));
  check(text);
  return { history: ms };
}

function bytesNeeded() {
  const figures = {};
  for (const name of ["history", "snapshot", "shallow", "character"]) {
    if (!existsSync(join(made, name))) continue;
    const [content] = kept(name);
    figures[name] = content.length;
    if (name !== "character")
      figures[`${name} deflated`] = Math.min(deflateSync(content).length, content.length);
  }
  return figures;
}

function openedSnapshot() {
  const fromSnapshot = ask("fromSnapshot");
  const [snapshot] = kept("snapshot");
  const [ms, text] = timedOften(() => library.text(fromSnapshot(snapshot)));
  check(text);
  const figures = { shown: ms };
  if (existsSync(join(made, "shallow"))) {
    const [shallow] = kept("shallow");
    figures["shallow shown"] = timedOften(() => library.text(fromSnapshot(shallow)))[0];
  }
  if ("editOn" in library) {
    const edit = [text.length >> 1, 0, "x"];
    figures["first edit"] = timedOften(() => library.editOn(fromSnapshot(snapshot), [edit]))[0];
  }
  return figures;
}

function foldedOps(kind) {
  const fromOps = ask("fromOps");
  const figures = {};
  for (const size of sizes(kind)) {
    const ops = read(`${kind}-${size}`);
    const [ms, content] = timedOften(() => library.materialize(fromOps(ops)));
    check(content.text.join(""));
    figures[size] = ms;
  }
  return figures;
}

async function wholeValues() {
  const fromText = ask("fromText");
  const figures = {};
  for (const [name, [before, after]] of Object.entries(read("values"))) {
    if (library.valuesAbsent?.includes(name)) continue;
    const documents = [];
    while (documents.length < REPEATS_MAX) documents.push(await fromText(before));
    const [ms, changed] = timedOften(() => library.setText(documents.pop(), after));
    if (library.text(changed) !== after) throw new Error(`wrong text after ${name}`);
    figures[name] = ms;
  }
  return figures;
}

function concurrentMessages() {
  const receive = ask("receive");
  const messages = kept("concurrent");
  const [ms, text] = timed(() => library.text(receive(messages)));
  if (text !== Buffer.from(kept("concurrent-text")[0]).toString())
    throw new Error("a reader shows another text than the writers");
  return { trace: ms };
}

function randomEdits() {
  const editEach = ask("editEach");
  if (library.walks) throw new Absent("every edit costs as much as the document is long");
  const figures = {};
  for (const size of sizes("random")) {
    const edits = lines(`random-${size}`);
    const [ms, text] = timed(() => library.text(editEach(edits)));
    check(text);
    figures[size] = (ms / edits.length) * 1000;
  }
  return figures;
}

function growingDocument() {
  ask("growth");
  const figures = {};
  for (const size of sizes("growth")) {
    const document = library.editEach(lines(`growth-${size}-build`));
    const probe = lines(`growth-${size}-probe`);
    const [ms] = timed(() => library.editOn(document, probe));
    check(library.text(document));
    figures[size] = (ms / probe.length) * 1000;
  }
  return figures;
}

function make() {
  const document = library.fromOps ? makeFromOps() : makeByEdits();
  keep("snapshot", [library.snapshot(document)]);
  if (library.shallowSnapshot) keep("shallow", [library.shallowSnapshot(document)]);
  return {};
}

function makeFromOps() {
  const ops = read("history");
  keep("history", [Buffer.from(JSON.stringify(ops))]);
  return library.fromOps(ops);
}

function makeByEdits() {
  const edits = trace();
  const [document, messages] = ask("editAndEmit")(edits);
  keep("messages", messages);
  const typed = messages.filter((_, n) => edits[n][2].length === 1 && !edits[n][1]);
  typed.sort((a, b) => a.length - b.length);
  keep("character", [typed[typed.length >> 1]]);
  const whole = library.editsMax ? library.editBursts(bursts(wholeTrace())) : document;
  keep("history", [library.history(whole)]);
  return whole;
}

function makeConcurrent() {
  const replica = ask("replica");
  const replicas = new Map();
  const messages = [];
  for (const { agent, receive, edits } of lines("concurrent")) {
    let document = replicas.get(agent) ?? replica(agent);
    for (const number of receive) document = library.takeIn(document, messages[number]);
    const [changed, message] = library.change(document, inUtf16(library.text(document), edits));
    replicas.set(agent, changed);
    messages.push(message);
  }
  const reader = messages.reduce(library.takeIn, replicas.get(0));
  keep("concurrent", messages);
  keep("concurrent-text", [Buffer.from(library.text(reader))]);
  return {};
}

// The concurrent trace counts code points of a text that only the replica knows.
function inUtf16(text, edits) {
  const points = [...text];
  return edits.map(([position, deleted, inserted]) => {
    const before = points.slice(0, position).join("").length;
    const gone = points.splice(position, deleted, ...inserted).join("").length;
    return [before, gone, inserted];
  });
}

const WORKLOADS = {
  make,
  "make-concurrent": makeConcurrent,
  W1: localEdits,
  W1b: burstEdits,
  W1c: emittingEdits,
  W1s: signedEdits,
  W2: receivedMessages,
  W2m: wholeHistory,
  W3: bytesNeeded,
  W4: openedSnapshot,
  "W5-chain": () => foldedOps("chain"),
  "W5-shuffled": () => foldedOps("shuffled"),
  "W5-siblings": () => foldedOps("siblings"),
  "W5-scrambled": () => foldedOps("scrambled"),
  W6: wholeValues,
  W7: concurrentMessages,
  W8: randomEdits,
  growth: growingDocument,
};

try {
  const run = WORKLOADS[workload];
  if (!run) throw new Absent("memory is compared between Python libraries only");
  console.log(JSON.stringify({ figures: await run(), digest }));
} catch (error) {
  if (!(error instanceof Absent)) throw error;
  console.log(JSON.stringify({ absent: error.message }));
}
