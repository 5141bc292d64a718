// An operator's shift: log in, settle a case, replay a dead letter, look an order up, verify the audit chain.

import { createServer } from 'node:http';
import { api, base, browser, check, go, logIn, open, press, same, screenshot, settled, text, until } from './support.mjs';

/** A worker that refuses everything until it is mended. */
let mended = false;
let delivered = 0;
const worker = createServer((request, response) => {
  request.resume();
  request.on('end', () => {
    if (mended) delivered += 1;
    response.writeHead(mended ? 200 : 500).end(mended ? 'thank you' : 'not today');
  });
});
await new Promise((resolve) => { worker.listen(0, '127.0.0.1', resolve); });
const destination = `http://127.0.0.1:${worker.address().port}/jobs`;

// Something to look at.
const payment = await api('/payments', { method: 'POST', headers: { 'Idempotency-Key': 'console-payment-1' }, body: { bookingId: 'b-console', userId: 'u-console', amount: 5000, currency: 'JPY', paymentMethod: 'pm_card_visa' } });
await api('/do/order', { method: 'POST', headers: { 'Idempotency-Key': 'console-order-0001' }, body: { instrument: 'USDJPY', side: 'BUY', qty: 1, idempotency_key: 'console-order-0001' } });
const { messageId } = await api(`/v2/publish/${destination}`, { method: 'POST', headers: { 'Upstash-Retries': '0' }, body: { job: 1 } });

await browser(async (chromium) => {
  const { page, wrong } = await open(chromium);

  // Nothing is shown to whoever has not logged in, and a wrong password opens nothing.
  await page.goto(`${base}/console/cases`);
  await page.waitForSelector('#login-name');
  await page.type('#login-name', 'aiko');
  await page.type('#login-password', 'not the password');
  await press(page, 'Log in', 'form.login');
  await until(page, 'the refusal', () => document.querySelector('.form-error')?.textContent.includes('wrong'));
  await page.reload();
  await logIn(page, 'aiko', process.env.CONSOLE_PASSWORD);
  await settled(page);
  check((await text(page, '.who')).includes('aiko'), 'the name of who is logged in');
  const cookies = await page.cookies();
  const cookie = cookies.find((one) => one.name === 'tashika_session');
  same([cookie.httpOnly, cookie.sameSite], [true, 'Strict'], 'the cookie');
  check(!(await page.evaluate(() => document.cookie)).includes('tashika'), 'scripts do not see the cookie');

  // The case comes by itself, and is settled with a note.
  await until(page, 'the case in the list', () => document.querySelector('.row-link')?.textContent.includes('Payment unknown'));
  await screenshot(page, 'flow-cases');
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await until(page, 'the case', () => document.querySelector('.choices'));
  check((await text(page, 'main')).includes('nobody knew'), 'the picture of the timeline');
  await screenshot(page, 'flow-case');
  await press(page, 'The money was taken', '.choices');
  await page.waitForSelector('dialog[open]');
  check((await text(page, '.consequence')).includes('AUTHORIZED'), 'the consequence in words');
  await page.type('#note', 'seen at the gateway');
  await screenshot(page, 'flow-confirm');
  await press(page, 'The money was taken', 'dialog');
  await until(page, 'the end of the case', () => document.querySelector('.title-row .badge')?.textContent === 'resolved');
  const after = await api(`/payments/${payment.id}`);
  same([after.status, after.verificationFailed], ['AUTHORIZED', false], 'the payment');
  const { items: audit } = await api(`/audit-logs?targetId=${payment.id}&limit=500`);
  check(audit.some((line) => line.actorId === 'console:aiko' && line.actorRole === 'operator'), 'the audit log says who decided');

  // The dead letter is replayed, and arrives.
  await go(page, '/console/queue/dead-letters');
  await until(page, 'the dead letter', () => document.querySelector('.row-link'));
  await screenshot(page, 'flow-dead-letters');
  mended = true;
  await page.click('.row-link');
  await until(page, 'the letter', () => [...document.querySelectorAll('button')].some((one) => one.textContent === 'Replay'));
  check((await text(page, 'main')).includes('not today'), 'the last answer');
  await press(page, 'Replay', 'main');
  await page.waitForSelector('dialog[open]');
  await press(page, 'Replay', 'dialog');
  await until(page, 'the delivery', () => document.querySelector('.title-row .badge')?.textContent === 'delivered');
  same(delivered, 1, 'deliveries');
  check(!location_of(page).includes(messageId), 'it is a new message');
  await screenshot(page, 'flow-delivered');
  same((await api('/v2/dlq')).messages, [], 'dead letters');

  // The order is found by its key, through the search.
  await page.keyboard.press('/');
  await page.keyboard.type('console-order-0001');
  await page.keyboard.press('Enter');
  await until(page, 'the order', () => document.querySelector('h1')?.textContent === 'console-order-0001');
  await until(page, 'its end', () => document.querySelector('main').textContent.includes('executed'));
  await screenshot(page, 'flow-order');

  // The audit chain.
  await page.keyboard.press('Escape');
  await page.evaluate(() => document.activeElement?.blur());
  await page.keyboard.press('g');
  await page.keyboard.press('u');
  await press(page, 'Verify the chain', 'main');
  await until(page, 'the verdict', () => document.querySelector('.verdict')?.dataset.state === 'intact');
  check((await text(page, 'main')).includes('console.logged_in'), 'the login is in the audit log');
  await screenshot(page, 'flow-audit');

  // Out again: the cookie is worth nothing any more.
  await press(page, 'Log out', '.top');
  await page.waitForSelector('#login-name');
  const status = await page.evaluate(async (value) => (await fetch('/payments', { headers: { 'X-Old': value } })).status, 'x');
  same(status, 401, 'after the logout');
  const old = await fetch(`${base}/payments`, { headers: { Cookie: `tashika_session=${cookie.value}` } });
  same(old.status, 401, 'a copy of the cookie after the logout');
  same(wrong, [], 'what the browser complains about');
});

function location_of(page) {
  return page.url();
}
worker.close();
