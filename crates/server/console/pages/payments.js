import { get, post } from '../api.js';
import { h, put } from '../dom.js';
import { money, named, t } from '../i18n.js';
import { list } from '../list.js';
import { stateDiagram, timelinePicture } from '../timeline.js';
import { badge, button, confirm, describe, empty, facts, header, id, link, loading, panel, raceTable, toast, when } from '../ui.js';

const STATUSES = ['PENDING', 'AUTHORIZED', 'CAPTURED', 'REFUNDED', 'FAILED'];

export default async function payments(view) {
  const [which] = view.params;
  if (which) return detail(view, which);
  const { node } = list(view, {
    path: '/payments',
    caption: t('nav.payments'),
    parts: ['payments', 'cases'],
    filters: [
      { name: 'status', label: t('label.status'), choices: [['', t('label.all')], ...STATUSES.map((status) => [status, named('status', status)])] },
      { name: 'pendingVerification', label: t('payments.doubt'), choices: [['', t('label.all')], ['true', t('payments.inDoubt')], ['false', t('payments.notInDoubt')]] },
      { name: 'bookingId', label: t('label.booking'), placeholder: 'b-1001' },
      { name: 'userId', label: t('label.user'), placeholder: 'u-1' },
    ],
    columns: [
      { label: t('label.payment'), cell: (one) => h('code', { title: one.id }, `${one.id.slice(0, 8)}…${one.id.slice(-4)}`) },
      { label: t('label.status'), cell: (one) => [badge(one.status), ' ', doubtBadge(one)] },
      { label: t('label.amount'), class: 'number', cell: (one) => money(one.amount, one.currency) },
      { label: t('label.refunded'), class: 'number', cell: (one) => (one.refundedAmount ? money(one.refundedAmount, one.currency) : '—') },
      { label: t('label.booking'), cell: (one) => one.bookingId },
      { label: t('label.user'), cell: (one) => one.userId },
      { label: t('label.created'), class: 'time', cell: (one) => when(one.createdAt) },
    ],
    href: (one) => `/console/payments/${one.id}`,
    none: () => empty(t('payments.none'), t('payments.noneText'), `curl -i BASE/payments \\\n  -H 'Content-Type: application/json' -H "Idempotency-Key: $(uuidgen)" \\\n  -d '{"bookingId":"b-1","userId":"u-1","amount":5000,"currency":"JPY","paymentMethod":"sandbox_ok"}'`),
  });
  put(view.root, header(t('nav.payments'), { lead: t('payments.lead') }), node);
}

function doubtBadge(one) {
  if (one.verificationFailed) return h('span', { class: 'badge bad' }, t('payments.givenUp'));
  if (one.pendingVerification) return h('span', { class: 'badge warn' }, t('payments.inDoubt'));
  return null;
}

export function paymentFacts(one) {
  const amount = (value) => (value === undefined || value === null ? null : money(value, one.currency));
  return facts([
    [t('label.payment'), link(`/console/payments/${one.id}`, one.id)],
    [t('label.status'), [badge(one.status), ' ', doubtBadge(one)]],
    [t('label.amount'), amount(one.amount)],
    [t('label.captured'), amount(one.capturedAmount)],
    [t('label.refunded'), amount(one.refundedAmount)],
    [t('label.booking'), one.bookingId],
    [t('label.user'), one.userId],
    [t('label.gateway'), one.gateway],
    [t('label.gatewayId'), one.gatewayTransactionId && id(one.gatewayTransactionId)],
    [t('label.reason'), one.reason && `${one.reason} (${one.reasonCode})`],
    [t('label.operation'), one.operation && `${one.operation.kind} ${money(one.operation.amount, one.currency)}`],
    [t('payments.checks'), one.verification && `${one.verification.attempts} · ${one.verification.reason}`],
    [t('label.created'), when(one.createdAt)],
    [t('label.updated'), when(one.updatedAt)],
  ]);
}

