// Several at once: url groups, batches, and what is sent twice but should be delivered once.

import { Sink, api, assert, buried, client, ended, laterThan, refused, run } from "./kit.mjs";

const header = (status) => ({ status, headers: { "Upstash-NonRetryable-Error": "true" } });

await run({
  async "a group delivers to each of its endpoints"() {
    const sink = await Sink.start();
    const name = "both.of-them_1";
    const endpoints = [{ url: sink.url("/g1"), name: "one" }, { url: sink.url("/g2") }];
    await client.urlGroups.delete(name);
    await client.urlGroups.addEndpoints({ name, endpoints });
    const group = await client.urlGroups.get(name);
    assert.equal(group.name, name);
    assert.ok(group.createdAt > 1.6e12 && group.updatedAt >= group.createdAt, JSON.stringify(group));
    assert.deepEqual(group.endpoints, endpoints);
    assert.ok((await client.urlGroups.list()).some((found) => found.name === name));

    const answers = await client.publishJSON({ urlGroup: name, body: { n: 1 }, headers: { "X-A": "b" } });
    assert.ok(Array.isArray(answers), JSON.stringify(answers));
    assert.deepEqual(
      answers.map((answer) => answer.url),
      [sink.url("/g1"), sink.url("/g2")],
    );
    for (const [index, path] of ["/g1", "/g2"].entries()) {
      const [heard] = await sink.hears(path);
      assert.equal(heard.body, '{"n":1}');
      assert.equal(heard.headers["x-a"], "b");
      assert.equal(heard.headers["upstash-topic-name"], name);
      assert.equal(heard.headers["upstash-message-id"], answers[index].messageId);
    }
    const message = await client.messages.get(answers[0].messageId);
    assert.equal(message.urlGroup, name);
    assert.equal(message.endpointName, "one");
    const { logs } = await client.logs({ filter: { urlGroup: name } });
    assert.equal(new Set(logs.map((line) => line.messageId)).size, 2);
  },

  async "endpoints come and go, and with the last one the group"() {
    const sink = await Sink.start();
    const name = "changing";
    await client.urlGroups.addEndpoints({ name, endpoints: [{ url: sink.url("/a"), name: "a" }] });
    await client.urlGroups.addEndpoints({ name, endpoints: [{ url: sink.url("/b") }] });
    // The same URL again is an update.
    await client.urlGroups.addEndpoints({ name, endpoints: [{ url: sink.url("/b"), name: "bee" }] });
    assert.deepEqual((await client.urlGroups.get(name)).endpoints, [
      { url: sink.url("/a"), name: "a" },
      { url: sink.url("/b"), name: "bee" },
    ]);
    await client.urlGroups.removeEndpoints({ name, endpoints: [{ name: "a" }] });
    const answers = await client.publish({ urlGroup: name, body: "x" });
    assert.deepEqual(
      answers.map((answer) => answer.url),
      [sink.url("/b")],
    );
    await client.urlGroups.removeEndpoints({ name, endpoints: [{ url: sink.url("/b") }] });
    await refused(404, client.urlGroups.get(name));
    await refused(404, client.publish({ urlGroup: name, body: "x" }));
    await sink.hears("/b");
    assert.equal(sink.at("/a").length, 0);
  },

  async "a group may have headers of its own"() {
    const sink = await Sink.start();
    const name = "with-headers";
    await client.urlGroups.addEndpoints({ name, endpoints: [{ url: sink.url("/h") }] });
    const options = {
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ headers: { "X-Group": ["of the group"] } }),
    };
    const answer = await api("PATCH", `/v2/topics/${name}`, options);
    assert.ok(answer.status < 300, answer.text);
    await client.publish({ urlGroup: name, body: "x" });
    assert.equal((await sink.hears("/h"))[0].headers["x-group"], "of the group");
  },

  async "a batch has urls, groups and queues"() {
    const sink = await Sink.start();
    const name = "in-a-batch";
    const endpoints = [{ url: sink.url("/e1") }, { url: sink.url("/e2") }];
    await client.urlGroups.addEndpoints({ name, endpoints });
    const answers = await client.batchJSON([
      { url: sink.url("/direct?x=1"), body: { n: 0 }, headers: { "X-Which": "direct" } },
      { urlGroup: name, body: { n: 1 } },
      { url: sink.url("/queued"), queueName: "batched", body: { n: 2 }, method: "PUT" },
      { url: sink.url("/no-body") },
    ]);
    assert.equal(answers.length, 4);
    assert.equal(answers[1].length, 2, "a group is an array in the array");
    const single = [answers[0], ...answers[1], answers[2], answers[3]];
    assert.equal(new Set(single.map((answer) => answer.messageId)).size, 5);
    const [direct] = await sink.hears("/direct");
    assert.equal(direct.url, "/direct?x=1");
    assert.equal(direct.body, '{"n":0}');
    assert.equal(direct.headers["x-which"], "direct");
    assert.equal(direct.headers["upstash-message-id"], answers[0].messageId);
    await sink.hears("/e1");
    await sink.hears("/e2");
    const [queued] = await sink.hears("/queued");
    assert.equal(queued.method, "PUT");
    assert.equal((await sink.hears("/no-body"))[0].body, "");
    const message = await client.messages.get(answers[2].messageId);
    assert.equal(message.queueName, "batched");
    assert.deepEqual(Object.keys((await client.messages.get(answers[0].messageId)).header).sort(), [
      "Content-Type",
      "X-Which",
    ]);
    assert.equal((await client.queue({ queueName: "batched" }).get()).parallelism, 1);
  },

  async "a large batch is taken in order"() {
    const sink = await Sink.start();
    const items = Array.from({ length: 200 }, (_, n) => ({ url: sink.url(`/n/${n}`), body: `${n}` }));
    const answers = await client.batch(items);
    assert.equal(answers.length, 200);
    for (const [n, answer] of answers.entries()) {
      const [heard] = await sink.hears(`/n/${n}`);
      assert.equal(heard.headers["upstash-message-id"], answer.messageId);
    }
  },

  async "the same id is the same message"() {
    const sink = await Sink.start();
    const publish = () =>
      client.publish({ url: sink.url("/id"), body: "x", deduplicationId: "order-4711" });
    const first = await publish();
    assert.ok(!first.deduplicated);
    const second = await publish();
    assert.equal(second.messageId, first.messageId);
    assert.equal(second.deduplicated, true);
    const raw = await api("POST", `/v2/publish/${sink.url("/id")}`, {
      headers: { "Upstash-Deduplication-Id": "order-4711" },
      body: "x",
    });
    assert.equal(raw.status, 202, raw.text);
    assert.deepEqual(raw.json, { messageId: first.messageId, deduplicated: true });
    await ended(first.messageId, "DELIVERED");
    assert.equal((await publish()).messageId, first.messageId, "after delivery as well");
    const other = await client.publish({ url: sink.url("/id"), deduplicationId: "order-4712" });
    assert.ok(!other.deduplicated && other.messageId !== first.messageId);
    await ended(other.messageId, "DELIVERED");
    assert.equal(sink.at("/id").length, 2);
  },

  async "many at the same moment with one id are one message"() {
    const sink = await Sink.start();
    const publish = () => client.publish({ url: sink.url("/race"), deduplicationId: "race" });
    const answers = await Promise.all(Array.from({ length: 20 }, publish));
    assert.equal(new Set(answers.map((answer) => answer.messageId)).size, 1);
    assert.equal(answers.filter((answer) => !answer.deduplicated).length, 1);
    await ended(answers[0].messageId, "DELIVERED");
    assert.equal(sink.at("/race").length, 1);
  },

  async "the same content is the same message"() {
    const sink = await Sink.start();
    const publish = (body, headers = {}) =>
      client.publishJSON({ url: sink.url("/content"), body, headers, contentBasedDeduplication: true });
    const first = await publish({ a: 1 });
    assert.ok(!first.deduplicated);
    const again = await publish({ a: 1 });
    assert.deepEqual([again.messageId, again.deduplicated], [first.messageId, true]);
    assert.ok(!(await publish({ a: 2 })).deduplicated, "another body");
    assert.ok(!(await publish({ a: 1 }, { "X-B": "c" })).deduplicated, "another header");
    await sink.hears("/content", 3);
  },

  async "a batch is deduplicated item by item, queues and groups too"() {
    const sink = await Sink.start();
    const item = { url: sink.url("/twice"), body: "x", deduplicationId: "twice" };
    const answers = await client.batch([item, item, { ...item, deduplicationId: "once" }]);
    assert.equal(answers[0].messageId, answers[1].messageId);
    assert.deepEqual(
      answers.map((answer) => answer.deduplicated ?? false),
      [false, true, false],
    );
    const queue = client.queue({ queueName: "dedup" });
    const first = await queue.enqueue({ url: sink.url("/q"), deduplicationId: "queued" });
    const second = await queue.enqueue({ url: sink.url("/q"), deduplicationId: "queued" });
    assert.deepEqual([second.messageId, second.deduplicated], [first.messageId, true]);
    const name = "dedup-group";
    const endpoints = [{ url: sink.url("/d1") }, { url: sink.url("/d2") }];
    await client.urlGroups.addEndpoints({ name, endpoints });
    const group = () => client.publish({ urlGroup: name, deduplicationId: "grouped" });
    const one = await group();
    const two = await group();
    assert.deepEqual(
      two.map((answer) => [answer.messageId, answer.deduplicated]),
      one.map((answer) => [answer.messageId, true]),
    );
    await sink.hears("/d1");
    await sink.hears("/d2");
    await laterThan(1);
    assert.deepEqual([sink.at("/d1").length, sink.at("/q").length, sink.at("/twice").length], [1, 1, 2]);
  },

  async "an id is free again when its message was given up"() {
    const sink = await Sink.start();
    sink.replies("/reopen", header(489), {});
    const publish = () => client.publish({ url: sink.url("/reopen"), deduplicationId: "reopen" });
    const first = await publish();
    await buried(first.messageId);
    const second = await publish();
    assert.ok(!second.deduplicated);
    assert.notEqual(second.messageId, first.messageId);
    await ended(second.messageId, "DELIVERED");
  },
});
