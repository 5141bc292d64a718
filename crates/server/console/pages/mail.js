import { get, maybe, post } from '../api.js';
import { h, put } from '../dom.js';
import { named, number, t } from '../i18n.js';
import { list } from '../list.js';
import { badge, bar, button, confirm, describe, empty, facts, failure, header, id, json, loading, panel, tabs, toast, when } from '../ui.js';

const absent = () => empty(t('mail.absent'), t('mail.absentText'));
const sections = (here) => tabs([['/console/mail', t('mail.batches')], ['/console/mail/deliveries', t('mail.deliveries')], ['/console/mail/inbox', t('mail.inbox')]], here);

/** Every mail that has ended, one way or another. */
const ended = (one) => (one.sent ?? 0) + (one.failed ?? 0) + (one.possiblySent ?? 0) + (one.cancelled ?? 0);

export default async function mail(view) {
  const [section, which] = view.params;
  if (section === 'deliveries') return deliveries(view);
  if (section === 'inbox') return inbox(view, which);
  if (section === 'batches' && which) return batch(view, which);
  const { node } = list(view, {
    path: '/mail/batches',
    caption: t('mail.batches'),
    parts: ['mail', 'outbox', 'flow'],
    columns: [
      { label: t('mail.batch'), cell: (one) => h('code', null, one.id.slice(0, 13)) },
      { label: t('label.status'), cell: (one) => badge(one.status, 'mail') },
      { label: t('label.template'), cell: (one) => one.template ?? '—' },
      { label: t('mail.progress'), class: 'grow', cell: (one) => progress(one) },
      { label: t('mail.labelFailed'), class: 'number', cell: (one) => number(one.failed ?? 0) },
      { label: t('label.created'), class: 'time', cell: (one) => when(one.createdAt) },
    ],
    href: (one) => `/console/mail/batches/${one.id}`,
    none: () => empty(t('mail.none'), t('mail.noneText'), `curl -i BASE/mail -H 'Content-Type: application/json' -H "Idempotency-Key: $(uuidgen)" \\\n  -d '{"to":"you@example.com","template":"reservation-expired-refunded","locale":"ja","data":{"reservationId":"r-1","refundAmount":5000,"currency":"JPY"}}'`),
    absent,
  });
  put(view.root, header(t('nav.mail'), { lead: t('mail.lead') }), sections('/console/mail'), laneState(view), node);
}

function progress(one) {
  const total = one.total ?? 0;
  return h('div', { class: 'progress-cell' }, bar([[one.sent ?? 0, 'good'], [one.possiblySent ?? 0, 'warn'], [one.failed ?? 0, 'bad'], [one.cancelled ?? 0, 'calm']], total, t('mail.progress')), h('span', null, `${number(ended(one))} / ${number(total)}`));
}

async function batch(view, which) {
  put(view.root, loading());
  const path = `/mail/batches/${encodeURIComponent(which)}`;
  async function load() {
    let one;
    try {
      one = await get(path, { signal: view.signal });
    } catch (error) {
      if (!error.absent) throw error;
      put(view.root, header(t('nav.mail')), absent());
      return;
    }
    const act = (verb, label, consequence, danger) => button(label, async () => {
      if (!(await confirm({ title: label, consequence, label, danger }))) return;
      try {
        await post(`${path}/${verb}`, {});
        toast(t('message.done'));
      } catch (error) {
        toast(describe(error), 'bad');
      }
      await load();
    }, { tone: danger ? 'danger' : '', disabled: !view.mayAct });
    put(view.root,
      header(`${t('mail.batch')} ${one.id.slice(0, 13)}`, { back: { href: '/console/mail', label: t('nav.mail') }, badges: [badge(one.status, 'mail')], actions: [(one.queued ?? 0) > 0 && act('cancel', t('mail.cancelRest'), t('mail.cancelRestText'), true), (one.failed ?? 0) > 0 && act('retry', t('mail.retryFailed'), t('mail.retryFailedText'), false)].filter(Boolean) }),
      panel(t('mail.progress'), progress(one), facts([[t('mail.labelQueued'), number(one.queued ?? 0)], [t('mail.labelSent'), number(one.sent ?? 0)], [t('mail.labelFailed'), number(one.failed ?? 0)], [t('mail.labelPossiblySent'), number(one.possiblySent ?? 0)], [t('mail.labelCancelled'), number(one.cancelled ?? 0)], [t('label.template'), one.template], [t('label.id'), id(one.id)]])));
    const failures = (one.failed ?? 0) > 0 ? (await maybe(get(`${path}/failures`, { signal: view.signal })))?.items ?? [] : [];
    if (failures.length > 0) view.root.append(panel(t('mail.failures'), failureTable(failures)));
  }
  view.onChange(['mail', 'outbox', 'flow'], load);
  await load();
}

function failureTable(all) {
  return h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': t('mail.failures') }, h('table', { class: 'plain' },
    h('thead', null, h('tr', null, [[t('label.mail')], [t('label.attempts'), 'number'], [t('label.reason')], [t('label.ended')]].map(([label, kind]) => h('th', { scope: 'col', class: kind }, label)))),
    h('tbody', null, all.map((one) => h('tr', null, h('td', null, one.to), h('td', { class: 'number' }, number(one.attempts ?? 0)), h('td', null, [one.class, one.text].filter(Boolean).join(': ')), h('td', { class: 'time' }, when(one.endedAt)))))));
}

