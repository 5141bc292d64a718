"""Publishing, batches, groups, deduplication and what can be asked about a message, with the Python client."""

import base64
import json
import time

from qstash import QStash, Receiver
from qstash.errors import QStashError, SignatureError
from qstash.log import LogState
from qstash.message import PublishResponse

from kit import NEVER, TOKEN, URL, Sink, buried, client, ended, later_than, logs, receiver, refused, run


def the_destination_is_taken_as_it_is():
    sink = Sink()
    for target in ["/plain", "//two//slashes///", "/a%20b/%2F?x=1&y=2&x=%3D%26", "/?only=query"]:
        answer = client.message.publish(url=sink.url(target), body=target)
        assert isinstance(answer, PublishResponse) and not answer.deduplicated
        heard = sink.hears(target.split("?")[0])[0]
        assert (heard.target, heard.body, heard.id) == (target, target, answer.message_id)
        assert client.message.get(answer.message_id).url == sink.url(target)


def json_arrives_and_stays_readable():
    sink = Sink()
    body = {"hello": "確か 🦀", "n": [1, None]}
    answer = client.message.publish_json(
        url=sink.url("/json"),
        body=body,
        headers={"Test-Header": "test-value"},
        retries=5,
        label="of-python",
    )
    heard = sink.hears("/json")[0]
    assert json.loads(heard.body) == body
    assert heard.method == "POST"
    assert heard.headers["Content-Type"] == "application/json"
    assert heard.headers["Test-Header"] == "test-value"
    assert heard.headers["User-Agent"] == "Upstash-QStash"
    assert heard.headers["Upstash-Retried"] == "0"
    assert heard.headers["Authorization"] is None
    lines = ended(answer.message_id, "DELIVERED")
    assert [line.state for line in lines] == [LogState.CREATED, LogState.ACTIVE, LogState.DELIVERED]
    assert all(line.url == sink.url("/json") and line.label == "of-python" for line in lines)
    assert base64.b64decode(lines[0].body_base64).decode() == heard.body
    message = client.message.get(answer.message_id)
    assert message.body == heard.body and message.body_base64 is None
    assert message.headers == {"Content-Type": ["application/json"], "Test-Header": ["test-value"]}
    assert (message.method, message.max_retries, message.label) == ("POST", 5, "of-python")
    assert abs(message.created_at / 1000 - time.time()) < 120
    assert message.caller_ip == "127.0.0.1"
    assert message.queue is None and message.url_group is None and message.flow_control is None


def every_method_and_no_body():
    sink = Sink()
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"]:
        client.message.publish(url=sink.url(f"/{method}"), method=method, body=f"by {method}")
        heard = sink.hears(f"/{method}")[0]
        assert (heard.method, heard.body) == (method, f"by {method}")
    answer = client.message.publish(url=sink.url("/empty"))
    assert sink.hears("/empty")[0].bytes == b""
    message = client.message.get(answer.message_id)
    assert message.body is None and message.body_base64 is None


def bytes_that_are_no_text():
    sink = Sink(verifier=None)
    answer = client.message.publish(url=sink.url("/bytes"), body=b"\xff\x00\x80")
    assert sink.hears("/bytes")[0].bytes == b"\xff\x00\x80"
    message = client.message.get(answer.message_id)
    assert message.body is None
    assert base64.b64decode(message.body_base64) == b"\xff\x00\x80"


def delay_and_not_before():
    sink = Sink()
    began = time.time()
    not_before = int(began) + 3
    client.message.publish(url=sink.url("/delay"), delay=2)
    client.message.publish(url=sink.url("/string"), delay="1s")
    client.message.publish(url=sink.url("/date"), not_before=not_before)
    assert sink.hears("/string")[0].at >= began + 1
    assert sink.hears("/delay")[0].at >= began + 2
    assert sink.hears("/date")[0].at >= not_before


