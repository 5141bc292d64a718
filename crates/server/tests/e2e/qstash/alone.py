"""What concerns everything at once, so one after the other: rotation of the keys, and cancelling all."""

from qstash import Receiver
from qstash.errors import SignatureError

from kit import Sink, client, ended, later_than, receiver, run


def a_receiver_outlives_one_rotation():
    before = client.signing_key.get()
    old = receiver()
    sink = Sink(verifier=None)

    def delivered(path):
        client.message.publish_json(url=sink.url(path), body={"at": path})
        heard = sink.hears(path)[0]
        return {"signature": heard.headers["Upstash-Signature"], "body": heard.body, "url": sink.url(path)}

    def fails(verifier, delivery):
        try:
            verifier.verify(**delivery)
        except SignatureError:
            return
        raise AssertionError("was taken")

    old.verify(**delivered("/first"))
    once = client.signing_key.rotate()
    assert once.current == before.next and once.next not in (before.current, before.next)
    assert client.signing_key.get() == once
    second = delivered("/second")
    old.verify(**second)
    receiver().verify(**second)
    fails(Receiver(before.current, before.current), second)
    client.signing_key.rotate()
    third = delivered("/third")
    fails(old, third)
    receiver().verify(**third)


def everything_is_cancelled():
    sink = Sink()
    ids = [client.message.publish(url=sink.url("/all"), delay=2).message_id for _ in range(5)]
    # Nobody names anything: no body, no filter.
    assert client.message.cancel_all() == 5
    for message_id in ids:
        ended(message_id, "CANCELED")
    assert client.message.cancel_all() == 0
    later_than(3)
    assert sink.heard == []


def an_empty_list_names_nothing():
    sink = Sink()
    client.message.publish(url=sink.url("/stays"), delay=2)
    try:
        assert client.message.cancel_many([]) == 0
    except Exception as refusal:
        assert "status: 400" in str(refusal), refusal
    try:
        assert client.dlq.delete_many([]) == 0
    except Exception as refusal:
        assert "status: 400" in str(refusal), refusal
    sink.hears("/stays")


run(
    a_receiver_outlives_one_rotation,
    everything_is_cancelled,
    an_empty_list_names_nothing,
    one_by_one=True,
)
