import { get, maybe, post, query } from '../api.js';
import { h, put } from '../dom.js';
import { money, named, t } from '../i18n.js';
import { list } from '../list.js';
import { badge, button, confirm, describe, empty, facts, failure, header, id, json, link, loading, panel, raceTable, tabs, toast, when } from '../ui.js';

const absent = () => empty(t('reservations.absent'), t('reservations.absentText'));
const today = () => new Date().toLocaleDateString('sv-SE');
const idOf = (one) => one.reservationId ?? one.id;

const sections = (here) => tabs([['/console/reservations', t('reservations.day')], ['/console/reservations/all', t('reservations.all')], ['/console/renders', t('reservations.renders')]], here);

export default async function reservations(view) {
  const [which] = view.params;
  if (view.path.startsWith('/console/renders')) return which ? render(view, which) : renders(view);
  if (which === 'all') return all(view);
  if (which) return detail(view, which);
  return day(view);
}

/** A day's slots, each with who has it. */
async function day(view) {
  const date = view.query.get('date') ?? today();
  const move = (days) => {
    const at = new Date(`${date}T12:00:00`);
    at.setDate(at.getDate() + days);
    return `/console/reservations?date=${at.toLocaleDateString('sv-SE')}`;
  };
  const pick = h('input', { type: 'date', id: 'slot-date', value: date, on: { change: (event) => event.target.value && view.navigate(`/console/reservations?date=${event.target.value}`) } });
  const place = h('div', null, loading());
  put(view.root, header(t('nav.reservations'), { lead: t('reservations.lead') }), sections('/console/reservations'),
    h('div', { class: 'day-picker' }, link(move(-1), `‹ ${t('reservations.before')}`), h('div', { class: 'filter' }, h('label', { for: 'slot-date' }, t('label.date')), pick), link(move(1), `${t('reservations.after')} ›`)), place);
  async function load() {
    try {
      const [answer, made] = await Promise.all([get(query('/slots', { date }), { signal: view.signal }), get(query('/reservations', { date, limit: 500 }), { signal: view.signal })]);
      const slots = answer.slots ?? answer.items ?? [];
      const count = (state) => slots.filter((slot) => stateOf(slot) === state).length;
      put(place,
        slots.length > 0 && count('free') === slots.length && made.items.length === 0 && h('p', { class: 'quiet' }, t('reservations.emptyDay')),
        h('p', { class: 'quiet' }, t('reservations.taken', { confirmed: count('confirmed'), hold: count('hold'), free: count('free') })),
        h('ol', { class: 'slots' }, slots.map((slot) => cell(slot, date, made.items))));
    } catch (error) {
      if (error.name === 'AbortError') return;
      put(place, error.absent ? absent() : failure(error, load));
    }
  }
  view.onChange(['reservations', 'outbox', 'flow', 'races', 'payments'], load);
  await load();
}

function stateOf(slot) {
  if (slot.status && slot.status !== 'available') return slot.status;
  if (slot.available === true || slot.status === 'available') return 'free';
  return slot.available === false ? 'hold' : 'free';
}

/** A slot: who has it, and who had it. */
function cell(slot, date, made) {
  const state = stateOf(slot);
  const number = slot.slotNumber ?? slot.slot ?? slot.number;
  const said = named('reservation', state);
  const here = made.filter((one) => one.slotNumber === number);
  const holder = here.find((one) => one.status === state);
  const past = ['cancelled', 'expired'].map((status) => [status, here.filter((one) => one.status === status)]).filter(([, all]) => all.length > 0);
  const latest = past.flatMap(([, all]) => all).sort((a, b) => (a.createdAt < b.createdAt ? 1 : -1))[0];
  const shown = holder ?? (state === 'free' ? latest : null);
  const href = shown ? `/console/reservations/${idOf(shown)}` : state !== 'free' && `/console/reservations/all?date=${date}`;
  const before = past.map(([status, all]) => `${all.length} ${named('reservation', status)}`).join(', ');
  const inner = [h('b', null, String(number)), h('span', null, said), holder && h('span', { class: 'slot-user' }, holder.userId), before && h('span', { class: 'slot-past' }, before)];
  return h('li', { class: `slot ${state}` }, href ? h('a', { href, 'aria-label': [number, said, holder?.userId, before].filter(Boolean).join(' ') }, inner) : h('div', null, inner));
}

