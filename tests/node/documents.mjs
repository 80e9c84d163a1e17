// Answers calls on the published document class, and keeps the log that both sides share.
//
// - Logs and snapshots live here, as JSON text, so that nothing is shared by reference and every
//   element passes through a JavaScript store on its way to a reader.
// - As the stock server does, a log stores an element that it holds already once more.
// - A fault is asked for by name and meets one append, wherever the log is: "lost" stores and loses
//   the answer, "refused" does not store. The document that meets it answers `{failed}`.
// - Keys move while documents are open: `rekey` replaces what the encryptor of a document holds.

const FAULTS = {
  lost: { stores: true },
  refused: { stores: false },
};

class Log {
  constructor() {
    this.elements = [];
    this.snapshot = null;
    this.revision = 0;
  }

  append({ data, authorPubkey, authorSignature }) {
    const ts = this.elements.length + 1;
    this.elements.push(JSON.stringify({ ts, data, authorPubkey, authorSignature }));
    return ts;
  }

  pull(checkpoint) {
    return this.elements.slice(checkpoint).map((text) => JSON.parse(text));
  }

  readSnapshot() {
    return this.snapshot && JSON.parse(this.snapshot);
  }

  writeSnapshot(document) {
    this.snapshot = JSON.stringify(document);
    this.revision += 1;
  }
}

export function documentCalls({ wal, walClient, keyrings, describe, httpPorts, relayPorts }) {
  const logs = new Map();
  const documents = new Map();

  function logOf(key) {
    if (!logs.has(key)) logs.set(key, new Log());
    return logs.get(key);
  }

  function find(handle) {
    if (!documents.has(handle)) throw new Error(`no document ${handle}`);
    return documents.get(handle);
  }

  async function encryptorOf({ keyring, kemPublic, kemPrivate, trustedAdders }) {
    const recipient = { kemPubHex: kemPublic, kemPrivHex: kemPrivate };
    const keyed = await keyrings.createKeyringEncryptor(keyring, recipient, { trustedAdders });
    return walClient.walEncryptorFromKeyring(keyed);
  }

  function ownPorts(log) {
    return {
      transport: {
        append: async (_, body) => ({ ts: log.append(body) }),
        pull: async (_, checkpoint) => log.pull(checkpoint),
      },
      snapshotStore: {
        read: async () => log.readSnapshot(),
        write: async (_, document) => log.writeSnapshot(document),
      },
    };
  }

  // What is sent meets the fault that was asked for.
  function faulty(transport, held) {
    return {
      append: async (key, body) => {
        const { fault } = held;
        if (!fault) return transport.append(key, body);
        if (FAULTS[fault].stores) await transport.append(key, body);
        throw new Error(fault);
      },
      pull: (key, checkpoint) => transport.pull(key, checkpoint),
    };
  }

  async function attempt(held, act) {
    try {
      return { ts: (await act())?.ts ?? null };
    } catch (error) {
      if (!held.fault || error.message !== held.fault) throw error;
      return { failed: error.message };
    } finally {
      held.fault = null;
    }
  }

  return {
    appendElement: ({ key, body }) => logOf(key).append(body),

    pullElements: ({ key, checkpoint }) => logOf(key).pull(checkpoint),

    readSnapshot: ({ key }) => {
      const log = logOf(key);
      return { document: log.readSnapshot(), revision: String(log.revision) };
    },

    // `revision` is the one to replace.
    writeSnapshot: ({ key, document, revision }) => {
      const log = logOf(key);
      if (String(log.revision) !== revision) return false;
      log.writeSnapshot(document);
      return true;
    },

    createKeyring: async ({ adder, recipients }) =>
      (await keyrings.createKeyring(adder, recipients.map((subKemHex) => ({ subKemHex })))).keyring,

    rotateKeyring: async ({ keyring, adder, recipients }) =>
      (await keyrings.rotateEpoch(keyring, adder, recipients.map((subKemHex) => ({ subKemHex })))).keyring,

    // `server` or `relay` is where the log is; without either, the log is here.
    openDocument: async ({ handle, key, publicKey, privateKey, sealing, writers, roles, server, relay, ...options }) => {
      const portsOf = () => {
        if (server) return httpPorts(server, privateKey);
        if (relay) return relayPorts.open(relay, publicKey, privateKey);
        return ownPorts(logOf(key));
      };
      const held = { fault: null, encryptor: sealing ? await encryptorOf(sealing) : wal.noopEncryptor };
      const { transport, snapshotStore } = await portsOf();
      held.document = new wal.WalDocument({
        documentKey: key,
        transport: faulty(transport, held),
        snapshotStore,
        signer: wal.createEd25519Signer(publicKey, privateKey),
        encryptor: {
          seal: (plain) => held.encryptor.seal(plain),
          open: (sealed) => held.encryptor.open(sealed),
        },
        isAuthorizedWriter: (author) => writers.includes(author),
        isSnapshotAuthor: (author) => roles.includes(author),
        ...options,
      });
      await held.document.open();
      documents.set(handle, held);
      return true;
    },

    rekey: async ({ handle, sealing }) => {
      find(handle).encryptor = await encryptorOf(sealing);
      return true;
    },

    // Each edit is the name of a method and its arguments.
    editDocument: ({ handle, edits }) => {
      const { document } = find(handle);
      for (const [method, ...args] of edits) document[method](...args);
      return true;
    },

    commitDocument: ({ handle, fault }) => {
      const held = find(handle);
      held.fault = fault;
      return attempt(held, () => held.document.commit());
    },

    pullDocument: ({ handle }) => find(handle).document.pull(),

    snapshotDocument: ({ handle }) => find(handle).document.snapshot(),

    materializeDocument: ({ handle }) => find(handle).document.materialize(),

    describeDocument: ({ handle }) => {
      const { document } = find(handle);
      return {
        ...describe(document.crdt),
        gaps: document.detectedGaps(),
        snapshotVerified: document.snapshotVerified,
        checkpoint: document.currentCheckpoint,
      };
    },

    forgetDocuments: () => {
      documents.clear();
      logs.clear();
      relayPorts.leave();
      return true;
    },
  };
}