def a_group_gets_an_answer_per_endpoint():
    sink = Sink()
    client.url_group.delete("of-python")
    endpoints = [{"url": sink.url("/g1"), "name": "one"}, {"url": sink.url("/g2")}]
    client.url_group.upsert_endpoints("of-python", endpoints)
    group = client.url_group.get("of-python")
    assert [(e.url, e.name) for e in group.endpoints] == [(sink.url("/g1"), "one"), (sink.url("/g2"), None)]
    assert any(found.name == "of-python" for found in client.url_group.list())
    answers = client.message.publish_json(url_group="of-python", body={"a": 1})
    assert [answer.url for answer in answers] == [sink.url("/g1"), sink.url("/g2")]
    for answer, path in zip(answers, ["/g1", "/g2"]):
        heard = sink.hears(path)[0]
        assert heard.id == answer.message_id and heard.headers["Upstash-Topic-Name"] == "of-python"
    message = client.message.get(answers[0].message_id)
    assert (message.url_group, message.endpoint) == ("of-python", "one")
    client.url_group.remove_endpoints("of-python", [{"name": "one"}, {"url": sink.url("/g2")}])
    refused(404, lambda: client.url_group.get("of-python"))


def a_batch_with_urls_groups_and_queues():
    sink = Sink()
    client.url_group.upsert_endpoints("batch-group", [{"url": sink.url("/e1")}, {"url": sink.url("/e2")}])
    answers = client.message.batch_json(
        [
            {"url": sink.url("/direct"), "body": {"n": 0}, "headers": {"X-A": "b"}, "retries": 7},
            {"url_group": "batch-group", "body": {"n": 1}},
            {"url": sink.url("/queued"), "queue": "batched", "body": {"n": 2}},
            {"url": sink.url("/null")},
        ]
    )
    assert len(answers) == 4 and len(answers[1]) == 2
    heard = sink.hears("/direct")[0]
    assert (heard.body, heard.headers["X-A"], heard.id) == ('{"n": 0}', "b", answers[0].message_id)
    assert client.message.get(answers[0].message_id).max_retries == 7
    sink.hears("/e1")
    sink.hears("/e2")
    sink.hears("/queued")
    assert sink.hears("/null")[0].body == "null"
    assert client.message.get(answers[2].message_id).queue == "batched"
    plain = {"url": sink.url("/raw"), "body": "text", "content_type": "text/x-raw"}
    raw = client.message.batch([plain, {"url": sink.url("/none")}])
    assert len(raw) == 2
    assert sink.hears("/raw")[0].headers["Content-Type"] == "text/x-raw"
    assert sink.hears("/none")[0].body == ""


def the_same_id_and_the_same_content():
    sink = Sink()
    first = client.message.publish(url=sink.url("/id"), deduplication_id="one")
    second = client.message.publish(url=sink.url("/id"), deduplication_id="one")
    assert (second.message_id, second.deduplicated) == (first.message_id, True)
    text = refused(400, lambda: client.message.publish(url=sink.url("/id"), deduplication_id="a:b"))
    assert text == "DeduplicationId cannot contain ':'", text

    def by_content(body, wanted=True):
        return client.message.publish(url=sink.url("/content"), body=body, content_based_deduplication=wanted)

    # This client sends `True` and `False`.
    one, two = by_content("x"), by_content("x")
    assert not one.deduplicated and two.deduplicated and one.message_id == two.message_id
    assert not by_content("y").deduplicated
    assert not by_content("z", False).deduplicated and not by_content("z", False).deduplicated
    sink.hears("/content", 4)
    assert len(sink.hears("/id")) == 1


def what_is_hidden_is_delivered():
    sink = Sink()
    sink.replies("/secret", NEVER, {})
    answer = client.message.publish(
        url=sink.url("/secret"),
        body="a-secret-body",
        headers={"X-Key": "a-secret-key", "X-Open": "open"},
        redact={"body": True, "header": ["X-Key"]},
    )
    letter = buried(answer.message_id)
    heard = sink.hears("/secret")[0]
    assert (heard.body, heard.headers["X-Key"]) == ("a-secret-body", "a-secret-key")
    encoded = base64.b64encode(b"a-secret-body").decode()
    told = [letter, client.message.get(answer.message_id), client.dlq.get(letter.dlq_id), *logs(answer.message_id)]
    for one in told:
        assert "a-secret-" not in repr(one) and encoded not in repr(one), one
    assert letter.body.startswith("REDACTED:") and letter.headers["X-Open"] == ["open"]