async function all(view) {
  const { node } = list(view, {
    path: '/reservations',
    caption: t('nav.reservations'),
    parts: ['reservations', 'outbox', 'flow', 'payments'],
    filters: [
      { name: 'date', label: t('label.date'), type: 'date' },
      { name: 'status', label: t('label.status'), choices: [['', t('label.all')], ...['hold', 'confirmed', 'expired', 'cancelled'].map((status) => [status, named('reservation', status)])] },
      { name: 'userId', label: t('label.user'), placeholder: 'u-1' },
    ],
    columns: [
      { label: t('label.reservation'), cell: (one) => h('code', null, idOf(one).slice(0, 13)) },
      { label: t('label.status'), cell: (one) => badge(one.status, 'reservation') },
      { label: t('label.date'), cell: (one) => one.projectionDate },
      { label: t('label.slot'), class: 'number', cell: (one) => one.slotNumber },
      { label: t('label.user'), cell: (one) => one.userId },
      { label: t('label.amount'), class: 'number', cell: (one) => money(one.amount, one.currency) },
      { label: t('label.expires'), class: 'time', cell: (one) => when(one.expiresAt ?? one.holdExpiresAt) },
      { label: t('label.created'), class: 'time', cell: (one) => when(one.createdAt) },
    ],
    href: (one) => `/console/reservations/${idOf(one)}`,
    none: () => empty(t('reservations.none'), t('reservations.noneText'), `curl -i BASE/reservations -H 'Content-Type: application/json' -H "Idempotency-Key: $(uuidgen)" \\\n  -d '{"videoId":1,"projectionDate":"${today()}","slotNumber":1,"userId":"u-1","userEmail":"u1@example.com","amount":5000,"currency":"JPY"}'`),
    absent,
  });
  put(view.root, header(t('nav.reservations'), { lead: t('reservations.lead') }), sections('/console/reservations/all'), node);
}

async function detail(view, which) {
  put(view.root, loading());
  const path = `/reservations/${encodeURIComponent(which)}`;
  async function load() {
    let one;
    try {
      one = await get(path, { signal: view.signal });
    } catch (error) {
      if (!error.absent) throw error;
      put(view.root, header(t('nav.reservations')), absent());
      return;
    }
    const paid = one.payment ? await maybe(get(`/payments/${one.payment.paymentId}`, { signal: view.signal })) : null;
    const payments = paid ? [paid] : (await maybe(get(query('/payments', { bookingId: idOf(one), limit: 5 }), { signal: view.signal })))?.items ?? [];
    const renders = (await maybe(get(query('/renders', { reservationId: idOf(one), limit: 5 }), { signal: view.signal })))?.items ?? [];
    const cancel = ['hold', 'confirmed'].includes(one.status) && button(t('reservations.cancel'), async () => {
      if (!(await confirm({ title: t('reservations.cancel'), consequence: t('reservations.cancelText'), label: t('reservations.cancel'), danger: true }))) return;
      try {
        await post(`${path}/cancel`, {});
        toast(t('message.done'));
      } catch (error) {
        toast(describe(error), 'bad');
      }
      await load();
    }, { tone: 'danger', disabled: !view.mayAct });
    put(view.root,
      header(`${t('label.reservation')} ${one.projectionDate} · ${one.slotNumber}`, { back: { href: `/console/reservations?date=${one.projectionDate}`, label: t('nav.reservations') }, badges: [badge(one.status, 'reservation')], actions: cancel ? [cancel] : [] }),
      panel(t('label.facts'), facts([[t('label.id'), id(idOf(one))], [t('label.user'), one.userId], [t('label.mail'), one.userEmail], [t('label.video'), one.videoId && String(one.videoId)], [t('label.amount'), money(one.amount, one.currency)], [t('label.expires'), one.status === 'hold' && (one.expiresAt ?? one.holdExpiresAt) && when(one.expiresAt ?? one.holdExpiresAt)], [t('label.confirmed'), one.confirmedAt && when(one.confirmedAt)], [t('label.cancelled'), one.cancelledAt && when(one.cancelledAt)], [t('label.created'), when(one.createdAt)]])),
      payments.length > 0 && panel(t('nav.payments'), h('ul', { class: 'brief' }, payments.map((payment) => h('li', null, link(`/console/payments/${payment.id}`, money(payment.amount, payment.currency)), ' ', badge(payment.status), payment.refundedAmount > 0 && [' ', h('span', { class: 'quiet' }, `${t('label.refunded')}: ${money(payment.refundedAmount, payment.currency)}`)])))),
      one.status === 'confirmed' || renders.length > 0 ? panel(t('reservations.renders'), renders.length === 0 ? h('p', { class: 'quiet' }, t('reservations.noVideo')) : h('ul', { class: 'brief' }, renders.map((each) => h('li', null, link(`/console/renders/${each.id}`, each.id), ' ', badge(each.status, 'render'))))) : null,
      one.races?.length > 0 && panel(t('reservations.races'), raceTable(one.races)),
      h('details', { class: 'panel' }, h('summary', null, t('label.everything')), json(one)));
  }
  view.onChange(['reservations', 'payments', 'flow', 'races'], load);
  await load();
}

