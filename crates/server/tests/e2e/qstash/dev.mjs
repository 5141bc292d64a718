// `QSTASH_DEV=true` and nothing else: the SDK looks for a server on the port for development, and uses it.

import { strict as assert } from "node:assert";
import http from "node:http";
import https from "node:https";
import { createRequire, syncBuiltinESMExports } from "node:module";

// Where it finds none, the SDK would fetch the vendor's own and start it: here that is a failure instead.
https.get = (url) => {
  throw new Error(`the server was not found: the SDK asks for ${url}`);
};
syncBuiltinESMExports();

const { Client, Receiver } = createRequire(`${process.env.QSTASH_PACKAGES}/here.js`)("@upstash/qstash");

// Started by hand: whoever develops has neither a URL nor a token nor keys.
for (const name of ["QSTASH_URL", "QSTASH_TOKEN", "QSTASH_CURRENT_SIGNING_KEY"]) {
  assert.equal(process.env[name], undefined, name);
}
assert.equal(process.env.QSTASH_DEV, "true");

const server = http.createServer();
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${server.address().port}/dev?x=1`;
const delivered = new Promise((resolve) => {
  server.on("request", async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    response.end();
    resolve({ headers: request.headers, body: Buffer.concat(chunks).toString() });
  });
});

const client = new Client();
const { messageId } = await client.publishJSON({ url, body: { dev: true } });
const { headers, body } = await delivered;
assert.equal(headers["upstash-message-id"], messageId);
assert.equal(await new Receiver().verify({ signature: headers["upstash-signature"], body, url }), true);
console.log("ok      the server was found, and its delivery is signed with the keys for development");
process.exit(0);
