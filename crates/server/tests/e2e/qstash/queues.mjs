// Queues: in order, with a failing head, paused, and with several at once.

import { Sink, api, assert, client, door, ended, laterThan, refused, run, until } from "./kit.mjs";

const bodies = (heard) => heard.map((request) => request.body);

await run({
  async "a queue is made, changed, listed and deleted"() {
    const queue = client.queue({ queueName: "life.of-a_queue" });
    await queue.upsert({ parallelism: 2 });
    const made = await queue.get();
    assert.equal(made.name, "life.of-a_queue");
    assert.deepEqual([made.parallelism, made.lag, made.paused], [2, 0, false]);
    assert.ok(made.createdAt > 1.6e12 && made.updatedAt >= made.createdAt, JSON.stringify(made));
    await queue.upsert({ parallelism: 3, paused: true });
    const changed = await queue.get();
    assert.deepEqual([changed.parallelism, changed.paused], [3, true]);
    assert.equal(changed.createdAt, made.createdAt);
    assert.ok((await queue.list()).some((found) => found.name === made.name));
    await queue.delete();
    await refused(404, queue.get());
  },

  async "the order holds while the head fails"() {
    const sink = await Sink.start();
    sink.replies("/order", { status: 500 }, { status: 503 }, {});
    const queue = client.queue({ queueName: "failing-head" });
    const ids = [];
    for (let n = 0; n < 10; n += 1) {
      const item = { url: sink.url("/order"), body: `${n}`, retries: 3, retryDelay: "300" };
      ids.push((await queue.enqueue(item)).messageId);
    }
    const heard = await sink.hears("/order", 12);
    assert.deepEqual(bodies(heard), ["0", "0", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert.equal(sink.mostInFlight, 1);
    assert.ok(heard[1].at - heard[0].at >= 295 && heard[2].at - heard[1].at >= 295);
    assert.deepEqual(
      heard.slice(0, 3).map((request) => request.headers["upstash-retried"]),
      ["0", "1", "2"],
    );
    for (const id of ids) await ended(id, "DELIVERED");
    assert.equal((await queue.get()).lag, 0);
    assert.equal((await client.messages.get(ids[0])).queueName, "failing-head");
  },

  async "a head that is given up makes room, after its callbacks"() {
    const sink = await Sink.start();
    sink.replies("/dies", { status: 500 });
    const told = door();
    sink.replies("/told", { when: told.opened });
    const queue = client.queue({ queueName: "dying-head" });
    await queue.enqueue({ url: sink.url("/dies"), retries: 0, failureCallback: sink.url("/told") });
    await queue.enqueue({ url: sink.url("/next") });
    await sink.hears("/told");
    await laterThan(1);
    assert.equal(sink.at("/next").length, 0, "the callback is not over");
    told.open();
    await sink.hears("/next");
  },

  async "a paused queue takes everything and delivers nothing"() {
    const sink = await Sink.start();
    const queue = client.queue({ queueName: "paused" });
    await queue.upsert({ parallelism: 1, paused: true });
    for (let n = 0; n < 3; n += 1) await queue.enqueue({ url: sink.url("/p"), body: `${n}` });
    await laterThan(1);
    assert.equal(sink.heard.length, 0);
    assert.equal((await queue.get()).lag, 3);
    await queue.resume();
    assert.deepEqual(bodies(await sink.hears("/p", 3)), ["0", "1", "2"]);

    await queue.pause();
    assert.equal((await queue.get()).paused, true);
    await queue.enqueue({ url: sink.url("/p"), body: "3" });
    await laterThan(1);
    assert.equal(sink.heard.length, 3);
    await queue.resume();
    assert.deepEqual(bodies(await sink.hears("/p", 4)), ["0", "1", "2", "3"]);
  },

  async "a wider queue has several under way, and no more"() {
    const sink = await Sink.start();
    const held = door();
    sink.replies("/wide", { when: held.opened });
    const queue = client.queue({ queueName: "wide" });
    await queue.upsert({ parallelism: 3 });
    for (let n = 0; n < 12; n += 1) await queue.enqueue({ url: sink.url("/wide"), body: `${n}` });
    await sink.hears("/wide", 3);
    await laterThan(1);
    assert.equal(sink.heard.length, 3, "the fourth waits");
    held.open();
    await sink.hears("/wide", 12);
    assert.ok(sink.mostInFlight <= 3, String(sink.mostInFlight));
    await until("nothing to be left", async () => (await queue.get()).lag === 0);
  },

  async "a queue of one destination does not wait for another queue"() {
    const sink = await Sink.start();
    const held = door();
    sink.replies("/slow", { when: held.opened });
    await client.queue({ queueName: "slow" }).enqueue({ url: sink.url("/slow") });
    await sink.hears("/slow");
    await client.queue({ queueName: "fast" }).enqueue({ url: sink.url("/fast") });
    await sink.hears("/fast");
    held.open();
  },

  async "what is cancelled in a queue makes room"() {
    const sink = await Sink.start();
    sink.replies("/head", { status: 500 });
    const queue = client.queue({ queueName: "cancelled-head" });
    const head = { url: sink.url("/head"), retries: 5, retryDelay: "3600000" };
    const { messageId } = await queue.enqueue(head);
    await queue.enqueue({ url: sink.url("/after") });
    await ended(messageId, "ERROR");
    assert.equal(sink.at("/after").length, 0);
    const cancelled = await client.messages.cancel({ filter: { queueName: "cancelled-head", url: head.url } });
    assert.equal(cancelled.cancelled, 1);
    await sink.hears("/after");
    assert.equal(sink.at("/head").length, 1);
  },

  async "a group may be enqueued, and everything else of a message"() {
    const sink = await Sink.start();
    const endpoints = [{ url: sink.url("/e1") }, { url: sink.url("/e2") }];
    await client.urlGroups.addEndpoints({ name: "queued-group", endpoints });
    const queue = client.queue({ queueName: "of-groups" });
    const answers = await queue.enqueueJSON({
      urlGroup: "queued-group",
      body: { a: 1 },
      headers: { "X-Mine": "yes" },
      label: "queued",
    });
    assert.equal(answers.length, 2);
    for (const path of ["/e1", "/e2"]) {
      const [heard] = await sink.hears(path);
      assert.equal(heard.body, '{"a":1}');
      assert.equal(heard.headers["x-mine"], "yes");
      assert.equal(heard.headers["content-type"], "application/json");
    }
    const message = await client.messages.get(answers[0].messageId);
    assert.deepEqual([message.queueName, message.label], ["of-groups", "queued"]);
    const { logs } = await client.logs({ filter: { queueName: "of-groups" } });
    assert.equal(new Set(logs.map((line) => line.messageId)).size, 2);
  },

  async "a queue is made by the first message"() {
    const sink = await Sink.start();
    const path = `/v2/enqueue/by-itself/${sink.url("/made//here?x=%2F")}`;
    const answer = await api("POST", path, { body: "x" });
    assert.equal(answer.status, 200, answer.text);
    assert.equal((await sink.hears("/made//here"))[0].url, "/made//here?x=%2F");
    const queue = await client.queue({ queueName: "by-itself" }).get();
    assert.deepEqual([queue.parallelism, queue.paused], [1, false]);
  },
});
