// What the JavaScript programs stand on: the published SDK, a destination that keeps what it hears and
// checks every signature with the SDK's own Receiver, and a runner for cases.
//
//   QSTASH_URL=… QSTASH_TOKEN=… QSTASH_PACKAGES=target/qstash-packages node publish.mjs [part of a case's name]
//
// The cases of a program run at the same time; each has destinations of its own. Nothing here sleeps to let
// something happen: it looks again and again, and gives up after a long while. That something does not
// happen is shown by another message that is due later and has arrived.

import { strict as assert } from "node:assert";
import http from "node:http";
import { createRequire } from "node:module";

const sdk = createRequire(`${process.env.QSTASH_PACKAGES}/here.js`)("@upstash/qstash");

export { assert };
export const { Client, QstashError, Receiver, SignatureError } = sdk;
export const URL_OF_SERVER = process.env.QSTASH_URL;
export const TOKEN = process.env.QSTASH_TOKEN;

// Far longer than anything takes on a busy machine.
const PATIENCE_MS = 60_000;
const LOOK_EVERY_MS = 20;

export const client = new Client({ baseUrl: URL_OF_SERVER, token: TOKEN });

const after = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Looks until there is something to see, and returns it. */
export async function until(what, look, patience = PATIENCE_MS) {
  const end = Date.now() + patience;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > end) throw new Error(`waited in vain: ${what}`);
    await after(LOOK_EVERY_MS);
  }
}

/** A request that the SDK has no method for, or that must be exactly so. */
export async function api(method, path, { headers = {}, body, token = TOKEN } = {}) {
  const authorization = token ? { authorization: `Bearer ${token}` } : {};
  const options = { method, headers: { ...authorization, ...headers }, body };
  const answer = await fetch(URL_OF_SERVER + path, options);
  const text = await answer.text();
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    json = undefined;
  }
  return { status: answer.status, text, json };
}

/** The keys as they are now. */
export async function receiver() {
  const { status, json } = await api("GET", "/v2/keys");
  assert.equal(status, 200);
  return new Receiver({ currentSigningKey: json.current, nextSigningKey: json.next });
}

/** What a call throws, which must be an answer of the server with this status; returns its text. */
export async function refused(status, call) {
  const error = await call.then(
    (answer) => assert.fail(`was taken: ${JSON.stringify(answer)}`),
    (error) => error,
  );
  assert.ok(error instanceof QstashError, String(error.stack));
  assert.equal(error.status, status, error.message);
  const body = JSON.parse(error.message);
  assert.equal(typeof body.error, "string", error.message);
  return body.error;
}

/** A door: whoever waits at it goes on when it is opened. */
export function door() {
  let open;
  const opened = new Promise((resolve) => (open = resolve));
  return { open, opened };
}

/**
 * A destination on a free port.
 *
 * A reply is `{status, headers, body, when}`; `when` is a promise that it waits for. Replies of a path are
 * given in order, the last one for good; without any it is 200.
 */
export class Sink {
  heard = [];
  #replies = new Map();
  #verifier;
  #inFlight = 0;
  mostInFlight = 0;

  static async start({ verifier } = {}) {
    const sink = new Sink();
    sink.#verifier = verifier === undefined ? await receiver() : verifier;
    sink.server = http.createServer((request, response) => sink.#take(request, response));
    await new Promise((resolve) => sink.server.listen(0, "127.0.0.1", resolve));
    sink.origin = `http://127.0.0.1:${sink.server.address().port}`;
    return sink;
  }

  url(path) {
    return this.origin + path;
  }

  replies(path, ...replies) {
    this.#replies.set(path, replies);
  }

  /** Everything heard at a path, whatever the query. */
  at(path) {
    return this.heard.filter((request) => request.path === path);
  }

  /** Waits for a number of requests at a path; all of them must be signed. */
  async hears(path, count = 1, patience = PATIENCE_MS) {
    const enough = () => (this.at(path).length >= count ? this.at(path) : undefined);
    const heard = await until(`${count} at ${path}`, enough, patience);
    await Promise.all(heard.map((request) => request.verified));
    return heard;
  }

  async #take(request, response) {
    const at = Date.now();
    this.#inFlight += 1;
    this.mostInFlight = Math.max(this.mostInFlight, this.#inFlight);
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const bytes = Buffer.concat(chunks);
    const path = request.url.split("?")[0];
    const { method, url, headers } = request;
    const heard = { method, url, path, headers, bytes, body: bytes.toString(), at };
    heard.verified = this.#verify(heard);
    // Whoever waits for it hears of it; until then it is nobody's failure.
    heard.verified.catch(() => {});
    this.heard.push(heard);
    const replies = this.#replies.get(path) ?? [{}];
    const reply = replies.length > 1 ? replies.shift() : replies[0];
    await reply.when;
    if (reply.after) await after(reply.after);
    this.#inFlight -= 1;
    response.writeHead(reply.status ?? 200, reply.headers);
    response.end(reply.body);
  }

  async #verify({ url, body, headers }) {
    if (this.#verifier === null) return;
    const signature = headers["upstash-signature"];
    assert.equal(typeof signature, "string", "a delivery without a signature");
    await this.#verifier.verify({ signature, body, url: this.origin + url });
  }
}

/** The lines of the log about one message, oldest first. */
export async function logOf(messageId) {
  const { logs } = await client.logs({ messageIds: [messageId] });
  return logs.reverse();
}

/** Waits until the log of a message ends in a state, and returns it. */
export async function ended(messageId, state) {
  return until(`${messageId} ${state}`, async () => {
    const lines = await logOf(messageId);
    return lines.some((line) => line.state === state) ? lines : undefined;
  });
}

/** Waits for the dead letter of a message. */
export async function buried(messageId) {
  return until(`the dead letter of ${messageId}`, async () => {
    const { messages } = await client.dlq.listMessages({ filter: { messageId } });
    return messages[0];
  });
}

/** Publishes something that is due after a while, and waits for it: by then the rest has not happened. */
export async function laterThan(seconds) {
  const sink = await Sink.start();
  await client.publish({ url: sink.url("/later"), delay: seconds });
  await sink.hears("/later");
}

export async function run(cases) {
  const wanted = Object.entries(cases).filter(([name]) => name.includes(process.argv[2] ?? ""));
  const passed = await Promise.all(
    wanted.map(async ([name, body]) => {
      const began = Date.now();
      try {
        await body();
        console.log(`ok      ${name} (${Date.now() - began} ms)`);
        return true;
      } catch (error) {
        console.log(`FAILED  ${name} (${Date.now() - began} ms)\n${error.stack}`);
        return false;
      }
    }),
  );
  const failed = passed.filter((ok) => !ok).length;
  console.log(`${passed.length - failed} passed, ${failed} failed`);
  process.exit(failed === 0 && passed.length > 0 ? 0 : 1);
}
