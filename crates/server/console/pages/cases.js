import { ApiError, get, maybe, post } from '../api.js';
import { h, put } from '../dom.js';
import { language, named, t } from '../i18n.js';
import { list } from '../list.js';
import { stateDiagram, timelinePicture } from '../timeline.js';
import { badge, button, confirm, describe, empty, example, facts, header, id, json, link, loading, panel, toast, when } from '../ui.js';
import { lineTable, paymentFacts } from './payments.js';

/** Where what a case is about can be looked at. */
export function subjectLink(one) {
  const places = { payment: 'payments', order: 'orders', reservation: 'reservations', render: 'renders', webhook: 'webhooks', webhook_event: 'webhooks', message: 'queue/messages', outbox: 'orders' };
  const place = places[one.subjectType];
  const label = `${named('subject', one.subjectType)} ${one.subjectId}`;
  return place ? link(`/console/${place}/${encodeURIComponent(one.subjectId)}`, label) : h('span', null, label);
}

/** What it is about, in the reader's language: cases themselves are written down in English. */
export function summaryOf(one) {
  const said = language() === 'en' ? null : named('caseText', one.kind);
  return said && said !== one.kind ? said : one.summary;
}

export default async function cases(view) {
  const [which] = view.params;
  if (which) return detail(view, which);
  const { node } = list(view, {
    path: '/cases',
    caption: t('nav.cases'),
    parts: ['cases'],
    filters: [
      { name: 'status', label: t('label.status'), default: 'open', choices: [['open', named('status', 'open')], ['resolved', named('status', 'resolved')]] },
      { name: 'kind', label: t('label.kind'), placeholder: 'payment_unknown' },
    ],
    columns: [
      { label: t('label.case'), cell: (one) => named('case', one.kind) },
      { label: t('label.status'), cell: (one) => badge(one.status) },
      { label: t('label.subject'), cell: (one) => subjectLink(one) },
      { label: t('label.summary'), class: 'grow', cell: (one) => summaryOf(one) },
      { label: t('label.opened'), class: 'time', cell: (one) => when(one.openedAt) },
    ],
    href: (one) => `/console/cases/${one.id}`,
    none: () => empty(t('cases.none'), t('cases.noneText')),
  });
  put(view.root, header(t('nav.cases'), { lead: t('cases.lead') }), node);
}

/** A case by its id, from a server that has no such endpoint as well. */
async function find(which, signal) {
  try {
    return await get(`/cases/${encodeURIComponent(which)}`, { signal });
  } catch (error) {
    if (!(error instanceof ApiError) || !error.absent) throw error;
  }
  for (const status of ['open', 'resolved']) {
    let cursor = '';
    for (let page = 0; page < 20; page += 1) {
      const answer = await get(`/cases?status=${status}&limit=500${cursor && `&cursor=${cursor}`}`, { signal });
      const found = answer.items.find((one) => one.id === which);
      if (found) return found;
      cursor = answer.nextCursor ?? '';
      if (!cursor) break;
    }
  }
  throw new ApiError(404, { code: 'CASE_NOT_FOUND', detail: t('cases.notFound') });
}

/** Actions come with their words, or as bare names from a server that has none. */
function actionsOf(one) {
  return (one.choices ?? one.actions ?? []).map((action) => {
    const bare = typeof action === 'string';
    const name = bare ? action : action.action;
    const own = (value) => (typeof value === 'object' && value ? (value[document.documentElement.lang] ?? value.en) : value);
    return {
      name,
      label: (!bare && own(action.label)) || named('caseAction', name),
      consequence: (!bare && own(action.consequence)) || named('caseConsequence', name),
      question: (!bare && typeof action.confirm !== 'boolean' && own(action.confirm)) || '',
      needsNote: bare ? name !== 'verify' : Boolean(action.needsNote),
      danger: ['not_charged', 'not_executed', 'refunded', 'resend', 'refund'].includes(name),
    };
  });
}

async function act(one, action, note) {
  try {
    return await post(`/cases/${one.id}/actions/${action.name}`, note ? { note } : {});
  } catch (error) {
    if (!(error instanceof ApiError) || !error.absent || one.subjectType !== 'payment') throw error;
  }
  const payment = `/payments/${encodeURIComponent(one.subjectId)}`;
  return action.name === 'verify' ? post(`${payment}/verify`) : post(`${payment}/resolve`, { outcome: action.name, note });
}

async function detail(view, which) {
  put(view.root, loading());
  async function load() {
    const one = await find(which, view.signal);
    const isPayment = one.subjectType === 'payment';
    const payment = isPayment ? await maybe(get(`/payments/${encodeURIComponent(one.subjectId)}`, { signal: view.signal })) : null;
    const lines = payment ? (await get(`/payments/${payment.id}/timeline`, { signal: view.signal })).items : (one.timeline ?? []);
    draw(one, payment, lines);
  }
  function draw(one, payment, lines) {
    view.title(`${t('label.case')} ${named('case', one.kind)}`);
    const open = one.status === 'open';
    const actions = open ? actionsOf(one) : [];
    const evidence = one.evidence ?? one.details;
    put(view.root,
      header(named('case', one.kind), { back: { href: '/console/cases', label: t('nav.cases') }, badges: [badge(one.status)] }),
      panel(t('cases.question'),
        h('p', { class: 'summary' }, summaryOf(one)),
        summaryOf(one) !== one.summary && h('p', { class: 'quiet', lang: 'en' }, one.summary),
        facts([[t('label.subject'), subjectLink(one)], [t('label.opened'), when(one.openedAt)], [t('label.resolved'), one.resolvedAt && when(one.resolvedAt)], [t('label.decision'), one.resolution && named('caseAction', one.resolution)], [t('label.note'), one.note], [t('label.by'), one.resolvedBy], [t('label.id'), id(one.id)]])),
      open && panel(t('cases.decide'), choices(one, actions)),
      one.tried && panel(t('cases.tried'), h('p', null, one.tried.summary ?? String(one.tried))),
      payment && panel(t('payments.picture'), timelinePicture(lines, payment), stateDiagram(lines, payment)),
      payment && panel(t('nav.payments'), paymentFacts(payment)),
      lines.length > 0 && panel(t('payments.timeline'), lineTable(lines)),
      evidence && Object.keys(evidence).length > 0 && h('details', { class: 'panel' }, h('summary', null, t('cases.evidence')), json(evidence)));
  }
  function choices(one, actions) {
    if (actions.length === 0) return h('p', null, t('cases.noActions'));
    return h('ul', { class: 'choices' }, actions.map((action) => h('li', null,
      h('div', null, h('b', null, action.label), h('p', null, action.consequence)),
      button(action.label, async () => {
        const answer = await confirm({ title: action.label, consequence: [action.consequence, action.question && h('b', { class: 'question' }, action.question)], label: action.label, needsNote: action.needsNote, danger: action.danger });
        if (!answer) return;
        try {
          await act(one, action, answer.note);
          toast(t('message.done'));
          await load();
        } catch (error) {
          if (error instanceof ApiError && error.absent) put(view.root.querySelector('.choices'), h('li', null, h('p', null, t('cases.commandLine')), example(`tashika outbox resolve ${one.subjectId} --action ${action.name.replaceAll('_', '-')} --note "…"`)));
          else toast(describe(error), 'bad');
        }
      }, { tone: action.danger ? 'danger' : '', disabled: !view.mayAct, title: view.mayAct ? undefined : t('role.onlyOperator') }))));
  }
  view.onChange(['cases', 'payments'], load);
  await load();
}
