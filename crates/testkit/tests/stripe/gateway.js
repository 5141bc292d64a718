// Drives the scripted gateway with Stripe's own package for Node. Any failed assertion ends it with a status other than 0.
//
//     gateway.js life       everything that goes over the wire
//     gateway.js webhook    a signed event, from EVENT, SIGNATURE, SECRET and TYPE
//
// The payments whose names stand in `stripe_packages.rs` meet faults there. The package is found through PACKAGES.
'use strict';
const assert = require('node:assert/strict');
const path = require('node:path');
const Stripe = require(path.join(process.env.PACKAGES, 'node_modules', 'stripe'));

const url = new URL(process.env.GATEWAY_URL);
const connect = (secret) =>
  new Stripe(secret, { host: url.hostname, port: url.port, protocol: 'http', maxNetworkRetries: 0 });
const stripe = connect('sk_test_scripted');

// The error that `work` must end in.
async function refused(type, work, code, status) {
  const error = await work().then(
    (result) => assert.fail(`not refused: ${JSON.stringify(result)}`),
    (error) => error
  );
  assert.equal(error.type, type, error.stack);
  assert.equal(error.code, code);
  if (status) {
    assert.equal(error.statusCode, status);
    assert.match(error.requestId, /^req_/);
  }
  return error;
}

const create = (payment_id, more = {}, options = {}) =>
  stripe.paymentIntents.create(
    {
      amount: 5000, currency: 'jpy', capture_method: 'manual', payment_method: 'pm_card_visa',
      metadata: { payment_id, note: 'a+b & c=ü' }, ...more,
    },
    options
  );

async function payment() {
  const customer = await stripe.customers.create({ email: 'a@example.com' });
  assert.equal((await stripe.customers.retrieve(customer.id)).email, 'a@example.com');
  const method = await stripe.paymentMethods.attach('pm_card_visa', { customer: customer.id });
  let pi = await create('paid', { customer: customer.id, payment_method: method.id, description: 'two words' });
  assert.equal(pi.status, 'requires_confirmation');
  assert.equal(pi.metadata.note, 'a+b & c=ü');
  assert.equal(pi.description, 'two words');
  pi = await stripe.paymentIntents.confirm(pi.id);
  assert.deepEqual([pi.status, pi.amount_capturable, pi.amount_received], ['requires_capture', 5000, 0]);
  await refused('StripeInvalidRequestError', () => stripe.paymentIntents.confirm(pi.id),
    'payment_intent_unexpected_state', 400);
  pi = await stripe.paymentIntents.capture(pi.id, { amount_to_capture: 3000 });
  assert.deepEqual([pi.status, pi.amount_capturable, pi.amount_received], ['succeeded', 0, 3000]);
  const late = await refused('StripeInvalidRequestError', () => stripe.paymentIntents.cancel(pi.id),
    'payment_intent_unexpected_state', 400);
  assert.equal(late.payment_intent.status, 'succeeded');

  const refund = (amount) =>
    stripe.refunds.create({
      payment_intent: pi.id, amount, reason: 'requested_by_customer', metadata: { refund_id: `r-${amount}` },
    });
  const first = await refund(1000);
  assert.equal(first.status, 'succeeded');
  const tooMuch = await refused('StripeInvalidRequestError', () => refund(2001), undefined, 400);
  assert.equal(tooMuch.param, 'amount');
  await refund(2000);
  await refused('StripeInvalidRequestError', () => refund(1), 'charge_already_refunded', 400);
  assert.equal((await stripe.refunds.retrieve(first.id)).metadata.refund_id, 'r-1000');
  const refunds = await stripe.refunds.list({ payment_intent: pi.id });
  assert.deepEqual(refunds.data.map((refund) => refund.amount), [2000, 1000]);

  const expanded = await stripe.paymentIntents.retrieve(pi.id, { expand: ['latest_charge'] });
  assert.equal(expanded.latest_charge.amount_refunded, 3000);
}

async function cancellation() {
  let pi = await create('cancelled');
  await stripe.paymentIntents.confirm(pi.id);
  pi = await stripe.paymentIntents.cancel(pi.id, { cancellation_reason: 'abandoned' });
  assert.deepEqual([pi.status, pi.cancellation_reason], ['canceled', 'abandoned']);
  await refused('StripeInvalidRequestError', () => stripe.paymentIntents.capture(pi.id),
    'payment_intent_unexpected_state', 400);
  await refused('StripeInvalidRequestError', () => stripe.paymentIntents.retrieve('pi_nobody'),
    'resource_missing', 404);
  await refused('StripeAuthenticationError', () => connect('nonsense').paymentIntents.retrieve(pi.id),
    undefined, 401);
}

async function declines() {
  for (const [payment_method, code, decline_code] of [
    ['pm_card_chargeDeclined', 'card_declined', 'generic_decline'],
    ['pm_card_chargeDeclinedInsufficientFunds', 'card_declined', 'insufficient_funds'],
    ['pm_card_chargeDeclinedExpiredCard', 'expired_card', undefined],
  ]) {
    const pi = await create('declined', { payment_method });
    const error = await refused('StripeCardError', () => stripe.paymentIntents.confirm(pi.id), code, 402);
    // The package makes an empty string of what is not there.
    assert.equal(error.decline_code || undefined, decline_code);
    assert.equal(error.payment_intent.status, 'requires_payment_method');
  }
  let pi = await create('declined', { payment_method: 'pm_card_authenticationRequired' });
  pi = await stripe.paymentIntents.confirm(pi.id);
  assert.deepEqual([pi.status, pi.next_action.type], ['requires_action', 'use_stripe_sdk']);
}

