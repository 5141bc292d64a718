// Strange, but allowed: what destinations answer, what keys and URLs look like, and what is asked at once.

import { Sink, api, assert, buried, client, ended, laterThan, logOf, run, until } from "./kit.mjs";

const decoded = (base64) => Buffer.from(base64, "base64");
const json = { "content-type": "application/json" };

await run({
  async "an answer that is no text is told as base64"() {
    const sink = await Sink.start();
    const bytes = Buffer.from([0x00, 0xff, 0xfe, 0x41]);
    sink.replies("/bytes", { status: 500, body: bytes });
    const { messageId } = await client.publish({
      url: sink.url("/bytes"),
      retries: 0,
      callback: sink.url("/told"),
    });
    const letter = await buried(messageId);
    assert.equal(letter.responseBody, undefined);
    assert.deepEqual(decoded(letter.responseBodyBase64), bytes);
    const report = JSON.parse((await sink.hears("/told"))[0].body);
    assert.deepEqual(decoded(report.body), bytes);
  },

  async "of an answer that never ends the status counts"() {
    const sink = await Sink.start();
    sink.replies("/long", { status: 200, body: Buffer.alloc(3_000_000, "x") });
    const { messageId } = await client.publish({ url: sink.url("/long"), callback: sink.url("/told") });
    await ended(messageId, "DELIVERED");
    const report = JSON.parse((await sink.hears("/told"))[0].body);
    const kept = decoded(report.body);
    assert.equal(report.status, 200);
    assert.ok(kept.length > 0 && kept.length < 3_000_000, String(kept.length));
    assert.ok(kept.every((byte) => byte === "x".charCodeAt(0)));
    assert.equal(sink.at("/long").length, 1);
  },

  async "a destination that hangs up between two deliveries costs no attempt"() {
    const sink = await Sink.start();
    sink.server.keepAliveTimeout = 1;
    const ids = [];
    for (let n = 0; n < 8; n += 1) {
      const { messageId } = await client.publish({ url: sink.url("/hang-up"), retryDelay: "100" });
      ids.push(messageId);
      await ended(messageId, "DELIVERED");
    }
    for (const id of ids) {
      const states = (await logOf(id)).map((line) => line.state);
      assert.deepEqual(states, ["CREATED", "ACTIVE", "DELIVERED"]);
    }
  },

  async "a URL may have a user and a password"() {
    const sink = await Sink.start({ verifier: null });
    const url = sink.url("/secret?x=1").replace("http://", "http://user:p%40ss@");
    const { messageId } = await client.publish({ url, body: "x" });
    const [heard] = await sink.hears("/secret");
    assert.equal(heard.url, "/secret?x=1");
    const basic = `Basic ${Buffer.from("user:p@ss").toString("base64")}`;
    assert.equal(heard.headers.authorization, basic);
    assert.equal((await client.messages.get(messageId)).url, url);
  },

  async "a header may be forwarded with several values"() {
    const sink = await Sink.start();
    const headers = new Headers({ "X-Many": "one" });
    headers.append("X-Many", "two");
    await client.publish({ url: sink.url("/many"), headers });
    assert.equal((await sink.hears("/many"))[0].headers["x-many"], "one, two");
  },

  async "headers of ours cannot be forged"() {
    const sink = await Sink.start();
    const answer = await api("POST", `/v2/publish/${sink.url("/forged")}`, {
      headers: {
        "upstash-forward-upstash-message-id": "msg_forged",
        "upstash-forward-upstash-signature": "forged",
        "upstash-forward-upstash-retried": "7",
        "upstash-forward-content-length": "3",
        "upstash-forward-transfer-encoding": "chunked",
        "upstash-forward-host": "evil.example",
      },
      body: "hello",
    });
    assert.equal(answer.status, 200, answer.text);
    const [heard] = await sink.hears("/forged");
    assert.equal(heard.headers["upstash-message-id"], answer.json.messageId);
    assert.equal(heard.headers["upstash-retried"], "0");
    assert.equal(heard.headers.host, sink.origin.slice("http://".length));
    assert.equal(heard.body, "hello");
  },

  async "a key of flow control may have slashes and blanks"() {
    const sink = await Sink.start();
    for (const key of ["tenant/7/mail", "tenant 7", "t:7"]) {
      await client.publish({ url: sink.url("/key"), flowControl: { key, parallelism: 2 } });
      const state = await client.flowControl.get(key);
      assert.deepEqual([state.flowControlKey, state.parallelismMax], [key, 2]);
      await client.flowControl.pause(key);
      assert.equal((await client.flowControl.get(key)).isPaused, true);
      await client.flowControl.resume(key);
    }
    await sink.hears("/key", 3);
  },

  async "an item of a batch may say null, and write its headers as it likes"() {
    const sink = await Sink.start();
    const items = [
      { destination: sink.url("/null?x=1"), headers: null, body: null, queue: null },
      { destination: sink.url("/case"), headers: { "UPSTASH-METHOD": "put", "upstash-FORWARD-x-a": "b" } },
    ];
    const options = { headers: json, body: JSON.stringify(items) };
    const answer = await api("POST", "/v2/batch", options);
    assert.equal(answer.status, 200, answer.text);
    const [first] = await sink.hears("/null");
    assert.deepEqual([first.url, first.body], ["/null?x=1", ""]);
    const [second] = await sink.hears("/case");
    assert.deepEqual([second.method, second.headers["x-a"]], ["PUT", "b"]);
  },

  async "the log and dead letters may be read from their beginning"() {
    const sink = await Sink.start();
    sink.replies("/order", { status: 489, headers: { "Upstash-NonRetryable-Error": "true" } });
    const ids = [];
    for (let n = 0; n < 3; n += 1) {
      const { messageId } = await client.publish({ url: sink.url("/order") });
      ids.push(messageId);
      await buried(messageId);
    }
    const url = encodeURIComponent(sink.url("/order"));
    for (const [order, wanted] of [
      ["earliestFirst", ids],
      ["latestFirst", [...ids].reverse()],
    ]) {
      const letters = await api("GET", `/v2/dlq?url=${url}&order=${order}`);
      assert.deepEqual(
        letters.json.messages.map((letter) => letter.messageId),
        wanted,
        order,
      );
      const lines = await api("GET", `/v2/events?url=${url}&order=${order}&state=FAILED`);
      assert.deepEqual(
        lines.json.events.map((line) => line.messageId),
        wanted,
        order,
      );
    }
  },

  async "a filter by dates includes both of them"() {
    const sink = await Sink.start();
    const { messageId } = await client.publish({ url: sink.url("/dates") });
    const lines = await ended(messageId, "DELIVERED");
    const { time } = lines[0];
    const of = (fromDate, toDate) =>
      client.logs({ filter: { messageId, state: "CREATED", fromDate, toDate } });
    assert.equal((await of(time, time)).logs.length, 1);
    assert.equal((await of(time + 1, time + 1000)).logs.length, 0);
    assert.equal((await of(time - 1000, time - 1)).logs.length, 0);
  },

  async "what is under way is found as such"() {
    const sink = await Sink.start();
    sink.replies("/again", { status: 500 });
    const item = { url: sink.url("/again"), retries: 3, retryDelay: "3600000" };
    const { messageId } = await client.publish(item);
    await ended(messageId, "RETRY");
    const { logs } = await client.logs({ filter: { messageId, state: "IN_PROGRESS" } });
    assert.ok(logs.length > 0);
    assert.ok(logs.every((line) => ["ACTIVE", "RETRY", "ERROR"].includes(line.state)));
    await client.messages.cancel(messageId);
  },

  async "a message that has ended is not cancelled"() {
    const sink = await Sink.start();
    const { messageId } = await client.publish({ url: sink.url("/over") });
    await ended(messageId, "DELIVERED");
    const answer = await api("DELETE", `/v2/messages/${messageId}`);
    assert.ok(answer.status === 404 || answer.json?.cancelled === 0, answer.text);
    assert.equal((await client.messages.cancel([messageId])).cancelled, 0);
    assert.equal((await logOf(messageId)).at(-1).state, "DELIVERED");
  },

  async "everything about a message in a queue at once"() {
    const sink = await Sink.start();
    sink.replies("/first", { status: 500 }, {});
    const queue = client.queue({ queueName: "everything" });
    const began = Date.now();
    await queue.enqueue({
      url: sink.url("/first"),
      delay: 1,
      retries: 1,
      retryDelay: "300",
      callback: sink.url("/told"),
      flowControl: { key: "queued", parallelism: 1 },
      deduplicationId: "everything-1",
      label: "everything",
    });
    const heard = await sink.hears("/first", 2);
    assert.ok(heard[0].at >= began + 1000 && heard[1].at - heard[0].at >= 295);
    await sink.hears("/told", 2);
    await until("an empty queue", async () => (await queue.get()).lag === 0);
    await queue.enqueue({ url: sink.url("/second") });
    await sink.hears("/second");
  },

  async "a hundred callers at once get a hundred ids"() {
    const sink = await Sink.start();
    const calls = Array.from({ length: 100 }, (_, n) => client.publish({ url: sink.url(`/c/${n}`) }));
    const ids = (await Promise.all(calls)).map((answer) => answer.messageId);
    assert.equal(new Set(ids).size, 100);
    for (let n = 0; n < 100; n += 1) {
      const [heard] = await sink.hears(`/c/${n}`);
      assert.equal(heard.headers["upstash-message-id"], ids[n]);
    }
    await laterThan(1);
    assert.equal(sink.heard.length, 100, "each once");
  },
});