/** How the lane stands: whether mails leave, and how many still may today. */
function laneState(view) {
  const place = h('div', { class: 'lane' });
  async function load() {
    const lane = await maybe(get('/mail/lane', { signal: view.signal }));
    if (!lane) return;
    const resume = lane.state !== 'open' && button(t('mail.resume'), async () => {
      if (!(await confirm({ title: t('mail.resume'), consequence: t('mail.resumeText'), label: t('mail.resume') }))) return;
      try {
        await post('/mail/resume', {});
        toast(t('message.done'));
      } catch (error) {
        toast(describe(error), 'bad');
      }
      await load();
    }, { disabled: !view.mayAct });
    put(place, panel(t('mail.lane'), facts([[t('label.state'), [badge(lane.state === 'open' ? 'active' : 'paused'), ' ', lane.reason ?? '']], [t('mail.until'), lane.until && when(lane.until)], [t('mail.labelQueued'), number(lane.queued)], [t('mail.counted'), number(lane.sentOrCounted24h)], [t('mail.quotaLeft'), lane.quotaLeft !== null && lane.quotaLeft !== undefined && number(lane.quotaLeft)]]), resume));
  }
  view.onChange(['mail', 'outbox', 'flow'], load);
  load().catch(() => {});
  return place;
}

async function deliveries(view) {
  const { node } = list(view, {
    path: '/mail/deliveries',
    caption: t('mail.deliveries'),
    parts: ['mail', 'outbox', 'flow'],
    filters: [
      { name: 'to', label: t('label.mail'), placeholder: 'taro@example.com' },
      { name: 'batch', label: t('mail.batch') },
      { name: 'status', label: t('label.status'), choices: [['', t('label.all')], ...['queued', 'sent', 'failed', 'possiblySent', 'cancelled'].map((status) => [status, named('mail', status)])] },
    ],
    columns: [
      { label: t('label.mail'), cell: (one) => one.to },
      { label: t('label.status'), cell: (one) => badge(one.status, 'mail') },
      { label: t('label.template'), cell: (one) => one.template ?? '—' },
      { label: t('label.attempts'), class: 'number', cell: (one) => one.attempts ?? '—' },
      { label: t('label.said'), class: 'grow', cell: (one) => (one.failure ? `${one.failure.class}: ${one.failure.text}` : one.history?.at(-1)?.text ?? '—') },
      { label: t('label.sent'), class: 'time', cell: (one) => when(one.sentAt ?? one.endedAt) },
    ],
    none: () => empty(t('mail.noDeliveries'), t('mail.noDeliveriesText')),
    absent,
  });
  put(view.root, header(t('nav.mail'), { lead: t('mail.lead') }), sections('/console/mail/deliveries'), node);
}

/** What the sandbox has taken instead of sending it. Its HTML is shown as text: mails are not to be trusted. */
async function inbox(view, which) {
  const place = h('div', null, loading());
  put(view.root, header(t('nav.mail'), { lead: t('mail.inboxLead') }), sections('/console/mail/inbox'), place);
  /** A letter that an address names, and that is further back. */
  async function further(from) {
    for (let cursor = from, look = 0; cursor && look < 20; look += 1) {
      const answer = await get(`/mail/inbox?limit=500&cursor=${cursor}`, { signal: view.signal });
      const found = answer.items.find((one) => one.id === which);
      if (found) return found;
      cursor = answer.nextCursor;
    }
    return null;
  }
  async function load() {
    try {
      const answer = await get('/mail/inbox?limit=50', { signal: view.signal });
      const all = answer.items ?? [];
      if (all.length === 0) {
        put(place, empty(t('mail.noInbox'), t('mail.noInboxText')));
        return;
      }
      const open = which && (all.find((one) => one.id === which) ?? await further(answer.nextCursor));
      put(place, h('div', { class: 'two inbox' },
        h('ul', { class: 'brief' }, all.map((one) => h('li', null, h('a', { class: 'row-link', href: `/console/mail/inbox/${one.id}`, 'aria-current': one.id === which ? 'true' : null }, one.subject ?? '—'), h('p', { class: 'quiet' }, one.to, ' · ', when(one.receivedAt ?? one.sentAt ?? one.createdAt))))),
        open ? panel(open.subject, facts([[t('label.mail'), open.to], [t('label.from'), open.from], [t('label.messageId'), open.messageId]]), json(open.text ?? open.body ?? open.html ?? ''), !all.includes(open) && h('p', { class: 'quiet' }, t('mail.older'))) : h('p', { class: 'quiet' }, t('mail.chooseOne'))));
    } catch (error) {
      if (error.name === 'AbortError') return;
      if (error.code === 'MAIL_NO_INBOX') put(place, empty(t('mail.noInboxHere'), t('mail.noInboxText')));
      else put(place, error.absent ? absent() : failure(error, load));
    }
  }
  view.onChange(['mail', 'outbox', 'flow'], load);
  await load();
}
