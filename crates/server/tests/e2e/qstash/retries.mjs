// What happens when a destination does not say yes: when it is tried again, who is told, and how it ends.

import { Sink, assert, buried, client, door, ended, laterThan, logOf, run } from "./kit.mjs";

// The server waits at least as long; the clocks of two processes are read at different moments.
const SLACK_MS = 5;
const HOUR = "3600000";
const decoded = (base64) => Buffer.from(base64, "base64").toString();

function gaps(heard) {
  return heard.slice(1).map((request, n) => request.at - heard[n].at);
}

function atLeast(heard, ...wanted) {
  const found = gaps(heard);
  assert.equal(found.length, wanted.length);
  for (const [n, gap] of found.entries()) {
    assert.ok(gap >= wanted[n] - SLACK_MS, `${found} ms, at least ${wanted} ms are wanted`);
  }
}

await run({
  async "an expression says how long to wait"() {
    const sink = await Sink.start();
    sink.replies("/expression", { status: 500 }, { status: 404 }, { status: 302, headers: { location: "/x" } }, {});
    const retryDelay = "500 * pow(2, retried) + max(0, 100)";
    const item = { url: sink.url("/expression"), body: "again", retries: 3, retryDelay };
    const { messageId } = await client.publish(item);
    const heard = await sink.hears("/expression", 4);
    atLeast(heard, 600, 1100, 2100);
    assert.deepEqual(
      heard.map((request) => request.headers["upstash-retried"]),
      ["0", "1", "2", "3"],
    );
    assert.ok(heard.every((request) => request.headers["upstash-message-id"] === messageId));
    assert.ok(heard.every((request) => request.body === "again"));
    const signatures = new Set(heard.map((request) => request.headers["upstash-signature"]));
    assert.equal(signatures.size, 4, "each attempt is signed on its own");
    assert.equal(sink.at("/x").length, 0, "redirects are not followed");
    const lines = await ended(messageId, "DELIVERED");
    const states = lines.map((line) => line.state);
    assert.equal(states[0], "CREATED");
    assert.equal(states.at(-1), "DELIVERED");
    assert.equal(states.filter((state) => state === "DELIVERED").length, 1);
    assert.equal(states.filter((state) => state === "ERROR").length, 3, states.join());
    const failed = lines.find((line) => line.state === "ERROR");
    assert.equal(failed.responseStatus, 500);
    const planned = lines.find((line) => line.state === "RETRY");
    assert.ok(planned.nextDeliveryTime >= failed.time + 600 - SLACK_MS, JSON.stringify(planned));
    assert.equal(failed.retryDelayExpression, retryDelay);
    assert.equal(failed.retryDelayExpr, retryDelay);
    const message = await client.messages.get(messageId);
    assert.equal(message.retryDelayExpression, retryDelay);
    assert.equal(message.maxRetries, 3);
  },

  async "the destination says how long to wait"() {
    const sink = await Sink.start();
    const date = new Date(Math.ceil(Date.now() / 1000) * 1000 + 3000);
    const cases = {
      "/seconds": [{ "Retry-After": "2" }, 2000],
      "/reset": [{ "X-RateLimit-Reset": "1500ms" }, 1500],
      "/requests": [{ "X-RateLimit-Reset-Requests": "1s200ms" }, 1200],
      "/tokens": [{ "X-RateLimit-Reset-Tokens": "1" }, 1000],
      "/at-once": [{ "Retry-After": "0" }, 0],
    };
    const one = { retries: 1, retryDelay: HOUR };
    for (const [path, [headers]] of Object.entries(cases)) {
      sink.replies(path, { status: 429, headers }, {});
      await client.publish({ url: sink.url(path), ...one });
    }
    sink.replies("/date", { status: 503, headers: { "Retry-After": date.toUTCString() } }, {});
    await client.publish({ url: sink.url("/date"), ...one });
    // Beyond a day it does not count.
    sink.replies("/never", { status: 503, headers: { "Retry-After": "90000" } }, {});
    await client.publish({ url: sink.url("/never"), retries: 1, retryDelay: "700" });
    for (const [path, [, wanted]] of Object.entries(cases)) atLeast(await sink.hears(path, 2), wanted);
    assert.ok((await sink.hears("/date", 2))[1].at >= date.getTime() - SLACK_MS);
    atLeast(await sink.hears("/never", 2), 700);
  },

  async "without an expression the first wait is about twelve seconds"() {
    const sink = await Sink.start();
    sink.replies("/default", { status: 500 }, {});
    const { messageId } = await client.publish({ url: sink.url("/default"), retries: 1 });
    const planned = (await ended(messageId, "RETRY")).find((line) => line.state === "RETRY");
    const wait = planned.nextDeliveryTime - planned.time;
    assert.ok(wait > 11_000 && wait < 14_000, `${wait} ms`);
    atLeast(await sink.hears("/default", 2), 11_000);
  },

  async "a destination that says never again is believed"() {
    const sink = await Sink.start();
    const never = { status: 489, headers: { "Upstash-NonRetryable-Error": "true" }, body: "no use" };
    sink.replies("/never", never);
    sink.replies("/plain", { status: 489 }, {});
    const item = { retries: 3, retryDelay: "100" };
    const { messageId } = await client.publish({ url: sink.url("/never"), ...item });
    await client.publish({ url: sink.url("/plain"), ...item });
    const letter = await buried(messageId);
    assert.equal(letter.responseStatus, 489);
    assert.equal(letter.responseBody, "no use");
    assert.equal((await logOf(messageId)).at(-1).state, "FAILED");
    await sink.hears("/plain", 2);
    assert.equal(sink.at("/never").length, 1);
  },

  async "after the last attempt it is a dead letter"() {
    const sink = await Sink.start();
    sink.replies("/dead", { status: 500, body: "broken", headers: { "X-Why": "because" } });
    const { messageId } = await client.publishJSON({
      url: sink.url("/dead"),
      body: { a: 1 },
      retries: 2,
      retryDelay: "50",
    });
    const letter = await buried(messageId);
    assert.equal(sink.at("/dead").length, 3);
    assert.equal(letter.messageId, messageId);
    assert.ok(letter.dlqId.length > 0);
    assert.equal(letter.body, '{"a":1}');
    assert.equal(letter.responseStatus, 500);
    assert.equal(letter.responseBody, "broken");
    assert.deepEqual(letter.responseHeader["X-Why"], ["because"]);
    assert.equal(letter.maxRetries, 2);
    const states = (await ended(messageId, "FAILED")).map((line) => line.state);
    assert.equal(states.at(-1), "FAILED");
    assert.ok(!states.includes("DELIVERED"));
  },

  async "no retries are none, and nobody at home is a failure"() {
    const sink = await Sink.start();
    sink.replies("/once", { status: 500 });
    const once = await client.publish({ url: sink.url("/once"), retries: 0 });
    assert.equal((await buried(once.messageId)).maxRetries, 0);
    assert.equal(sink.at("/once").length, 1);
    // Port 1 is nobody's.
    const nobody = await client.publish({ url: "http://127.0.0.1:1/", retries: 0 });
    const letter = await buried(nobody.messageId);
    assert.equal(letter.responseStatus, 0);
    const failed = (await logOf(nobody.messageId)).at(-1);
    assert.ok(failed.error.length > 0, JSON.stringify(failed));
  },

  async "an answer that takes too long is none"() {
    const sink = await Sink.start();
    const held = door();
    sink.replies("/slow", { when: held.opened }, {});
    const item = { url: sink.url("/slow"), timeout: 1, retries: 1, retryDelay: "100" };
    // An attempt begins before it arrives, so the wait is counted from the beginning of all.
    const began = Date.now();
    const { messageId } = await client.publish(item);
    const heard = await sink.hears("/slow", 2);
    assert.ok(heard[1].at >= began + 1100, `${heard[1].at - began} ms`);
    await ended(messageId, "DELIVERED");
    held.open();
  },

  async "callbacks tell of every attempt"() {
    const sink = await Sink.start();
    sink.replies(
      "/work",
      { status: 500, body: "not yet" },
      { status: 201, body: "done", headers: { "X-Result": "r" } },
    );
    const { messageId } = await client.publishJSON({
      url: sink.url("/work?q=1"),
      body: { job: 1 },
      headers: { "X-Job": "1", "Upstash-Callback-Forward-X-Secret": "shh", "Upstash-Callback-Method": "PUT" },
      retries: 2,
      retryDelay: "100",
      callback: sink.url("/callback?of=work"),
    });
    const told = await sink.hears("/callback", 2);
    for (const request of told) {
      assert.equal(request.method, "PUT");
      assert.equal(request.url, "/callback?of=work");
      assert.equal(request.headers["x-secret"], "shh");
      assert.match(request.headers["content-type"], /^application\/json/);
      assert.notEqual(request.headers["upstash-message-id"], messageId);
    }
    const reports = told.map((request) => JSON.parse(request.body)).sort((a, b) => a.retried - b.retried);
    const [failed, done] = reports;
    assert.deepEqual([failed.status, failed.retried, decoded(failed.body)], [500, 0, "not yet"]);
    assert.deepEqual([done.status, done.retried, decoded(done.body)], [201, 1, "done"]);
    assert.deepEqual(done.header["X-Result"], ["r"]);
    for (const report of reports) {
      assert.equal(report.sourceMessageId, messageId);
      assert.equal(report.url, sink.url("/work?q=1"));
      assert.equal(report.method, "POST");
      assert.equal(report.maxRetries, 2);
      assert.equal(decoded(report.sourceBody), '{"job":1}');
      assert.equal(report.sourceHeader["X-Job"][0], "1");
      assert.ok(Number(report.createdAt) > 1.6e12 && Number(report.notBefore) > 1.6e12);
      assert.ok(!("dlqId" in report));
    }
    await laterThan(1);
    assert.equal(sink.at("/callback").length, 2);
    const message = await client.messages.get(messageId);
    assert.equal(message.callback, sink.url("/callback?of=work"));
  },

  async "a failure callback tells of the end, once, with the dead letter's id"() {
    const sink = await Sink.start();
    sink.replies("/fails", { status: 503, body: "sorry" });
    const { messageId } = await client.publish({
      url: sink.url("/fails"),
      body: "x",
      retries: 1,
      retryDelay: "100",
      callback: sink.url("/each"),
      failureCallback: sink.url("/end"),
      headers: { "Upstash-Failure-Callback-Forward-X-Of": "failure" },
    });
    const [end] = await sink.hears("/end");
    assert.equal(end.method, "POST");
    assert.equal(end.headers["x-of"], "failure");
    const report = JSON.parse(end.body);
    const letter = await buried(messageId);
    assert.equal(report.dlqId, letter.dlqId);
    assert.equal(report.sourceMessageId, messageId);
    assert.deepEqual([report.status, report.retried, report.maxRetries], [503, 1, 1]);
    assert.equal(decoded(report.body), "sorry");
    await sink.hears("/each", 2);
    await laterThan(1);
    assert.equal(sink.at("/end").length, 1);
    assert.equal(sink.at("/each").length, 2);
  },

  async "a callback is a message, tried again like any other"() {
    const sink = await Sink.start();
    sink.replies("/callback", { status: 500 }, { status: 500 }, {});
    await client.publish({
      url: sink.url("/fine"),
      callback: sink.url("/callback"),
      headers: { "Upstash-Callback-Retry-Delay": "200", "Upstash-Callback-Retries": "2" },
    });
    const heard = await sink.hears("/callback", 3);
    atLeast(heard, 200, 200);
    const ids = new Set(heard.map((request) => request.headers["upstash-message-id"]));
    assert.equal(ids.size, 1);
    assert.equal(sink.at("/fine").length, 1);
  },

  async "what is cancelled between two attempts is not tried again"() {
    const sink = await Sink.start();
    sink.replies("/cancel", { status: 500 });
    const item = { url: sink.url("/cancel"), retries: 5, retryDelay: "2000" };
    const { messageId } = await client.publish({ ...item, failureCallback: sink.url("/told") });
    await ended(messageId, "ERROR");
    assert.deepEqual(await client.messages.cancel(messageId), { cancelled: 1 });
    await ended(messageId, "CANCELED");
    await laterThan(3);
    assert.equal(sink.at("/cancel").length, 1);
    assert.equal(sink.at("/told").length, 0);
    const { messages } = await client.dlq.listMessages({ filter: { messageId } });
    assert.deepEqual(messages, []);
  },

  async "what is cancelled during an attempt is not tried again either"() {
    const sink = await Sink.start();
    const held = door();
    sink.replies("/many", { when: held.opened, status: 500 });
    sink.replies("/last", { when: held.opened, status: 500 });
    const item = { retryDelay: "100", failureCallback: sink.url("/told") };
    const many = await client.publish({ url: sink.url("/many"), retries: 3, ...item });
    const last = await client.publish({ url: sink.url("/last"), retries: 0, ...item });
    await sink.hears("/many");
    await sink.hears("/last");
    for (const { messageId } of [many, last]) {
      assert.deepEqual(await client.messages.cancel(messageId), { cancelled: 1 });
    }
    held.open();
    // The attempt is on record, whatever came of it.
    for (const { messageId } of [many, last]) await ended(messageId, "ERROR");
    await laterThan(1);
    for (const { messageId } of [many, last]) {
      const states = (await logOf(messageId)).map((line) => line.state);
      assert.ok(!states.includes("RETRY") && !states.includes("FAILED"), states.join());
      const { messages } = await client.dlq.listMessages({ filter: { messageId } });
      assert.deepEqual(messages, []);
    }
    assert.deepEqual([sink.at("/many").length, sink.at("/last").length, sink.at("/told").length], [1, 1, 0]);
  },
});
