"""What a schema cannot say, said to schemathesis.

Days that can still be booked and moments that a silence may end at depend on the day of the test; time zones and cron
expressions are languages of their own; and two keys of one request have to be the same.
"""

import datetime
import json
import uuid

import schemathesis
from hypothesis import strategies as st

days = st.dates(datetime.date(2100, 1, 1), datetime.date(2199, 12, 31))
moments = st.datetimes(datetime.datetime(2020, 1, 1), datetime.datetime(2025, 12, 31))
schemathesis.openapi.format("date", days.map(str))
schemathesis.openapi.format("date-time", moments.map(lambda at: at.isoformat(timespec="milliseconds") + "Z"))
schemathesis.openapi.format("time-zone", st.sampled_from(["Asia/Tokyo", "UTC", "Europe/Berlin"]))
schemathesis.openapi.format("cron", st.sampled_from(["*/5 * * * *", "0 9 * * 1", "CRON_TZ=Asia/Tokyo 0 0 1 * *"]))

KEYS = ("idempotency_key", "idempotencyKey")


@schemathesis.hook
def before_call(context, case, kwargs):
    """Makes a request that is right in each of its parts right as a whole."""
    meta = case.meta
    if meta is None or not meta.generation.mode.is_positive or not isinstance(case.body, dict):
        return
    # A key stands in the header, in the body, or is the same in both; a reservation has one somewhere.
    named = next((case.body[name] for name in KEYS if isinstance(case.body.get(name), str)), None)
    if named is not None and "Idempotency-Key" in (case.headers or {}):
        if named.isascii() and named.isprintable() and named == named.strip():
            case.headers["Idempotency-Key"] = named
        else:
            del case.headers["Idempotency-Key"]
    elif named is None and case.operation.label == "POST /reservations":
        text = json.dumps(case.body, sort_keys=True)
        if not case.headers.get("Idempotency-Key"):
            case.headers["Idempotency-Key"] = str(uuid.uuid5(uuid.NAMESPACE_OID, text))
    # Prices are decimal: they have at most 15 places.
    if case.operation.label == "POST /do/order" and isinstance(case.body.get("price"), float):
        case.body["price"] = max(round(case.body["price"], 6), 0.000001)
