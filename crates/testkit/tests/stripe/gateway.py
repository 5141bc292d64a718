"""Drives the scripted gateway with Stripe's own package for Python. Any failed assertion ends it with a status other than 0.

    gateway.py life       everything that goes over the wire
    gateway.py webhook    a signed event, from EVENT, SIGNATURE, SECRET and TYPE

The payments whose names stand in `stripe_packages.rs` meet faults there.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import stripe

stripe.api_key = "sk_test_scripted"
stripe.max_network_retries = 0


def code_of(error):
    """`error.code` is empty for a 409, a 429 and a 500; the body has it."""
    return getattr(error.error, "code", None)


def refused(kind, work, code=None, status=None):
    """The error that `work` must end in."""
    try:
        result = work()
    except stripe.StripeError as error:
        assert type(error) is kind, f"{type(error)} instead of {kind}: {error}"
        assert code_of(error) == code, f"{code_of(error)} instead of {code}"
        assert status is None or error.http_status == status, error.http_status
        assert status is None or error.request_id.startswith("req_"), error.request_id
        return error
    raise AssertionError(f"not refused: {result}")


def create(payment_id, method="pm_card_visa", **more):
    return stripe.PaymentIntent.create(
        amount=5000, currency="jpy", capture_method="manual", payment_method=method,
        metadata={"payment_id": payment_id, "note": "a+b & c=ü"}, **more)


def payment():
    customer = stripe.Customer.create(email="a@example.com")
    method = stripe.PaymentMethod.attach("pm_card_visa", customer=customer.id)
    card = {"number": "4242424242424242", "exp_month": 12, "exp_year": 2099, "cvc": "123"}
    made = stripe.PaymentMethod.create(type="card", card=card)
    assert stripe.PaymentMethod.retrieve(made.id).card.last4 == "4242"
    assert stripe.Customer.retrieve(customer.id).email == "a@example.com"
    pi = create("paid", method.id, customer=customer.id, description="two words")
    assert pi.status == "requires_confirmation" and pi.metadata["note"] == "a+b & c=ü"
    assert pi.description == "two words" and pi.customer == customer.id
    pi = stripe.PaymentIntent.confirm(pi.id)
    assert (pi.status, pi.amount_capturable, pi.amount_received) == ("requires_capture", 5000, 0)
    refused(stripe.InvalidRequestError, lambda: stripe.PaymentIntent.confirm(pi.id),
            "payment_intent_unexpected_state", 400)
    pi = stripe.PaymentIntent.capture(pi.id, amount_to_capture=3000)
    assert (pi.status, pi.amount_capturable, pi.amount_received) == ("succeeded", 0, 3000)
    error = refused(stripe.InvalidRequestError, lambda: stripe.PaymentIntent.cancel(pi.id),
                    "payment_intent_unexpected_state", 400)
    assert error.error.payment_intent.status == "succeeded"

    def refund(amount):
        return stripe.Refund.create(payment_intent=pi.id, amount=amount, reason="requested_by_customer",
                                    metadata={"refund_id": f"r-{amount}"})
    first = refund(1000)
    assert first.status == "succeeded" and first.payment_intent == pi.id
    error = refused(stripe.InvalidRequestError, lambda: refund(2001), None, 400)
    assert error.param == "amount"
    refund(2000)
    refused(stripe.InvalidRequestError, lambda: refund(1), "charge_already_refunded", 400)
    assert stripe.Refund.retrieve(first.id).metadata["refund_id"] == "r-1000"
    assert [r.amount for r in stripe.Refund.list(payment_intent=pi.id).data] == [2000, 1000]

    charge = stripe.PaymentIntent.retrieve(pi.id, expand=["latest_charge"]).latest_charge
    assert (charge.amount_captured, charge.amount_refunded, charge.refunded) == (3000, 3000, True)


def cancellation():
    pi = create("cancelled")
    stripe.PaymentIntent.confirm(pi.id)
    pi = stripe.PaymentIntent.cancel(pi.id, cancellation_reason="abandoned")
    assert (pi.status, pi.cancellation_reason) == ("canceled", "abandoned")
    assert stripe.PaymentIntent.retrieve(pi.id).status == "canceled"
    refused(stripe.InvalidRequestError, lambda: stripe.PaymentIntent.capture(pi.id),
            "payment_intent_unexpected_state", 400)
    refused(stripe.InvalidRequestError, lambda: stripe.PaymentIntent.retrieve("pi_nobody"),
            "resource_missing", 404)
    refused(stripe.AuthenticationError, lambda: stripe.PaymentIntent.retrieve(pi.id, api_key="nonsense"),
            None, 401)


def declines():
    for method, code, decline_code in [
        ("pm_card_chargeDeclined", "card_declined", "generic_decline"),
        ("pm_card_chargeDeclinedInsufficientFunds", "card_declined", "insufficient_funds"),
        ("pm_card_chargeDeclinedExpiredCard", "expired_card", None),
    ]:
        pi = create("declined", method)
        error = refused(stripe.CardError, lambda: stripe.PaymentIntent.confirm(pi.id), code, 402)
        assert getattr(error.error, "decline_code", None) == decline_code, error.error
        assert error.error.payment_intent.id == pi.id
        pi = stripe.PaymentIntent.retrieve(pi.id)
        assert (pi.status, pi.last_payment_error.code) == ("requires_payment_method", code)
    pi = create("declined", "pm_card_authenticationRequired")
    pi = stripe.PaymentIntent.confirm(pi.id)
    assert pi.status == "requires_action" and pi.next_action.type == "use_stripe_sdk"


def lists():
    made = [create("listed") for _ in range(7)]
    since = made[0].created
    pages = stripe.PaymentIntent.list(limit=3, created={"gte": since})
    assert pages.has_more and len(pages.data) == 3
    ids = [pi.id for pi in pages.auto_paging_iter() if pi.metadata["payment_id"] == "listed"]
    assert ids == [pi.id for pi in reversed(made)], ids
    assert stripe.PaymentIntent.list(created={"lt": since - 3600}).data == []
    found = stripe.PaymentIntent.search(query="metadata['payment_id']:'listed'")
    assert len(found.data) == 7


def keys():
    def once(**more):
        return create("once", idempotency_key="key-once", **more)
    first, again = once(), once()
    assert first.id == again.id
    assert "Idempotent-Replayed" not in first.last_response.headers
    assert again.last_response.headers["Idempotent-Replayed"] == "true"
    assert again.last_response.headers["Original-Request"] == first.last_response.request_id
    refused(stripe.IdempotencyError, lambda: once(description="other"), None, 400)

    with ThreadPoolExecutor(64) as pool:
        work = [pool.submit(create, "crowd", idempotency_key="key-crowd") for _ in range(64)]
        assert len({done.result().id for done in work}) == 1
        # One of them runs until the other has been turned away.
        work = [pool.submit(create, "in-use", idempotency_key="key-in-use") for _ in range(2)]
        errors = [done.exception() for done in work]
    turned_away = [error for error in errors if error]
    assert len(turned_away) == 1, errors
    assert (turned_away[0].http_status, code_of(turned_away[0])) == (409, "idempotency_key_in_use"), errors


def faults():
    refused(stripe.RateLimitError, lambda: create("limited"), "rate_limit", 429)
    refused(stripe.RateLimitError, lambda: create("locked"), "lock_timeout", 429)
    refused(stripe.APIError, lambda: create("conflict"), "lock_timeout", 409)
    pi = create("broken")
    refused(stripe.APIError, lambda: stripe.PaymentIntent.confirm(pi.id), None, 500)
    assert stripe.PaymentIntent.retrieve(pi.id).status == "requires_capture"

    for payment_id in ["lost", "dropped"]:
        pi = create(payment_id)
        refused(stripe.APIConnectionError, lambda: stripe.PaymentIntent.confirm(pi.id))
        pi = create(f"{payment_id}-and-repeated")
        pi = stripe.PaymentIntent.confirm(pi.id, max_network_retries=2)
        assert pi.status == "requires_capture"

    pi = create("silent")
    impatient = stripe.StripeClient(
        stripe.api_key, base_addresses={"api": stripe.api_base}, max_network_retries=0,
        http_client=stripe.RequestsClient(timeout=0.5))
    refused(stripe.APIConnectionError, lambda: impatient.v1.payment_intents.confirm(pi.id))
    assert stripe.PaymentIntent.retrieve(pi.id).status == "requires_capture"


def checkout():
    def open_session(payment_id, **more):
        return stripe.checkout.Session.create(
            mode="payment", client_reference_id="r-1", success_url="https://shop.example/ok",
            cancel_url="https://shop.example/no", metadata={"payment_id": payment_id},
            payment_intent_data={"metadata": {"payment_id": payment_id}},
            line_items=[{"quantity": 1, "price_data": {
                "currency": "jpy", "unit_amount": 1200, "product_data": {"name": "Slot 3"}}}], **more)

    def until(session, status):
        while session.status != status:
            session = stripe.checkout.Session.retrieve(session.id)
        return session

    session = open_session("page-paid", idempotency_key="key-page")
    assert open_session("page-paid", idempotency_key="key-page").id == session.id
    assert (session.status, session.payment_status) == ("open", "unpaid")
    assert (session.amount_total, session.currency, session.client_reference_id) == (1200, "jpy", "r-1")
    assert session.payment_intent is None and session.url.startswith("https://")
    session = until(session, "complete")
    assert session.payment_status == "paid" and session.url is None
    pi = stripe.PaymentIntent.retrieve(session.payment_intent)
    assert (pi.status, pi.amount_received, pi.metadata["payment_id"]) == ("succeeded", 1200, "page-paid")
    refused(stripe.InvalidRequestError, lambda: stripe.checkout.Session.expire(session.id), None, 400)
    stripe.Refund.create(payment_intent=pi.id)

    session = until(open_session("page-delayed"), "complete")
    while session.payment_status != "paid":
        session = stripe.checkout.Session.retrieve(session.id)

    session = stripe.checkout.Session.expire(open_session("page-closed").id)
    assert (session.status, session.payment_intent) == ("expired", None)
    for wrong in [session.created + 60, session.created + 90000]:
        error = refused(stripe.InvalidRequestError, lambda: open_session("page-closed", expires_at=wrong), None, 400)
        assert error.param == "expires_at"


def webhook():
    event, signature, secret = (os.environ[name] for name in ["EVENT", "SIGNATURE", "SECRET"])
    known = stripe.Webhook.construct_event(event, signature, secret)
    assert known.type == os.environ["TYPE"], known.type
    try:
        stripe.Webhook.construct_event(event + " ", signature, secret)
    except stripe.SignatureVerificationError:
        return
    raise AssertionError("a changed event was accepted")


if sys.argv[1] == "webhook":
    webhook()
else:
    stripe.api_base = os.environ["GATEWAY_URL"]
    for part in [payment, cancellation, declines, lists, keys, faults, checkout]:
        part()
        print(f"{part.__name__}: as it should be", flush=True)
