// What a session must not be able to do: roles, CSRF, other sites, guessing.

import { api, base, browser, check, go, logIn, open, same, settled, text } from './support.mjs';

const payment = await api('/payments', { method: 'POST', headers: { 'Idempotency-Key': 'refusals-payment' }, body: { bookingId: 'b-1', userId: 'u-1', amount: 5000, currency: 'JPY', paymentMethod: 'sandbox_ok' } });
check(payment.status === 'AUTHORIZED', 'a payment that could be captured');

async function login(body) {
  const answer = await fetch(`${base}/console/api/login`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  return { status: answer.status, body: await answer.json(), cookie: answer.headers.get('set-cookie')?.split(';')[0], headers: answer.headers };
}
async function act(cookie, headers = {}) {
  const answer = await fetch(`${base}/payments/${payment.id}/capture`, { method: 'POST', headers: { Cookie: cookie, 'Content-Type': 'application/json', 'Idempotency-Key': crypto.randomUUID(), ...headers }, body: '{}' });
  const body = await answer.json();
  return [answer.status, body.code ?? body.status];
}

// A viewer looks, and changes nothing, with or without the token.
const viewer = await login({ name: 'ken', password: process.env.CONSOLE_PASSWORD });
same([viewer.status, viewer.body.role, viewer.headers.get('cache-control')], [200, 'viewer', 'no-store'], 'a viewer logs in');
same((await fetch(`${base}/payments`, { headers: { Cookie: viewer.cookie } })).status, 200, 'a viewer looks');
same(await act(viewer.cookie), [403, 'ROLE_NOT_ALLOWED'], 'a viewer captures');
same(await act(viewer.cookie, { 'X-CSRF-Token': viewer.body.csrf }), [403, 'ROLE_NOT_ALLOWED'], 'a viewer captures with the token');
for (const [method, path] of [['POST', '/v2/publish/https://x.example/'], ['DELETE', '/v2/dlq'], ['POST', '/outbox/release'], ['POST', '/console/api/audit/verification'], ['POST', '/webhook-events/replay']]) {
  const answer = await fetch(base + path, { method, headers: { Cookie: viewer.cookie, 'X-CSRF-Token': viewer.body.csrf } });
  same(answer.status, 403, `a viewer: ${method} ${path}`);
}

same((await fetch(`${base}/v2/keys`, { headers: { Cookie: viewer.cookie } })).status, 403, 'a viewer reads the signing keys');

// An operator needs the token of the own session; a cookie alone is what another site could use.
const operator = await login({ name: 'aiko', password: process.env.CONSOLE_PASSWORD });
same(await act(operator.cookie), [403, 'CSRF_TOKEN_INVALID'], 'without the token');
same(await act(operator.cookie, { 'X-CSRF-Token': viewer.body.csrf }), [403, 'CSRF_TOKEN_INVALID'], "with another session's token");
same(await act(operator.cookie, { 'X-CSRF-Token': operator.body.csrf, 'Sec-Fetch-Site': 'cross-site' }), [403, 'CROSS_SITE_REQUEST'], 'from another site');
same(await act(`${operator.cookie}x`, { 'X-CSRF-Token': operator.body.csrf }), [401, 'UNAUTHORIZED'], 'a cookie that was changed');
const logout = await fetch(`${base}/console/api/logout`, { method: 'POST', headers: { Cookie: operator.cookie } });
same(logout.status, 403, 'nobody is logged out by another site');
same(await act(operator.cookie, { 'X-CSRF-Token': operator.body.csrf }), [200, 'CAPTURED'], 'an operator captures');

// A token logs in as well.
const token = await login({ token: process.env.TASHIKA_TOKEN });
same([token.status, token.body.role], [200, 'operator'], 'an API token logs in');

// The page: its policy, and that nothing of it is data.
const page1 = await fetch(`${base}/console/payments/${payment.id}`);
const html = await page1.text();
const policy = page1.headers.get('content-security-policy');
for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]) check(policy.includes(part), part);
check(!policy.includes('unsafe'), 'nothing unsafe');
same([page1.headers.get('x-content-type-options'), page1.headers.get('referrer-policy')], ['nosniff', 'no-referrer'], 'headers');
check(!html.includes(payment.id), 'the page holds no data');
const asset = html.match(/src="(\/console\/assets\/[^"]+app\.js)"/)[1];
const script = await fetch(base + asset);
check(script.headers.get('cache-control').includes('immutable'), 'assets are kept');
same((await fetch(base + asset, { headers: { 'If-None-Match': script.headers.get('etag') } })).status, 304, 'known assets are not sent again');
same((await fetch(`${base}/console/api/nothing`)).status, 404, 'no page in the place of an endpoint');
same((await fetch(`${base}/console/api/overview`)).status, 401, 'data needs a login');

// A viewer's buttons are switched off.
await browser(async (chromium) => {
  const { page, wrong } = await open(chromium);
  await page.goto(`${base}/console/payments`);
  await logIn(page, 'ken', process.env.CONSOLE_PASSWORD);
  await settled(page);
  await go(page, `/console/payments/${payment.id}`);
  check((await text(page, '.who')).includes('viewer'), 'the role is shown');
  const live = await page.$$eval('.actions button', (all) => all.filter((one) => !one.disabled).length);
  same(live, 0, 'buttons that a viewer can press');
  same(wrong, [], 'what the browser complains about');
});

// Guessing is slowed down; who knows the password waits, too: only so a guesser learns nothing.
let guesses = 0;
let refused;
do {
  refused = await login({ name: 'aiko', password: `guess number ${guesses}` });
  if (refused.status === 401) guesses += 1;
  else same([refused.status, refused.body.code], [429, 'RATE_LIMITED'], 'one guess too many');
  // On a slow machine some are forgiven meanwhile; the next check needs a moment in which none is.
} while (refused.status === 401 || Number(refused.headers.get('retry-after')) < 3);
check(guesses >= 10, `${guesses} guesses`);
same((await login({ name: 'aiko', password: process.env.CONSOLE_PASSWORD })).status, 429, 'the right password after them');
same((await fetch(`${base}/payments`, { headers: { Cookie: viewer.cookie } })).status, 200, 'who is logged in goes on');
