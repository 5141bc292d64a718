// One message, one destination: what arrives is what was sent, signed, and can be asked about.

import { Sink, api, assert, client, ended, laterThan, logOf, run } from "./kit.mjs";

const CALLER = "127.0.0.1";

await run({
  async "the destination is taken as it is, slashes, escapes and query"() {
    const sink = await Sink.start();
    const paths = [
      "/plain",
      "//two//slashes///",
      "/a%20b/%2F/%C3%A9%E7%A2%BA?x=1&y=2&x=%3D%26",
      "/q?empty=&flag&json=%7B%22a%22:1%7D",
      "/http://inner.example/x?u=http://other.example/y",
      "/?only=query",
    ];
    for (const path of paths) {
      const { messageId } = await client.publish({ url: sink.url(path), body: path });
      const [heard] = await sink.hears(path.split("?")[0]);
      assert.equal(heard.url, path);
      assert.equal(heard.body, path);
      assert.equal(heard.headers["upstash-message-id"], messageId);
      assert.equal((await client.messages.get(messageId)).url, sink.url(path));
    }
  },

  async "JSON arrives as it was made, with our headers and nobody else's"() {
    const sink = await Sink.start();
    const body = { hello: "確か 🦀", nested: [1, { a: null }] };
    const { messageId } = await client.publishJSON({
      url: sink.url("/json"),
      body,
      headers: { "Test-Header": "test-value", "x-trace": "t-1" },
    });
    assert.match(messageId, /^msg_[A-Za-z0-9_]+$/);
    const [heard] = await sink.hears("/json");
    assert.equal(heard.method, "POST");
    assert.deepEqual(JSON.parse(heard.body), body);
    assert.equal(heard.headers["content-type"], "application/json");
    assert.equal(heard.headers["test-header"], "test-value");
    assert.equal(heard.headers["x-trace"], "t-1");
    assert.equal(heard.headers["user-agent"], "Upstash-QStash");
    assert.equal(heard.headers["upstash-message-id"], messageId);
    assert.equal(heard.headers["upstash-retried"], "0");
    assert.equal(heard.headers["upstash-caller-ip"], CALLER);
    const leaked = Object.keys(heard.headers).filter((name) =>
      /^(authorization|upstash-(telemetry|forward|method|retries).*)$/.test(name),
    );
    assert.deepEqual(leaked, []);

    // Delivered messages stay readable.
    await ended(messageId, "DELIVERED");
    const message = await client.messages.get(messageId);
    assert.equal(message.messageId, messageId);
    assert.equal(message.url, sink.url("/json"));
    assert.equal(message.method, "POST");
    assert.equal(message.body, JSON.stringify(body));
    assert.equal(message.maxRetries, 3);
    assert.deepEqual(message.header, {
      "Content-Type": ["application/json"],
      "Test-Header": ["test-value"],
      "X-Trace": ["t-1"],
    });
    assert.ok(Math.abs(message.createdAt - Date.now()) < 120_000, String(message.createdAt));
    assert.ok(message.notBefore >= message.createdAt, JSON.stringify(message));
    assert.equal(message.callerIP, CALLER);
    for (const absent of ["topicName", "queueName", "scheduleId", "callback", "flowControlKey"]) {
      assert.ok(!(absent in message), `${absent} in ${JSON.stringify(message)}`);
    }
  },

  async "every method is used, GET with its body too"() {
    const sink = await Sink.start();
    for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE"]) {
      const { messageId } = await client.publish({
        url: sink.url(`/${method}`),
        method,
        body: `by ${method}`,
      });
      const [heard] = await sink.hears(`/${method}`);
      assert.equal(heard.method, method);
      assert.equal(heard.body, `by ${method}`);
      assert.equal((await client.messages.get(messageId)).method, method);
    }
  },

  async "an empty body is one, and signed"() {
    const sink = await Sink.start();
    const { messageId } = await client.publish({ url: sink.url("/empty") });
    const [heard] = await sink.hears("/empty");
    assert.equal(heard.bytes.length, 0);
    const message = await client.messages.get(messageId);
    assert.equal(message.body, undefined);
    assert.equal(message.bodyBase64, undefined);
  },

  async "bytes that are no text arrive as bytes and are told as base64"() {
    // The receivers hash text, so they cannot check this one.
    const sink = await Sink.start({ verifier: null });
    const bytes = Buffer.from([0xff, 0xfe, 0x00, 0x80, 0x0a, 0xc3]);
    const { messageId } = await client.publish({ url: sink.url("/bytes"), body: bytes });
    const [heard] = await sink.hears("/bytes");
    assert.deepEqual(heard.bytes, bytes);
    const message = await client.messages.get(messageId);
    assert.equal(message.body, undefined);
    assert.equal(message.bodyBase64, bytes.toString("base64"));
  },

  async "a large body arrives in full"() {
    const sink = await Sink.start();
    const body = "0123456789abcdef".repeat(50_000);
    await client.publish({ url: sink.url("/large"), body });
    const [heard] = await sink.hears("/large");
    assert.equal(heard.body.length, body.length);
    assert.equal(heard.body, body);
  },

  async "a delay and a time to wait for are kept"() {
    const sink = await Sink.start();
    const began = Date.now();
    const notBefore = Math.floor(began / 1000) + 3;
    const [delayed, dated, both] = await Promise.all([
      client.publish({ url: sink.url("/delay"), delay: 2 }),
      client.publish({ url: sink.url("/not-before"), notBefore }),
      client.publish({ url: sink.url("/both"), notBefore, delay: "1h" }),
      client.publish({ url: sink.url("/string"), delay: "1s" }),
    ]);
    const message = await client.messages.get(delayed.messageId);
    assert.ok(message.notBefore >= began + 2000, JSON.stringify(message));
    for (const { messageId } of [dated, both]) {
      assert.equal((await client.messages.get(messageId)).notBefore, notBefore * 1000);
    }
    assert.ok((await sink.hears("/string"))[0].at >= began + 1000);
    assert.ok((await sink.hears("/delay"))[0].at >= began + 2000);
    assert.ok((await sink.hears("/not-before"))[0].at >= notBefore * 1000);
    assert.ok((await sink.hears("/both"))[0].at >= notBefore * 1000);
  },

  async "the query may configure, and is not passed on"() {
    const sink = await Sink.start();
    const query =
      "a=1&upstash-retries=7&upstash-delay=1s&b=2&upstash-method=PUT&upstash-forward-x-by=query";
    const began = Date.now();
    const answer = await api("POST", `/v2/publish/${sink.url(`/configured?${query}`)}`, {
      body: "by query",
    });
    assert.equal(answer.status, 200, answer.text);
    const [heard] = await sink.hears("/configured");
    assert.equal(heard.url, "/configured?a=1&b=2");
    assert.equal(heard.method, "PUT");
    assert.equal(heard.headers["x-by"], "query");
    assert.ok(heard.at >= began + 1000);
    const message = await client.messages.get(answer.json.messageId);
    assert.equal(message.maxRetries, 7);
    assert.equal(message.url, sink.url("/configured?a=1&b=2"));
  },

  async "the token may be in the query"() {
    const sink = await Sink.start();
    const token = encodeURIComponent(process.env.QSTASH_TOKEN);
    const path = `/v2/publish/${sink.url(`/token?c=3&qstash_token=${token}`)}`;
    const answer = await api("POST", path, { token: null, body: "x" });
    assert.equal(answer.status, 200, answer.text);
    const [heard] = await sink.hears("/token");
    assert.equal(heard.url, "/token?c=3");
    const wrong = await api("POST", path.replace(token, "another"), { token: null });
    assert.equal(wrong.status, 401, wrong.text);
  },

  async "every header is forwarded where that is asked for"() {
    const sink = await Sink.start();
    const answer = await api("POST", `/v2/publish/${sink.url("/all")}`, {
      headers: {
        "upstash-header-forward": "true",
        "x-hub-signature": "sha256=abc",
        "content-type": "application/x-www-form-urlencoded",
        "upstash-retries": "1",
      },
      body: "a=b",
    });
    assert.equal(answer.status, 200, answer.text);
    const [heard] = await sink.hears("/all");
    assert.equal(heard.headers["x-hub-signature"], "sha256=abc");
    assert.equal(heard.headers["content-type"], "application/x-www-form-urlencoded");
    assert.equal(heard.headers.authorization, undefined, "our token is nobody's business");
    assert.equal(heard.headers["upstash-retries"], undefined);
    assert.equal(heard.headers["upstash-message-id"], answer.json.messageId);

    const plain = await api("POST", `/v2/publish/${sink.url("/few")}`, {
      headers: { "x-hub-signature": "sha256=abc" },
    });
    assert.equal(plain.status, 200, plain.text);
    assert.equal((await sink.hears("/few"))[0].headers["x-hub-signature"], undefined);
  },

  async "labels are kept and found by"() {
    const sink = await Sink.start();
    const url = sink.url("/labels");
    const { messageId } = await client.publish({ url, label: ["first", "second"] });
    const { messageId: other } = await client.publish({ url, label: "third" });
    const message = await client.messages.get(messageId);
    assert.equal(message.label, "first");
    assert.deepEqual(message.labels, ["first", "second"]);
    await ended(messageId, "DELIVERED");
    await ended(other, "DELIVERED");
    for (const label of ["first", "second", ["second", "nobody"]]) {
      const { logs } = await client.logs({ filter: { label } });
      const ids = new Set(logs.map((line) => line.messageId));
      assert.deepEqual([...ids], [messageId], String(label));
    }
  },

  async "the log tells of each step, the newest first"() {
    const sink = await Sink.start();
    const { messageId } = await client.publishJSON({
      url: sink.url("/log"),
      body: { a: 1 },
      headers: { "My-Header": "mine" },
    });
    await ended(messageId, "DELIVERED");
    const lines = await logOf(messageId);
    assert.deepEqual(
      lines.map((line) => line.state),
      ["CREATED", "ACTIVE", "DELIVERED"],
    );
    for (const line of lines) {
      assert.equal(line.messageId, messageId);
      assert.equal(line.url, sink.url("/log"));
      assert.ok(Math.abs(line.time - Date.now()) < 120_000, String(line.time));
    }
    const times = lines.map((line) => line.time);
    assert.deepEqual(times, [...times].sort(), "oldest first, after reversing");
    const raw = await api("GET", `/v2/logs?messageId=${messageId}`);
    assert.equal(raw.status, 200, raw.text);
    assert.equal(raw.json.logs.length, 3, raw.text);
    const delivered = await client.logs({ filter: { messageId, state: "DELIVERED" } });
    assert.equal(delivered.logs.length, 1);
    const byUrl = await client.logs({ filter: { url: sink.url("/log") } });
    assert.equal(byUrl.logs.length, 3);
    const byHost = await client.logs({ filter: { host: new URL(sink.origin).host, path: "/log" } });
    assert.equal(byHost.logs.length, 3);
  },

  async "the log comes in pages"() {
    const sink = await Sink.start();
    const url = sink.url("/pages");
    const ids = [];
    for (let n = 0; n < 4; n += 1) ids.push((await client.publish({ url })).messageId);
    for (const id of ids) await ended(id, "DELIVERED");
    const seen = [];
    let cursor;
    do {
      const page = await client.logs({ filter: { url }, count: 5, cursor });
      assert.ok(page.logs.length <= 5);
      seen.push(...page.logs.map((line) => `${line.messageId} ${line.state}`));
      cursor = page.cursor;
    } while (cursor);
    assert.equal(seen.length, 12, seen.join("\n"));
    assert.equal(new Set(seen).size, 12, seen.join("\n"));
  },

  async "what is to be cancelled does not arrive"() {
    const sink = await Sink.start();
    const soon = (path, label) => client.publish({ url: sink.url(path), delay: 3, label });
    const [one, a, b, kept] = await Promise.all([soon("/one"), soon("/a"), soon("/b"), soon("/kept")]);
    const [c, d] = await Promise.all([soon("/c", "to-cancel"), soon("/d", "to-cancel")]);
    assert.deepEqual(await client.messages.cancel(one.messageId), { cancelled: 1 });
    const many = await client.messages.cancel([a.messageId, b.messageId]);
    assert.equal(many.cancelled, 2);
    const filtered = await client.messages.cancel({ filter: { label: "to-cancel" } });
    assert.equal(filtered.cancelled, 2);
    for (const { messageId } of [one, a, b, c, d]) {
      const states = (await ended(messageId, "CANCELED")).map((line) => line.state);
      assert.ok(states.includes("CANCEL_REQUESTED"), states.join());
      assert.ok(!states.includes("ACTIVE"), states.join());
    }
    await sink.hears("/kept");
    await laterThan(3);
    assert.equal(sink.heard.length, 1);
    assert.equal(sink.heard[0].headers["upstash-message-id"], kept.messageId);
  },
});
