// Schedules: made, read, changed, paused, deleted. How they fire is in `minutes.mjs`.

import { Sink, api, assert, client, refused, run } from "./kit.mjs";

const FAR = "0 0 1 1 *";

await run({
  async "a schedule is made, read, listed, paused and deleted"() {
    const sink = await Sink.start();
    const destination = sink.url("/never?x=1");
    const { scheduleId } = await client.schedules.create({
      destination,
      cron: "CRON_TZ=Asia/Tokyo 30 9 * * 1-5 ",
      body: JSON.stringify({ a: 1 }),
      headers: { "X-Mine": "1" },
      retries: 5,
      retryDelay: "1000 * retried",
      delay: 30,
      timeout: 20,
      callback: sink.url("/callback"),
      failureCallback: sink.url("/failure"),
      label: ["one", "two"],
      method: "PUT",
      flowControl: { key: "scheduled", parallelism: 2 },
    });
    assert.match(scheduleId, /^scd_/);
    const schedule = await client.schedules.get(scheduleId);
    assert.equal(schedule.scheduleId, scheduleId);
    assert.equal(schedule.destination, destination);
    assert.equal(schedule.cron, "CRON_TZ=Asia/Tokyo 30 9 * * 1-5");
    assert.deepEqual([schedule.method, schedule.retries, schedule.delay], ["PUT", 5, 30]);
    assert.equal(schedule.timeout, 20);
    assert.equal(schedule.body, '{"a":1}');
    assert.deepEqual(schedule.header, { "Content-Type": ["application/json"], "X-Mine": ["1"] });
    assert.equal(schedule.callback, sink.url("/callback"));
    assert.equal(schedule.failureCallback, sink.url("/failure"));
    assert.equal(schedule.retryDelayExpression, "1000 * retried");
    assert.deepEqual([schedule.label, schedule.labels], ["one", ["one", "two"]]);
    assert.deepEqual([schedule.flowControlKey, schedule.parallelism, schedule.period], ["scheduled", 2, 1]);
    assert.ok(!("rate" in schedule));
    assert.equal(schedule.isPaused, false);
    assert.ok(schedule.createdAt > 1.6e12);
    const next = new Date(schedule.nextScheduleTime);
    assert.deepEqual([next.getUTCHours(), next.getUTCMinutes()], [0, 30], "half past nine in Tokyo");
    assert.ok((await client.schedules.list()).some((found) => found.scheduleId === scheduleId));

    await client.schedules.pause({ schedule: scheduleId });
    assert.equal((await client.schedules.get(scheduleId)).isPaused, true);
    await client.schedules.resume({ schedule: scheduleId });
    assert.equal((await client.schedules.get(scheduleId)).isPaused, false);
    // The documentation has these as POST.
    assert.ok((await api("POST", `/v2/schedules/${scheduleId}/pause`)).status < 300);
    assert.equal((await client.schedules.get(scheduleId)).isPaused, true);

    await client.schedules.delete(scheduleId);
    await refused(404, client.schedules.get(scheduleId));
  },

  async "the same id overwrites, and what is not said is gone"() {
    const sink = await Sink.start();
    const scheduleId = "my.own-schedule_1";
    const destination = sink.url("/first");
    const first = { destination, cron: FAR, scheduleId, body: "old", retries: 9, delay: 60, label: "old" };
    assert.deepEqual(await client.schedules.create(first), { scheduleId });
    await client.schedules.create({ destination: sink.url("/second"), cron: "0 1 1 1 *", scheduleId });
    const schedule = await client.schedules.get(scheduleId);
    assert.equal(schedule.destination, sink.url("/second"));
    assert.equal(schedule.cron, "0 1 1 1 *");
    assert.equal(schedule.retries, 3);
    for (const gone of ["body", "bodyBase64", "delay", "label"]) {
      assert.equal(schedule[gone], undefined, `${gone}: ${JSON.stringify(schedule)}`);
    }
    const all = (await client.schedules.list()).filter((found) => found.scheduleId === scheduleId);
    assert.equal(all.length, 1);
  },

  async "what is to be hidden is hidden in a schedule as well"() {
    const sink = await Sink.start();
    const { scheduleId } = await client.schedules.create({
      destination: sink.url("/hidden"),
      cron: FAR,
      body: "a-secret-body",
      headers: { "X-Key": "a-secret-key" },
      redact: { body: true, header: ["X-Key"] },
    });
    const schedule = await client.schedules.get(scheduleId);
    assert.match(schedule.body, /^REDACTED:/);
    assert.match(schedule.header["X-Key"][0], /^REDACTED:/);
    const list = await api("GET", "/v2/schedules");
    assert.ok(!list.text.includes("a-secret-"), list.text);
  },
});
