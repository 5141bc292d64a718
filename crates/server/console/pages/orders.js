import { get, maybe, post, query } from '../api.js';
import { h, put } from '../dom.js';
import { duration, named, number, t } from '../i18n.js';
import { list } from '../list.js';
import { badge, button, confirm, describe, empty, facts, header, id, json, link, loading, panel, toast, when, withProgress } from '../ui.js';

const LANES = ['orders', 'payments', 'webhooks', 'deliveries', 'mail', 'renders', 'timers', 'events'];
const STATUSES = ['pending', 'sending', 'succeeded', 'failed', 'aborted'];
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
/** Effects that one request requeues. */
const BATCH = 50;

export default async function orders(view) {
  const [which] = view.params;
  if (which) return detail(view, which);
  let selection = new Set();
  const chosen = button(t('outbox.requeueChosen', { count: 0 }), () => requeue([...selection]), { tone: 'primary', disabled: true });
  const release = button(t('outbox.release'), async () => {
    if (!(await confirm({ title: t('outbox.release'), consequence: t('outbox.releaseText'), label: t('outbox.release') }))) return;
    try {
      const { released } = await post(query('/outbox/release', { lane: found.values().lane }));
      toast(t('outbox.released', { count: number(released) }));
      await found.reload();
    } catch (error) {
      toast(describe(error), 'bad');
    }
  }, { disabled: !view.mayAct });
  const key = h('input', { type: 'search', id: 'order-key', name: 'key', placeholder: 'first-order-0001', autocomplete: 'off', spellcheck: 'false' });
  const lookup = h('form', { class: 'lookup', role: 'search', on: { submit: (event) => { event.preventDefault(); if (key.value.trim()) view.navigate(`/console/orders/${encodeURIComponent(key.value.trim())}`); } } },
    h('label', { for: 'order-key' }, t('outbox.lookup')), key, h('button', { type: 'submit', class: 'primary' }, t('action.find')));
  const found = list(view, {
    path: '/outbox',
    caption: t('nav.orders'),
    parts: ['outbox', 'flow'],
    filters: [
      { name: 'lane', label: t('label.lane'), choices: [['', t('label.all')], ...LANES.map((lane) => [lane, named('lane', lane)])] },
      { name: 'status', label: t('label.status'), choices: [['', t('label.all')], ...STATUSES.map((status) => [status, named('effect', status)])] },
      { name: 'errorCode', label: t('label.errorCode'), placeholder: 'BROKER_TIMEOUT' },
    ],
    select: (one) => one.id,
    chosen: (keys, items) => {
      selection = new Set(items.filter((one) => keys.has(one.id) && one.status === 'aborted').map((one) => one.id));
      put(chosen, t('outbox.requeueChosen', { count: number(selection.size) }));
      chosen.disabled = !view.mayAct || selection.size === 0;
    },
    columns: [
      { label: t('label.effect'), cell: (one) => h('code', { title: one.id }, `${one.id.slice(0, 8)}…${one.id.slice(-4)}`) },
      { label: t('label.lane'), cell: (one) => named('lane', one.lane) },
      { label: t('label.status'), cell: (one) => [badge(one.status, 'effect'), one.inDoubt && h('span', { class: 'badge warn' }, t('payments.inDoubt')), one.lastErrorCode && h('div', { class: 'under' }, one.lastErrorCode)] },
      { label: t('label.attempts'), class: 'number', cell: (one) => number(one.attempts) },
      { label: t('label.key'), class: 'grow', cell: (one) => (one.idempotencyKey ? h('span', { class: 'cut', title: one.idempotencyKey }, one.idempotencyKey) : '—') },
      { label: t('label.nextRun'), class: 'time', cell: (one) => (['pending', 'failed'].includes(one.status) ? parked(one) : '—') },
      { label: t('label.created'), class: 'time', cell: (one) => when(one.createdAt) },
    ],
    href: (one) => `/console/orders/${one.id}`,
    none: () => empty(t('outbox.none'), t('outbox.noneText'), `curl -i BASE/do/order \\\n  -H 'Content-Type: application/json' -H 'Idempotency-Key: first-order-0001' \\\n  -d '{"instrument":"USDJPY","side":"BUY","qty":1,"idempotency_key":"first-order-0001"}'`),
    tools: h('div', { class: 'tools' }, chosen, release),
  });
  put(view.root, header(t('nav.orders'), { lead: t('outbox.lead') }), lookup, found.node);

  async function requeue(ids) {
    if (!(await confirm({ title: t('outbox.requeue'), consequence: t('outbox.requeueText'), label: t('outbox.requeue') }))) return;
    let done = 0;
    try {
      await withProgress(t('outbox.requeue'), async ({ step, stopped }) => {
        for (let at = 0; at < ids.length && !stopped(); at += BATCH) {
          step(at, ids.length);
          done += (await post('/outbox/requeue', { ids: ids.slice(at, at + BATCH) })).requeued;
        }
      });
      toast(t('outbox.requeued', { count: number(done) }));
    } catch (error) {
      toast(describe(error), 'bad');
    }
    await found.reload();
  }
}