def cancelled_by_id_by_list_and_not_more():
    sink = Sink()
    publish = lambda path: client.message.publish(url=sink.url(path), delay=3).message_id
    one, a, b, kept = publish("/one"), publish("/a"), publish("/b"), publish("/kept")
    client.message.cancel(one)
    # This client names them in the body: a server that did not look would cancel everything.
    assert client.message.cancel_many([a, b]) == 2
    for message_id in [one, a, b]:
        ended(message_id, "CANCELED")
    sink.hears("/kept")
    later_than(3)
    assert [heard.id for heard in sink.heard] == [kept]
    refused(404, lambda: client.message.cancel("msg_nobody"))


def logs_by_filter_and_in_pages():
    sink = Sink()
    ids = [client.message.publish(url=sink.url("/pages")).message_id for _ in range(4)]
    for message_id in ids:
        ended(message_id, "DELIVERED")
    seen, cursor = [], None
    while True:
        page = client.log.list(count=5, cursor=cursor, filter={"url": sink.url("/pages")})
        seen += [(line.message_id, line.state) for line in page.logs]
        cursor = page.cursor
        if not cursor:
            break
    assert len(seen) == 12 == len(set(seen)), seen
    delivered = client.log.list(filter={"message_ids": ids[:2], "state": LogState.DELIVERED}).logs
    assert sorted(line.message_id for line in delivered) == sorted(ids[:2])
    nothing = client.log.list(filter={"url": sink.url("/pages"), "to_time": 1000}).logs
    assert nothing == []


def what_is_wrong_is_told():
    assert "invalid scheme" in refused(400, lambda: client.message.publish(url="ftp://x.example/"))
    assert "not found" in refused(404, lambda: client.message.publish(url_group="nobody"))
    cron = lambda: client.schedule.create(destination="http://127.0.0.1:9/", cron="61 * * * *")
    assert "cron" in refused(400, cron).lower()
    stranger = QStash("not-the-token", base_url=URL)
    assert refused(401, stranger.queue.list) == "unable to authenticate: invalid token"
    refused(404, lambda: client.message.get("msg_nobody"))


def a_forged_delivery_is_noticed():
    sink = Sink()
    client.message.publish(url=sink.url("/signed"), body="hello")
    heard = sink.hears("/signed")[0]
    signature = heard.headers["Upstash-Signature"]
    receiver().verify(signature=signature, body="hello", url=sink.url("/signed"))
    for wrong in [{"body": "hello "}, {"url": sink.url("/other")}, {"signature": signature[:-4] + "AAAA"}]:
        try:
            receiver().verify(**{"signature": signature, "body": "hello", "url": sink.url("/signed"), **wrong})
        except SignatureError:
            continue
        raise AssertionError(f"was taken: {wrong}")
    try:
        Receiver("sig_" + "x" * 28, "sig_" + "y" * 28).verify(signature=signature, body="hello")
    except QStashError:
        return
    raise AssertionError("was taken with other keys")


run(
    the_destination_is_taken_as_it_is,
    json_arrives_and_stays_readable,
    every_method_and_no_body,
    bytes_that_are_no_text,
    delay_and_not_before,
    a_group_gets_an_answer_per_endpoint,
    a_batch_with_urls_groups_and_queues,
    the_same_id_and_the_same_content,
    what_is_hidden_is_delivered,
    cancelled_by_id_by_list_and_not_more,
    logs_by_filter_and_in_pages,
    what_is_wrong_is_told,
    a_forged_delivery_is_noticed,
)