async function renders(view) {
  const { node } = list(view, {
    path: '/renders',
    caption: t('reservations.renders'),
    parts: ['renders', 'outbox', 'flow'],
    filters: [{ name: 'status', label: t('label.status'), choices: [['', t('label.all')], ...['queued', 'processing', 'done', 'failed'].map((status) => [status, named('render', status)])] }],
    columns: [
      { label: t('label.render'), cell: (one) => h('code', null, one.id.slice(0, 13)) },
      { label: t('label.status'), cell: (one) => badge(one.status, 'render') },
      { label: t('label.reservation'), cell: (one) => (one.reservationId ? link(`/console/reservations/${one.reservationId}`, one.reservationId.slice(0, 13)) : '—') },
      { label: t('label.attempts'), class: 'number', cell: (one) => (one.attemptsAllowed ? `${one.attempts} / ${one.attemptsAllowed}` : one.attempts ?? '—') },
      { label: t('label.error'), class: 'grow', cell: (one) => (one.errorCode ? `${one.errorCode} ${one.errorMessage ?? ''}` : '—') },
      { label: t('label.created'), class: 'time', cell: (one) => when(one.createdAt) },
    ],
    href: (one) => `/console/renders/${one.id}`,
    none: () => empty(t('reservations.noRenders'), t('reservations.noRendersText')),
    absent,
  });
  put(view.root, header(t('nav.reservations'), { lead: t('reservations.lead') }), sections('/console/renders'), node);
}

async function render(view, which) {
  put(view.root, loading());
  const path = `/renders/${encodeURIComponent(which)}`;
  async function load() {
    const one = await get(path, { signal: view.signal });
    const retry = one.status === 'failed' && button(t('reservations.retryRender'), async () => {
      if (!(await confirm({ title: t('reservations.retryRender'), consequence: t('reservations.retryRenderText'), label: t('reservations.retryRender') }))) return;
      try {
        await post(`${path}/retry`, {});
        toast(t('message.done'));
      } catch (error) {
        toast(describe(error), 'bad');
      }
      await load();
    }, { tone: 'primary', disabled: !view.mayAct });
    put(view.root, header(`${t('label.render')} ${one.id.slice(0, 13)}`, { back: { href: '/console/renders', label: t('reservations.renders') }, badges: [badge(one.status, 'render')], actions: retry ? [retry] : [] }),
      panel(t('label.facts'), facts([[t('label.id'), id(one.id)], [t('label.reservation'), one.reservationId && link(`/console/reservations/${one.reservationId}`, one.reservationId)], [t('label.video'), String(one.videoId)], [t('label.attempts'), one.attemptsAllowed ? `${one.attempts} / ${one.attemptsAllowed}` : String(one.attempts ?? 0)], [t('label.provider'), one.provider], [t('label.output'), one.outputUrl && h('code', null, one.outputUrl)], [t('label.error'), one.inDoubt ? t('render.inDoubt') : one.errorCode && `${one.errorCode}: ${one.errorMessage ?? ''}`], [t('label.closed'), one.closed && [named('render', one.closed), ' ', when(one.closedAt)]], [t('label.created'), when(one.createdAt)], [t('label.updated'), when(one.updatedAt)]])),
      one.case && h('p', { class: 'notice' }, t('reservations.renderCase'), ' ', link(`/console/cases/${one.case.id}`, t('payments.openCase'))),
      h('details', { class: 'panel' }, h('summary', null, t('label.everything')), json(one)));
  }
  view.onChange(['renders', 'outbox', 'flow'], load);
  await load();
}