/** A message that waits at a gate is due at the end of time. */
function parked(one) {
  const at = Date.parse(one.nextRunAt);
  return Number.isNaN(at) || new Date(at).getUTCFullYear() >= 9999 ? h('span', { class: 'quiet' }, t('outbox.parked')) : when(one.nextRunAt);
}

/** An effect by its id, or everything under an idempotency key. */
async function detail(view, which) {
  put(view.root, loading());
  const back = { href: '/console/orders', label: t('nav.orders') };
  async function load() {
    const byId = UUID.test(which) ? await maybe(get(`/outbox/${which}`, { signal: view.signal })) : null;
    const key = byId ? byId.idempotencyKey : which;
    const order = key ? await maybe(get(`/do/order/${encodeURIComponent(key)}`, { signal: view.signal })) : null;
    const under = byId ? [byId] : await Promise.all((await get(query('/outbox', { key: which }), { signal: view.signal })).items.map((one) => get(`/outbox/${one.id}`, { signal: view.signal })));
    if (under.length === 0 && !order) {
      put(view.root, header(which, { back }), empty(t('outbox.noKey'), t('outbox.noKeyText')));
      return;
    }
    view.title(key ?? which);
    const single = under.length === 1 ? under[0] : null;
    put(view.root,
      header(key ?? t('label.effect'), { back, badges: single ? [badge(single.status, 'effect')] : [], actions: single ? actions(single) : [] }),
      order && panel(t('outbox.order'), orderFacts(order, key)),
      under.map((one) => [
        panel(`${t('label.effect')} · ${named('lane', one.lane)}`, effectFacts(one), under.length > 1 && h('div', { class: 'tools' }, actions(one))),
        panel(t('label.attempts'), attempts(one)),
        one.cases?.filter((open) => open.status === 'open').map((open) => h('p', { class: 'notice' }, open.summary, ' ', link(`/console/cases/${open.id}`, t('payments.openCase')))),
        h('details', { class: 'panel' }, h('summary', null, t('label.payload')), json(one.payload)),
      ]));
  }
  function actions(one) {
    if (one.status !== 'aborted') return [];
    return [button(t('outbox.requeue'), async () => {
      if (!(await confirm({ title: t('outbox.requeue'), consequence: t('outbox.requeueText'), label: t('outbox.requeue') }))) return;
      try {
        await post(`/outbox/${one.id}/requeue`);
        toast(t('outbox.requeued', { count: 1 }));
      } catch (error) {
        toast(describe(error), 'bad');
      }
      await load();
    }, { tone: 'primary', disabled: !view.mayAct })];
  }
  view.onChange(['outbox', 'flow'], load);
  await load();
}

function orderFacts(order, key) {
  const { status, order_ref: reference, fills, ...rest } = order;
  return h('div', null, facts([[t('label.key'), id(key)], [t('label.status'), badge(status, 'order')], [t('label.reference'), reference], [t('label.reason'), rest.reason_code]]), h('details', null, h('summary', null, t('outbox.ledger')), json(order)), fills?.length > 0 && h('p', { class: 'quiet' }, t('outbox.fills', { count: fills.length })));
}

function effectFacts(one) {
  return facts([
    [t('label.id'), id(one.id)], [t('label.kind'), one.kind], [t('label.status'), [badge(one.status, 'effect'), one.inDoubt && h('span', { class: 'badge warn' }, t('payments.inDoubt'))]],
    [t('label.attempts'), number(one.attempts)], [t('label.errorCode'), one.lastErrorCode && h('code', null, one.lastErrorCode)], [t('label.error'), one.lastErrorMsg],
    [t('label.lockedBy'), one.lockedBy], [t('label.nextRun'), ['pending', 'failed'].includes(one.status) && parked(one)], [t('label.created'), when(one.createdAt)], [t('label.updated'), when(one.updatedAt)],
  ]);
}

function attempts(one) {
  if (one.attemptLog.length === 0) return h('p', { class: 'quiet' }, t('outbox.noAttempts'));
  const took = (attempt) => duration(new Date(attempt.finishedAt) - new Date(attempt.startedAt));
  return h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': t('label.attempts') }, h('table', { class: 'plain lines' },
    h('thead', null, h('tr', null, [t('label.time'), t('label.took'), t('label.outcome'), t('label.said'), t('label.exchange'), t('label.worker')].map((label) => h('th', { scope: 'col' }, label)))),
    h('tbody', null, one.attemptLog.map((attempt) => h('tr', { class: attempt.outcome },
      h('td', { class: 'time' }, when(attempt.startedAt, true)), h('td', { class: 'number' }, took(attempt)), h('td', null, named('outcome', attempt.outcome)),
      h('td', null, [attempt.code, attempt.message].filter(Boolean).join(' · ')),
      h('td', null, attempt.exchange && h('code', null, `${attempt.exchange.request ?? ''} → ${attempt.exchange.reply ?? ''}`)),
      h('td', { class: 'quiet' }, attempt.worker))))));
}
