// What is refused, with which words, and that nothing of it is stored.

import { Client, Sink, URL_OF_SERVER, api, assert, client, refused, run } from "./kit.mjs";

const URL_ = "http://127.0.0.1:9/never";

/** A request that must be refused with `{"error": …}`. */
async function bad(status, method, path, options) {
  const answer = await api(method, path, options);
  assert.equal(answer.status, status, `${method} ${path}: ${answer.text}`);
  assert.equal(typeof answer.json?.error, "string", `${method} ${path}: ${answer.text}`);
  return answer.json.error;
}

const published = (headers, destination = URL_) =>
  bad(400, "POST", `/v2/publish/${destination}`, { headers, body: "x" });

await run({
  async "whoever has no token is told so"() {
    const stranger = new Client({ baseUrl: URL_OF_SERVER, token: "not-the-token", retry: false });
    const text = await refused(401, stranger.publish({ url: URL_ }));
    assert.equal(text, "unable to authenticate: invalid token");
    await bad(401, "GET", "/v2/queues", { token: null });
  },

  async "a colon in a deduplication id"() {
    const text = await refused(400, client.publish({ url: URL_, deduplicationId: "a:b" }));
    assert.equal(text, "DeduplicationId cannot contain ':'");
  },

  async "a destination that is none"() {
    const scheme = /invalid scheme/;
    assert.match(await refused(400, client.publish({ url: "ftp://host.example/x" })), scheme);
    assert.match(await refused(404, client.publish({ urlGroup: "nobody" })), /topic nobody not found/);
    assert.match(await bad(400, "POST", "/v2/publish/"), /non-empty destination/);
    await bad(400, "POST", "/v2/publish/http://");
    await bad(400, "POST", "/v2/publish/https://:99999/x");
  },

  async "headers that make no sense"() {
    const wrong = {
      "Upstash-Retries": ["-1", "many", "1.5"],
      "Upstash-Delay": ["soon", "5", "5w", "-5s", "s"],
      "Upstash-Not-Before": ["tomorrow", "-1"],
      "Upstash-Timeout": ["forever", "10"],
      "Upstash-Method": ["TELEPORT"],
      "Upstash-Retry-Delay": ["pow(2", "1000 +", "system(1)", "retires"],
      "Upstash-Callback": ["not-a-url", "ftp://x.example/"],
      "Upstash-Failure-Callback": ["nowhere"],
    };
    for (const [name, values] of Object.entries(wrong)) {
      for (const value of values) await published({ [name]: value });
    }
  },

  async "a callback that is delayed"() {
    await published({ "Upstash-Callback": URL_, "Upstash-Callback-Delay": "10s" });
  },

  async "flow control that makes no sense"() {
    for (const value of ["parallelism=0", "rate=x", "period=8d, rate=1", "speed=1", ""]) {
      await published({ "Upstash-Flow-Control-Key": "k", "Upstash-Flow-Control-Value": value });
    }
    await bad(404, "GET", "/v2/flowControl/k");
  },

  async "a schedule that never comes"() {
    const cron = (cron) => client.schedules.create({ destination: URL_, cron });
    for (const wrong of ["* * * *", "61 * * * *", "* * * * * *", "every minute", "CRON_TZ=Mars/Base * * * * *"]) {
      assert.match(await refused(400, cron(wrong)), /cron/i);
    }
    await bad(400, "POST", `/v2/schedules/${URL_}`);
    assert.deepEqual(await client.schedules.list(), []);
  },

  async "names with letters that are not allowed"() {
    await refused(400, client.queue({ queueName: "a b" }).upsert({ parallelism: 1 }));
    await refused(400, client.queue({ queueName: "q" }).upsert({ parallelism: 0 }));
    await bad(400, "POST", `/v2/enqueue/a$b/${URL_}`);
    const create = { destination: URL_, cron: "0 0 1 1 *", scheduleId: "no spaces here" };
    await refused(400, client.schedules.create(create));
    await refused(400, client.urlGroups.addEndpoints({ name: "g r", endpoints: [{ url: URL_ }] }));
    await refused(400, client.urlGroups.addEndpoints({ name: "g", endpoints: [{ url: "x" }] }));
  },

  async "a filter that nobody knows"() {
    const mistyped = { filter: { labeel: "x" } };
    await refused(400, client.dlq.listMessages(mistyped));
    await refused(400, client.logs(mistyped));
    await refused(400, client.messages.cancel(mistyped));
    await refused(400, client.dlq.delete(mistyped));
    await refused(400, client.dlq.retry(mistyped));
    await bad(400, "GET", "/v2/dlq?count=many");
    await bad(400, "GET", "/v2/events?state=HAPPY");
    await bad(400, "GET", "/v2/dlq?cursor=%25%25");
    await bad(400, "GET", "/v2/events?fromDate=yesterday");
  },

  async "a mistyped filter cancels nothing, and an empty list neither"() {
    const sink = await Sink.start();
    const { messageId } = await client.publish({ url: sink.url("/stays"), delay: 2 });
    await refused(400, client.messages.cancel({ filter: { labeel: "x" } }));
    for (const body of ['{"messageIds":[]}', '{"messageids":["x"]}', "[]", "{", '"all"']) {
      const options = { headers: { "content-type": "application/json" }, body };
      const answer = await api("DELETE", "/v2/messages", options);
      const nothing = answer.status === 400 || answer.json?.cancelled === 0;
      assert.ok(nothing, `${body}: ${answer.status} ${answer.text}`);
    }
    const none = await api("DELETE", "/v2/messages?messageIds=");
    assert.ok(none.status === 400 || none.json?.cancelled === 0, none.text);
    await sink.hears("/stays");
    assert.ok((await client.messages.get(messageId)).messageId);
  },

  async "what is not there"() {
    await refused(404, client.messages.get("msg_nobody"));
    await refused(404, client.messages.cancel("msg_nobody"));
    await refused(404, client.dlq.delete("1725323658779-0"));
    await refused(404, client.queue({ queueName: "nobody" }).get());
    await refused(404, client.schedules.get("nobody"));
    await refused(404, client.urlGroups.get("nobody"));
    await refused(404, client.flowControl.get("nobody"));
    await bad(404, "GET", "/v2/dlq/1725323658779-0");
    // The Python SDK's users delete groups before they make them.
    await client.urlGroups.delete("nobody");
  },

  async "a batch with one bad item is refused as a whole"() {
    const sink = await Sink.start();
    const items = (...headers) =>
      JSON.stringify(headers.map((h) => ({ destination: sink.url("/batch"), headers: h, body: "x" })));
    const json = { "content-type": "application/json" };
    const text = await bad(400, "POST", "/v2/batch", {
      headers: json,
      body: items({}, { "Upstash-Delay": "soon" }),
    });
    assert.ok(text.length > 0);
    for (const body of ["", "{}", "[", "[1]", '[{"headers":{}}]']) {
      await bad(400, "POST", "/v2/batch", { headers: json, body });
    }
    await client.publish({ url: sink.url("/marker") });
    await sink.hears("/marker");
    assert.equal(sink.at("/batch").length, 0);
  },

  async "other products are not here, and say so"() {
    assert.match(await bad(404, "POST", "/v2/publish/api/llm", { body: "{}" }), /llm/);
    await bad(404, "DELETE", "/v2/workflows/runs/wfr_1?cancel=true");
    await bad(404, "POST", "/v2/notify/event", { body: "{}" });
    await bad(404, "GET", "/v2/nothing-like-this");
    assert.equal((await api("POST", "/llm/v1/chat/completions", { body: "{}" })).status, 404);
  },
});