/** Everything that happened, line by line. */
export function lineTable(lines) {
  const said = (line) => {
    if (line.kind === 'transition') return `${named('status', line.from)} → ${named('status', line.to)}`;
    if (line.kind === 'person') return `${named('caseAction', line.decision)} · ${line.who} · ${line.note}`;
    return [line.operation, line.outcome && named('outcome', line.outcome), line.found, line.code, line.message, line.source].filter(Boolean).join(' · ');
  };
  const exchange = (line) => [line.request, line.reply && `→ ${line.reply}`].filter(Boolean).join(' ');
  return h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': t('payments.timeline') }, h('table', { class: 'plain lines' },
    h('thead', null, h('tr', null, [t('label.time'), t('label.what'), t('label.said'), t('label.exchange')].map((label) => h('th', { scope: 'col' }, label)))),
    h('tbody', null, lines.map((line) => h('tr', { class: `line-${line.kind} ${line.outcome ?? ''}` },
      h('td', { class: 'time' }, when(line.at, true)), h('td', null, named('timeline', line.kind)), h('td', null, said(line)), h('td', null, exchange(line) && h('code', null, exchange(line))))))));
}

async function detail(view, which) {
  put(view.root, loading());
  const path = `/payments/${encodeURIComponent(which)}`;

  async function load() {
    const [one, timeline] = await Promise.all([get(path, { signal: view.signal }), get(`${path}/timeline`, { signal: view.signal })]);
    const lines = timeline.items;
    view.title(`${t('label.payment')} ${one.bookingId}`);
    put(view.root,
      header(`${t('label.payment')} ${one.id.slice(0, 8)}…`, { back: { href: '/console/payments', label: t('nav.payments') }, badges: [badge(one.status), doubtBadge(one)], actions: actions(one) }),
      one.case && h('p', { class: 'notice' }, t('payments.hasCase'), ' ', link(`/console/cases/${one.case.id}`, t('payments.openCase'))),
      panel(t('payments.picture'), timelinePicture(lines, one)),
      h('div', { class: 'two' }, panel(t('payments.facts'), paymentFacts(one)), panel(t('payments.diagram'), stateDiagram(lines, one))),
      one.refunds?.length > 0 && panel(t('payments.refunds'), refunds(one)),
      one.races?.length > 0 && panel(t('overview.races'), raceTable(one.races)),
      panel(t('payments.timeline'), lineTable(lines)));
  }

  function actions(one) {
    const may = { disabled: !view.mayAct, title: view.mayAct ? undefined : t('role.onlyOperator') };
    const run = async (title, consequence, label, danger, work) => {
      if (!(await confirm({ title, consequence, label, danger }))) return;
      try {
        await work();
        toast(t('message.done'));
      } catch (error) {
        toast(describe(error), 'bad');
      }
      await load();
    };
    const key = () => ({ headers: { 'Idempotency-Key': crypto.randomUUID() } });
    const money0 = (value) => money(value, one.currency);
    const found = [button(t('payments.verify'), async () => {
      try {
        const now = await post(`${path}/verify`);
        toast(now.verificationRequired ? t('payments.stillUnknown') : t('payments.nothingInDoubt'));
      } catch (error) {
        toast(describe(error), 'bad');
      }
      await load();
    }, may)];
    if (one.status === 'AUTHORIZED' && !one.operation) {
      found.push(button(t('payments.capture'), () => run(t('payments.capture'), t('payments.captureText', { amount: money0(one.amount) }), t('payments.capture'), false, () => post(`${path}/capture`, {}, key())), may));
      found.push(button(t('payments.void'), () => run(t('payments.void'), t('payments.voidText', { amount: money0(one.amount) }), t('payments.void'), true, () => post(`${path}/void`, {}, key())), { ...may, tone: 'danger' }));
    }
    const left = (one.capturedAmount ?? 0) - (one.refundedAmount ?? 0);
    if (one.status === 'CAPTURED' && left > 0) {
      found.push(button(t('payments.refund'), () => run(t('payments.refund'), t('payments.refundText', { amount: money0(left) }), t('payments.refund'), true, () => post(`${path}/refund`, {}, key())), { ...may, tone: 'danger' }));
    }
    return found;
  }

  function refunds(one) {
    return h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': t('payments.refunds') }, h('table', { class: 'plain' },
      h('thead', null, h('tr', null, [t('label.id'), t('label.status'), t('label.amount'), t('label.reason'), t('label.created')].map((label) => h('th', { scope: 'col' }, label)))),
      h('tbody', null, one.refunds.map((refund) => h('tr', null, h('td', null, id(refund.id, { short: true })), h('td', null, badge(refund.status)), h('td', { class: 'number' }, money(refund.amount, one.currency)), h('td', null, refund.failure?.message ?? refund.reason ?? '—'), h('td', { class: 'time' }, when(refund.createdAt)))))));
  }

  view.onChange(['payments', 'cases', 'flow', 'audit'], load);
  await load();
}