async function lists() {
  const made = [];
  for (let n = 0; n < 7; n++) made.push(await create('listed'));
  const since = made[0].created;
  const ids = [];
  for await (const pi of stripe.paymentIntents.list({ limit: 3, created: { gte: since } })) {
    if (pi.metadata.payment_id === 'listed') ids.push(pi.id);
  }
  assert.deepEqual(ids, made.map((pi) => pi.id).reverse());
  assert.deepEqual((await stripe.paymentIntents.list({ created: { lt: since - 3600 } })).data, []);
  const found = await stripe.paymentIntents.search({ query: "metadata['payment_id']:'listed'" });
  assert.equal(found.data.length, 7);
}

async function keys() {
  const once = (more) => create('once', more, { idempotencyKey: 'key-once' });
  const [first, again] = [await once(), await once()];
  assert.equal(first.id, again.id);
  assert.equal(first.lastResponse.headers['idempotent-replayed'], undefined);
  assert.equal(again.lastResponse.headers['idempotent-replayed'], 'true');
  assert.equal(again.lastResponse.headers['original-request'], first.lastResponse.requestId);
  await refused('StripeIdempotencyError', () => once({ description: 'other' }), undefined, 400);

  const crowd = Array.from({ length: 64 }, () => create('crowd', {}, { idempotencyKey: 'key-crowd' }));
  assert.equal(new Set((await Promise.all(crowd)).map((pi) => pi.id)).size, 1);
  // One of them runs until the other has been turned away.
  const both = await Promise.allSettled([1, 2].map(() => create('in-use', {}, { idempotencyKey: 'key-in-use' })));
  const turnedAway = both.filter((one) => one.status === 'rejected').map((one) => one.reason);
  assert.equal(turnedAway.length, 1);
  assert.deepEqual([turnedAway[0].statusCode, turnedAway[0].code], [409, 'idempotency_key_in_use']);
}

async function faults() {
  await refused('StripeRateLimitError', () => create('limited'), 'rate_limit', 429);
  await refused('StripeRateLimitError', () => create('locked'), 'lock_timeout', 429);
  await refused('StripeAPIError', () => create('conflict'), 'lock_timeout', 409);
  let pi = await create('broken');
  await refused('StripeAPIError', () => stripe.paymentIntents.confirm(pi.id), undefined, 500);
  assert.equal((await stripe.paymentIntents.retrieve(pi.id)).status, 'requires_capture');

  for (const payment_id of ['lost-and-repeated', 'dropped-and-repeated']) {
    pi = await create(payment_id);
    pi = await stripe.paymentIntents.confirm(pi.id, {}, { maxNetworkRetries: 2 });
    assert.equal(pi.status, 'requires_capture');
  }

  pi = await create('silent');
  await refused('StripeConnectionError',
    () => stripe.paymentIntents.confirm(pi.id, {}, { timeout: 500 }), undefined);
  assert.equal((await stripe.paymentIntents.retrieve(pi.id)).status, 'requires_capture');
}

async function checkout() {
  const open = (payment_id, more = {}, options = {}) =>
    stripe.checkout.sessions.create(
      {
        mode: 'payment', client_reference_id: 'r-1', success_url: 'https://shop.example/ok',
        cancel_url: 'https://shop.example/no', metadata: { payment_id },
        payment_intent_data: { metadata: { payment_id } },
        line_items: [{
          quantity: 1,
          price_data: { currency: 'jpy', unit_amount: 1200, product_data: { name: 'Slot 3' } },
        }],
        ...more,
      },
      options
    );
  const until = async (session, fits) => {
    while (!fits(session)) session = await stripe.checkout.sessions.retrieve(session.id);
    return session;
  };
  let session = await open('page-paid', {}, { idempotencyKey: 'key-page' });
  assert.equal((await open('page-paid', {}, { idempotencyKey: 'key-page' })).id, session.id);
  assert.deepEqual([session.status, session.payment_status], ['open', 'unpaid']);
  assert.deepEqual([session.amount_total, session.client_reference_id], [1200, 'r-1']);
  assert.equal(session.payment_intent, null);
  session = await until(session, (session) => session.status === 'complete');
  assert.deepEqual([session.payment_status, session.url], ['paid', null]);
  const pi = await stripe.paymentIntents.retrieve(session.payment_intent);
  assert.deepEqual([pi.status, pi.amount_received, pi.metadata.payment_id], ['succeeded', 1200, 'page-paid']);
  await refused('StripeInvalidRequestError', () => stripe.checkout.sessions.expire(session.id), undefined, 400);
  await stripe.refunds.create({ payment_intent: pi.id });

  session = await until(await open('page-delayed'), (session) => session.status === 'complete');
  await until(session, (session) => session.payment_status === 'paid');

  const { id } = await open('page-closed');
  session = await stripe.checkout.sessions.expire(id);
  assert.deepEqual([session.status, session.payment_intent], ['expired', null]);
  for (const expires_at of [session.created + 60, session.created + 90000]) {
    const error = await refused('StripeInvalidRequestError', () => open('page-closed', { expires_at }), undefined, 400);
    assert.equal(error.param, 'expires_at');
  }
}

function webhook() {
  const { EVENT, SIGNATURE, SECRET, TYPE } = process.env;
  const known = stripe.webhooks.constructEvent(EVENT, SIGNATURE, SECRET);
  assert.equal(known.type, TYPE);
  assert.throws(() => stripe.webhooks.constructEvent(`${EVENT} `, SIGNATURE, SECRET), /signature/i);
}

async function life() {
  for (const part of [payment, cancellation, declines, lists, keys, faults, checkout]) {
    await part();
    console.log(`${part.name}: as it should be`);
  }
}

if (process.argv[2] === 'webhook') webhook();
else life().catch((error) => { console.error(error); process.exit(1); });
