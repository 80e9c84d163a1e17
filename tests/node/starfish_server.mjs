// Runs the published server on the loopback interface, and calls it with the published client.
//
// - The server is the stock one, with its own capability check; only the way from node's HTTP
//   server to its `fetch` is made here.
// - Packages are loaded on the first call, so that who compares folds alone does not wait for them.
// - Everything is kept in memory, and ends with the process.

import { createServer } from "node:http";

async function bodyOf(incoming) {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function toRequest(incoming) {
  const { method, url, headers } = incoming;
  const body = method === "GET" ? undefined : await bodyOf(incoming);
  return new Request(`http://${headers.host}${url}`, { method, headers, body });
}

async function answer(app, incoming, outgoing) {
  const response = await app.fetch(await toRequest(incoming));
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.end(Buffer.from(await response.arrayBuffer()));
}

function listen(server) {
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server.address().port)));
}

export function serverCalls(load) {
  const servers = new Map();

  return {
    // `config` is that of the server, `mount` where its router is, `bodyBytesMax` the largest body
    // that the capability check lets pass; answers where it listens.
    startServer: async ({ config, mount, bodyBytesMax }) => {
      const { Hono } = await load("hono");
      const starfish = await load("@drakkar.software/starfish-server");
      const router = starfish.createSyncRouter({
        store: new starfish.MemoryObjectStore(new Map()),
        config: starfish.parseConfigJson(JSON.stringify(config)),
        roleResolver: starfish.createCapCertRoleResolver({
          nonceCache: starfish.createInMemoryNonceCache(),
          revocationStore: starfish.createInMemoryRevocationStore(),
          maxBodyBytes: bodyBytesMax,
        }),
      });
      const app = new Hono().route(mount, router);
      // Each call leaves a timer of five seconds in the router, which nobody has to wait for.
      process.stdin.once("end", () => process.exit());
      const server = createServer((incoming, outgoing) => answer(app, incoming, outgoing));
      const url = `http://127.0.0.1:${await listen(server)}`;
      servers.set(url, server);
      return url;
    },

    stopServer: ({ url }) => {
      servers.get(url).close();
      servers.get(url).closeAllConnections();
      return servers.delete(url);
    },
  };
}

// The ports of a document to a log and a snapshot on a server.
export function httpPorts(load, walClient) {
  return async ({ url, capability }, privateKey) => {
    const { StarfishClient } = await load("@drakkar.software/starfish-client");
    const capProvider = { getCap: async () => ({ cap: capability, devEdPrivHex: privateKey }) };
    const client = new StarfishClient({ baseUrl: url, capProvider });
    return {
      transport: walClient.createWalTransport(client),
      snapshotStore: walClient.createWalSnapshotStore(client),
    };
  };
}
