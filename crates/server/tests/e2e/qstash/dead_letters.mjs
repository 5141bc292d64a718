// Dead letters: listed, found, deleted, sent again; and what is hidden in every answer.

import { Sink, api, assert, buried, client, ended, laterThan, refused, run } from "./kit.mjs";

const NEVER = { status: 489, headers: { "Upstash-NonRetryable-Error": "true" }, body: "no" };

/** Dead letters, one after the other, so that their order is known. */
async function letters(sink, count, item = {}) {
  const made = [];
  for (let n = 0; n < count; n += 1) {
    const { messageId } = await client.publish({ url: sink.url("/dead"), body: `${n}`, ...item });
    made.push(await buried(messageId));
  }
  return made;
}

/** A destination where everything dies at first. */
async function hopeless() {
  const sink = await Sink.start();
  sink.replies("/dead", NEVER);
  return sink;
}

const ids = (messages) => messages.map((message) => message.dlqId).sort();
const of = (sink) => ({ filter: { url: sink.url("/dead") } });

await run({
  async "a dead letter is read and deleted by its id"() {
    const sink = await hopeless();
    const [letter] = await letters(sink, 1, { headers: { "X-Mine": "1" }, label: "mine" });
    const read = await api("GET", `/v2/dlq/${letter.dlqId}`);
    assert.equal(read.status, 200, read.text);
    assert.equal(read.json.messageId, letter.messageId);
    assert.equal(read.json.responseStatus, 489);
    assert.equal(read.json.responseBody, "no");
    assert.deepEqual(read.json.header["X-Mine"], ["1"]);
    const listed = await client.dlq.listMessages({ dlqIds: [letter.dlqId] });
    assert.deepEqual(ids(listed.messages), [letter.dlqId]);
    assert.deepEqual(await client.dlq.delete(letter.dlqId), { deleted: 1 });
    await refused(404, client.dlq.delete(letter.dlqId));
    assert.equal((await api("GET", `/v2/dlq/${letter.dlqId}`)).status, 404);
    const left = await client.dlq.listMessages(of(sink));
    assert.deepEqual(left.messages, []);
    assert.equal(left.cursor, undefined);
  },

  async "filters find what they name, all of them together"() {
    const sink = await hopeless();
    sink.replies("/other", { status: 500 });
    const began = Date.now();
    const [first] = await letters(sink, 1, { label: "filter-a" });
    const [second] = await letters(sink, 1, { label: ["filter-b", "filter-c"] });
    const { messageId } = await client.publish({ url: sink.url("/other"), retries: 0, label: "filter-a" });
    const third = await buried(messageId);
    const queued = await client.queue({ queueName: "filters" }).enqueue({ url: sink.url("/dead") });
    const fourth = await buried(queued.messageId);
    const found = async (filter) => ids((await client.dlq.listMessages({ filter })).messages);
    const url = sink.url("/dead");
    assert.deepEqual(await found({ url }), ids([first, second, fourth]));
    assert.deepEqual(await found({ label: "filter-a" }), ids([first, third]));
    assert.deepEqual(await found({ label: ["filter-a", "filter-b"] }), ids([first, second, third]));
    assert.deepEqual(await found({ label: "filter-c" }), ids([second]));
    assert.deepEqual(await found({ label: "filter-a", url }), ids([first]));
    assert.deepEqual(await found({ label: "filter-a", responseStatus: 500 }), ids([third]));
    assert.deepEqual(await found({ queueName: "filters" }), ids([fourth]));
    assert.deepEqual(await found({ messageId: second.messageId }), ids([second]));
    const here = { url: [url, sink.url("/other")] };
    assert.deepEqual(await found({ ...here, fromDate: began - 1000 }), ids([first, second, third, fourth]));
    assert.deepEqual(await found({ ...here, toDate: began - 1000 }), []);
    assert.deepEqual(await found({ ...here, fromDate: new Date(Date.now() + 60_000) }), []);
    assert.deepEqual(await found({ url, callerIp: "192.0.2.1" }), []);
    assert.deepEqual((await found({ url, callerIp: "127.0.0.1" })).length, 3);
  },

  async "pages go to the end, without a letter twice"() {
    const sink = await hopeless();
    const made = await letters(sink, 7);
    const seen = [];
    const sizes = [];
    let cursor;
    do {
      const page = await client.dlq.listMessages({ ...of(sink), count: 3, cursor });
      seen.push(...page.messages);
      sizes.push(page.messages.length);
      cursor = page.cursor;
    } while (cursor);
    assert.deepEqual(ids(seen), ids(made));
    assert.deepEqual(sizes.slice(0, 2), [3, 3]);
  },

  async "many are deleted by id, and only those"() {
    const sink = await hopeless();
    const [a, b, c] = await letters(sink, 3);
    const { deleted } = await client.dlq.delete([a.dlqId, c.dlqId, "1725323658779-0"]);
    assert.equal(deleted, 2);
    assert.deepEqual(ids((await client.dlq.listMessages(of(sink))).messages), [b.dlqId]);
    const body = JSON.stringify({ dlqIds: [b.dlqId] });
    const headers = { "content-type": "application/json" };
    const answer = await api("DELETE", "/v2/dlq", { headers, body });
    assert.deepEqual([answer.status, answer.json?.deleted], [200, 1], answer.text);
  },

  async "an empty or mistyped list deletes nothing"() {
    const sink = await hopeless();
    const [kept] = await letters(sink, 1);
    for (const body of ['{"dlqIds":[]}', '{"dlqids":["x"]}', "[]", "{", '"all"']) {
      const headers = { "content-type": "application/json" };
      const answer = await api("DELETE", "/v2/dlq", { headers, body });
      const nothing = answer.status === 400 || answer.json?.deleted === 0;
      assert.ok(nothing, `${body}: ${answer.status} ${answer.text}`);
    }
    assert.deepEqual(ids((await client.dlq.listMessages(of(sink))).messages), [kept.dlqId]);
  },

  async "many are deleted by filter, a few at a time"() {
    const sink = await hopeless();
    await letters(sink, 5);
    let sum = 0;
    let calls = 0;
    let cursor;
    do {
      const answer = await client.dlq.delete({ ...of(sink), count: 2, cursor });
      assert.ok(answer.deleted <= 2, JSON.stringify(answer));
      sum += answer.deleted;
      calls += 1;
      cursor = answer.cursor;
    } while (cursor && calls < 10);
    assert.equal(sum, 5);
    assert.deepEqual((await client.dlq.listMessages(of(sink))).messages, []);
  },

  async "one is sent again, as a new message with everything it had"() {
    const sink = await hopeless();
    const [letter] = await letters(sink, 1, {
      body: "once more",
      method: "PUT",
      headers: { "X-Mine": "1", "Content-Type": "text/x-mine" },
      label: "again",
      retries: 1,
    });
    sink.replies("/dead", {});
    const { responses, cursor } = await client.dlq.retry(letter.dlqId);
    assert.equal(responses.length, 1);
    assert.equal(cursor, undefined);
    assert.notEqual(responses[0].messageId, letter.messageId);
    const [, again] = await sink.hears("/dead", 2);
    assert.equal(again.headers["upstash-message-id"], responses[0].messageId);
    assert.equal(again.headers["upstash-retried"], "0");
    assert.deepEqual([again.method, again.body], ["PUT", "once more"]);
    assert.equal(again.headers["x-mine"], "1");
    assert.equal(again.headers["content-type"], "text/x-mine");
    await ended(responses[0].messageId, "DELIVERED");
    assert.deepEqual((await client.dlq.listMessages(of(sink))).messages, []);
    const message = await client.messages.get(responses[0].messageId);
    assert.deepEqual([message.label, message.maxRetries], ["again", 1]);
  },

  async "many are sent again by id, by filter, a few at a time"() {
    const sink = await hopeless();
    const made = await letters(sink, 5);
    sink.replies("/dead", {});
    const chosen = made.slice(0, 2).map((letter) => letter.dlqId);
    assert.equal((await client.dlq.retry(chosen)).responses.length, 2);
    let calls = 0;
    let cursor;
    do {
      ({ cursor } = await client.dlq.retry({ ...of(sink), count: 2, cursor }));
      calls += 1;
    } while (cursor && calls < 10);
    const heard = await sink.hears("/dead", 10);
    const again = heard.slice(5).map((request) => request.body);
    assert.deepEqual(again.sort(), ["0", "1", "2", "3", "4"]);
    assert.deepEqual((await client.dlq.listMessages(of(sink))).messages, []);
  },

  async "headers of the retry replace those of the letter"() {
    const sink = await hopeless();
    sink.replies("/told", {});
    const [letter] = await letters(sink, 1, { body: "x", headers: { "X-Mine": "old" }, retries: 2 });
    const began = Date.now();
    const answer = await api("POST", `/v2/dlq/retry?dlqIds=${letter.dlqId}`, {
      headers: {
        "Upstash-Retries": "0",
        "Upstash-Delay": "1s",
        "Upstash-Label": "overridden",
        "Upstash-Forward-X-Mine": "new",
        "Upstash-Failure-Callback": sink.url("/told"),
      },
    });
    assert.equal(answer.status, 201, answer.text);
    const [{ messageId }] = answer.json.responses;
    const message = await client.messages.get(messageId);
    assert.deepEqual([message.maxRetries, message.label], [0, "overridden"]);
    assert.equal(message.failureCallback, sink.url("/told"));
    const [, again] = await sink.hears("/dead", 2);
    assert.ok(again.at >= began + 1000, "it was delayed");
    assert.equal(again.headers["x-mine"], "new");
    assert.equal(again.body, "x");
    const [told] = await sink.hears("/told");
    const next = await buried(messageId);
    assert.equal(JSON.parse(told.body).dlqId, next.dlqId);
    assert.notEqual(next.dlqId, letter.dlqId);
  },

  async "one is sent again by its path"() {
    const sink = await hopeless();
    const [letter] = await letters(sink, 1);
    sink.replies("/dead", {});
    const answer = await api("POST", `/v2/dlq/retry/${letter.dlqId}`);
    assert.equal(answer.status, 201, answer.text);
    await ended(answer.json.messageId, "DELIVERED");
    const gone = await api("POST", `/v2/dlq/retry/${letter.dlqId}`);
    assert.equal(gone.status, 404, gone.text);
    const unknown = await api("POST", `/v2/dlq/retry?dlqIds=${letter.dlqId}`);
    assert.ok(unknown.status === 404 || unknown.json?.responses.length === 0, unknown.text);
    await laterThan(1);
    assert.equal(sink.heard.length, 2);
  },

  async "what is to be hidden is hidden everywhere, and delivered"() {
    const sink = await hopeless();
    const SECRET = "4111-1111-1111-1111";
    const { messageId } = await client.publish({
      url: sink.url("/dead"),
      body: `card ${SECRET}`,
      headers: { "X-Secret": SECRET, "X-Open": "open", "Content-Type": "text/plain" },
      redact: { body: true, header: ["X-Secret"] },
      retries: 0,
    });
    const [heard] = await sink.hears("/dead");
    assert.equal(heard.body, `card ${SECRET}`);
    assert.equal(heard.headers["x-secret"], SECRET);
    const letter = await buried(messageId);
    const message = await client.messages.get(messageId);
    for (const told of [letter, message]) {
      assert.match(told.body, /^REDACTED:[0-9a-f]{64}$/i);
      assert.match(told.header["X-Secret"][0], /^REDACTED:/);
      assert.deepEqual(told.header["X-Open"], ["open"]);
    }
    const answers = await Promise.all([
      api("GET", `/v2/messages/${messageId}`),
      api("GET", `/v2/dlq/${letter.dlqId}`),
      api("GET", "/v2/dlq"),
      api("GET", `/v2/events?messageId=${messageId}`),
      api("GET", `/v2/logs?messageId=${messageId}`),
    ]);
    const encoded = Buffer.from(`card ${SECRET}`).toString("base64");
    for (const { status, text } of answers) {
      assert.equal(status, 200, text);
      assert.ok(!text.includes(SECRET) && !text.includes(encoded), text);
    }
    // The dead letter stays hidden; sent again, it is what it was.
    sink.replies("/dead", {});
    const { responses } = await client.dlq.retry(letter.dlqId);
    const again = (await sink.hears("/dead", 2))[1];
    assert.equal(again.body, `card ${SECRET}`);
    assert.equal(again.headers["x-secret"], SECRET);
    const hidden = await api("GET", `/v2/messages/${responses[0].messageId}`);
    assert.ok(!hidden.text.includes(SECRET), hidden.text);
  },

  async "all headers may be hidden"() {
    const sink = await Sink.start();
    const { messageId } = await client.publish({
      url: sink.url("/hidden"),
      body: "open",
      headers: { "X-One": "one-secret", "X-Two": "two-secret" },
      redact: { header: true },
    });
    const [heard] = await sink.hears("/hidden");
    assert.equal(heard.headers["x-one"], "one-secret");
    await ended(messageId, "DELIVERED");
    const message = await client.messages.get(messageId);
    assert.equal(message.body, "open");
    const events = await api("GET", `/v2/events?messageId=${messageId}`);
    assert.ok(!(JSON.stringify(message) + events.text).includes("-secret"), events.text);
    const docs = await api("POST", `/v2/publish/${sink.url("/hidden")}`, {
      headers: { "upstash-redact-fields": "body,headers", "upstash-forward-x-one": "one-secret" },
      body: "closed",
    });
    const told = await api("GET", `/v2/messages/${docs.json.messageId}`);
    assert.ok(!told.text.includes("-secret") && !told.text.includes("closed"), told.text);
  },
});
