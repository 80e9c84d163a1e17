// The ports of a document to a log and a snapshot on a relay, over one websocket.
//
// - docs/protocol.md says what the frames mean. Everything that is asked is answered under its ref;
//   what a relay says without being asked is passed over.
// - A snapshot that others have replaced meanwhile is written again, unless theirs covers more.
// - The canonical text of an element is made by the packages: a relay takes no other spelling.

import { createPrivateKey, sign } from "node:crypto";

const SNAPSHOT_SUFFIX = "__snapshot";
const PIECE_SIZE = 128 * 1024;
const PAGE_SIZE = 1000;
const ATTEMPTS_MAX = 8;

// What stands before the 32 bytes of an Ed25519 key in PKCS #8.
const PKCS8_PREFIX = Buffer.from("302e020100300506032b657004220420", "hex");

function signWith(privateKey, text) {
  const der = Buffer.concat([PKCS8_PREFIX, Buffer.from(privateKey, "hex")]);
  const key = createPrivateKey({ key: der, format: "der", type: "pkcs8" });
  return sign(null, Buffer.from(text), key).toString("base64");
}

class RefusedError extends Error {
  constructor(code, reason) {
    super(`${code}: ${reason}`);
    this.code = code;
  }
}

class Relay {
  constructor(socket) {
    this.socket = socket;
    this.refs = 0;
    this.waiting = new Map();
    this.hello = new Promise((resolve, reject) => {
      this.waiting.set("HELLO", { take: ([, hello]) => resolve(hello), fail: reject });
    });
    socket.on("message", (text) => this.receive(JSON.parse(text)));
    socket.on("error", (error) => this.fail(error));
    socket.on("close", (_, reason) => this.fail(new Error(`the relay has left: ${reason}`)));
  }

  receive(frame) {
    const [verb, ref] = frame;
    const waiting = this.waiting.get(verb === "HELLO" ? verb : ref);
    if (verb === "ERR") waiting?.fail(new RefusedError(frame[2], frame[3]));
    else waiting?.take(frame);
  }

  fail(error) {
    for (const { fail } of this.waiting.values()) fail(error);
  }

  // Ask, collect what comes under the ref, and answer with it once `isLast` says so.
  async ask(framesOf, isLast) {
    const ref = `r${(this.refs += 1)}`;
    try {
      return await new Promise((resolve, reject) => {
        const answers = [];
        const take = (frame) => {
          answers.push(frame);
          if (isLast(frame)) resolve(answers);
        };
        this.waiting.set(ref, { take, fail: reject });
        for (const text of framesOf(ref)) this.socket.send(text);
      });
    } finally {
      this.waiting.delete(ref);
    }
  }
}

export function relayPorts(load) {
  const relays = new Map();
  const sockets = [];

  async function connect(url, publicKey, privateKey, stableStringify) {
    const { WebSocket } = await load("ws");
    const relay = new Relay(new WebSocket(url));
    sockets.push(relay.socket);
    const { challenge } = await relay.hello;
    const proof = stableStringify({ challenge, key: publicKey, relay: new URL(url).host });
    const signature = signWith(privateKey, `walstore-auth-v1\n${proof}`);
    await relay.ask((ref) => [JSON.stringify(["AUTH", ref, publicKey, signature])], isOk);
    return relay;
  }

  async function open(url, publicKey, privateKey) {
    const { stableStringify } = await load("@drakkar.software/starfish-protocol");
    const name = `${url} ${publicKey}`;
    if (!relays.has(name)) relays.set(name, connect(url, publicKey, privateKey, stableStringify));
    const relay = await relays.get(name);
    return {
      transport: {
        append: (key, body) => append(relay, key, body, stableStringify(body.data)),
        pull: (key, checkpoint) => pull(relay, key, checkpoint),
      },
      snapshotStore: {
        read: async (key) => (await readSnapshot(relay, key)).document,
        write: (key, document) => writeSnapshot(relay, key, document.uptoTs, stableStringify(document)),
      },
    };
  }

  // Close all connections: nobody has a document open any more.
  function leave() {
    relays.clear();
    for (const socket of sockets.splice(0)) socket.terminate();
  }

  // Nobody waits for a connection when the calls are over.
  process.stdin.once("end", leave);
  return { open, leave };
}

const isOk = ([verb]) => verb === "OK";

async function append(relay, key, { authorPubkey, authorSignature }, data) {
  const size = Buffer.byteLength(data);
  const head = (ref) => JSON.stringify(["APPEND", ref, key, null, authorPubkey, authorSignature, size]);
  const [[, , { ts }]] = await relay.ask((ref) => [`${head(ref).slice(0, -1)},${data}]`], isOk);
  return { ts };
}

async function pull(relay, key, checkpoint) {
  const elements = [];
  let after = checkpoint;
  let isMore = true;
  while (isMore) {
    const asked = { after, limit: PAGE_SIZE };
    const frames = await relay.ask(
      (ref) => [JSON.stringify(["PULL", ref, key, asked])],
      ([verb]) => verb === "EOSE",
    );
    const [, , end] = frames.pop();
    for (const [, , rows, ...data] of frames) {
      rows.forEach(([ts, , authorPubkey, authorSignature], place) => {
        elements.push({ ts, data: data[place], authorPubkey, authorSignature });
      });
    }
    [after, isMore] = [end.ts, end.more];
  }
  return elements;
}

async function readSnapshot(relay, snapshotKey) {
  const key = snapshotKey.slice(0, -SNAPSHOT_SUFFIX.length);
  const pieces = await relay.ask(
    (ref) => [JSON.stringify(["SNAPSHOT", ref, key, {}])],
    ([, , , , isLast]) => isLast,
  );
  const revision = pieces[0][2];
  const text = pieces.map(([, , , piece]) => piece).join("");
  return { revision, document: revision === null ? null : JSON.parse(text) };
}

async function writeSnapshot(relay, snapshotKey, uptoTs, text) {
  for (let attempt = 1; ; attempt += 1) {
    const { revision, document } = await readSnapshot(relay, snapshotKey);
    if (document?.uptoTs > uptoTs) return;
    try {
      await replaceSnapshot(relay, snapshotKey, revision, text);
      return;
    } catch (error) {
      if (error.code !== "conflict" || attempt === ATTEMPTS_MAX) throw error;
    }
  }
}

async function replaceSnapshot(relay, snapshotKey, revision, text) {
  const key = snapshotKey.slice(0, -SNAPSHOT_SUFFIX.length);
  const starts = Array.from({ length: Math.ceil(text.length / PIECE_SIZE) }, (_, at) => at * PIECE_SIZE);
  await relay.ask(
    (ref) =>
      starts.map((start) => {
        const piece = text.slice(start, start + PIECE_SIZE);
        return JSON.stringify(["PUT", ref, key, null, revision, piece, start + PIECE_SIZE >= text.length]);
      }),
    isOk,
  );
}
