import { call, get, maybe, post } from '../api.js';
import { h, put } from '../dom.js';
import { named, number, t } from '../i18n.js';
import { list } from '../list.js';
import { badge, button, confirm, describe, empty, facts, header, id, json, link, loading, panel, tabs, toast, when } from '../ui.js';

export const queueTabs = (here) => tabs([
  ['/console/queue', t('queue.messages')],
  ['/console/queue/dead-letters', t('queue.deadLetters')],
  ['/console/queue/queues', t('queue.queues')],
  ['/console/queue/schedules', t('queue.schedules')],
  ['/console/queue/flow-control', t('queue.flowControl')],
], here);

export default async function queue(view) {
  const [section, which] = view.params;
  if (section === 'messages' && which) return message(view, which);
  if (section === 'queues') return table(view, QUEUES, which);
  if (section === 'schedules') return table(view, SCHEDULES, which);
  if (section === 'flow-control') return table(view, FLOWS, which);
  const { node } = list(view, {
    path: '/console/api/messages',
    caption: t('queue.messages'),
    parts: ['queue'],
    filters: [
      { name: 'state', label: t('label.state'), choices: [['', t('label.all')], ...['queued', 'throttled', 'ready', 'delivered', 'failed', 'cancelled'].map((state) => [state, named('messageState', state)])] },
      { name: 'queue', label: t('label.queue') },
      { name: 'host', label: t('label.host'), placeholder: 'api.example.com' },
    ],
    columns: [
      { label: t('label.message'), cell: (one) => h('code', { title: one.id }, `${one.id.slice(0, 12)}…${one.id.slice(-4)}`) },
      { label: t('label.state'), cell: (one) => badge(one.state, 'messageState') },
      { label: t('label.destination'), class: 'grow', cell: (one) => h('span', null, h('b', null, one.method), ` ${one.url}`) },
      { label: t('label.queue'), cell: (one) => one.queue ?? one.flowKey ?? '—' },
      { label: t('label.answer'), class: 'number', cell: (one) => one.responseStatus || '—' },
      { label: t('label.created'), class: 'time', cell: (one) => when(one.createdAt) },
    ],
    href: (one) => `/console/queue/messages/${one.id}`,
    none: () => empty(t('queue.none'), t('queue.noneText'), `curl -i BASE/v2/publish/https://worker.example/jobs \\\n  -H 'Content-Type: application/json' -d '{"hello":"world"}'`),
  });
  put(view.root, header(t('nav.queue'), { lead: t('queue.lead') }), queueTabs('/console/queue'), node);
}

async function message(view, which) {
  put(view.root, loading());
  async function load() {
    const [page, whole, log] = await Promise.all([
      get(`/console/api/messages?id=${encodeURIComponent(which)}`, { signal: view.signal }),
      maybe(get(`/v2/messages/${encodeURIComponent(which)}`, { signal: view.signal })),
      get(`/v2/events?messageId=${encodeURIComponent(which)}&order=earliestFirst&count=200`, { signal: view.signal }),
    ]);
    const one = page.items[0];
    if (!one) {
      put(view.root, header(t('label.message'), { back: { href: '/console/queue', label: t('queue.messages') } }), empty(t('queue.noMessage'), t('queue.noMessageText')));
      return;
    }
    const waiting = ['queued', 'throttled', 'ready'].includes(one.state);
    const cancel = waiting && button(t('queue.cancel'), async () => {
      if (!(await confirm({ title: t('queue.cancel'), consequence: t('queue.cancelText'), label: t('queue.cancel'), danger: true }))) return;
      try {
        await call('DELETE', `/v2/messages/${which}`);
        toast(t('message.done'));
      } catch (error) {
        toast(describe(error), 'bad');
      }
      await load();
    }, { tone: 'danger', disabled: !view.mayAct });
    put(view.root,
      header(`${t('label.message')} ${one.id.slice(0, 12)}…`, { back: { href: '/console/queue', label: t('queue.messages') }, badges: [badge(one.state, 'messageState')], actions: cancel ? [cancel] : [] }),
      one.dlqId && h('p', { class: 'notice' }, t('queue.isDead'), ' ', link(`/console/queue/dead-letters/${encodeURIComponent(one.dlqId)}`, t('queue.openLetter'))),
      panel(t('label.facts'), facts([[t('label.id'), id(one.id)], [t('label.destination'), `${one.method} ${one.url}`], [t('label.queue'), one.queue], [t('label.flowKey'), one.flowKey], [t('label.schedule'), one.schedule], [t('label.labels'), one.labels.join(', ')], [t('label.retries'), whole && String(whole.maxRetries)], [t('label.created'), when(one.createdAt)], [t('label.notBefore'), one.notBefore !== one.createdAt && when(one.notBefore)], [t('label.ended'), one.endedAt && when(one.endedAt)]])),
      panel(t('queue.log'), events(log.events)),
      whole && panel(t('label.payload'), whole.body === undefined && whole.bodyBase64 === undefined ? h('p', { class: 'quiet' }, t('label.nothing')) : json(whole.body ?? whole.bodyBase64), whole.header && h('details', null, h('summary', null, t('label.headers')), json(whole.header))));
  }
  view.onChange(['queue', 'flow'], load);
  await load();
}

export function events(all) {
  if (all.length === 0) return h('p', { class: 'quiet' }, t('label.nothing'));
  return h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': t('queue.log') }, h('table', { class: 'plain' },
    h('thead', null, h('tr', null, [t('label.time'), t('label.state'), t('label.answer'), t('label.said')].map((label) => h('th', { scope: 'col' }, label)))),
    h('tbody', null, all.map((event) => h('tr', null, h('td', { class: 'time' }, when(event.time, true)), h('td', null, badge(event.state, 'messageEvent')), h('td', { class: 'number' }, event.responseStatus ?? '—'), h('td', null, event.error ?? (event.nextDeliveryTime ? [t('queue.next'), ' ', when(event.nextDeliveryTime)] : '')))))));
}

const pauseOf = (path, paused) => ({ title: paused ? t('queue.resume') : t('queue.pause'), consequence: paused ? t('queue.resumeText') : t('queue.pauseText'), path: `${path}/${paused ? 'resume' : 'pause'}` });

const QUEUES = {
  tab: '/console/queue/queues',
  path: '/v2/queues',
  name: (one) => one.name,
  none: () => empty(t('queue.noQueues'), t('queue.noQueuesText'), `curl -i BASE/v2/enqueue/my-queue/https://worker.example/jobs -d '{}'`),
  columns: [
    [() => t('label.name'), (one) => link(`/console/queue?queue=${encodeURIComponent(one.name)}`, one.name)],
    [() => t('label.parallelism'), (one) => number(one.parallelism), 'number'],
    [() => t('queue.lag'), (one) => number(one.lag), 'number'],
    [() => t('label.state'), (one) => badge(one.paused ? 'paused' : 'active')],
    [() => t('label.updated'), (one) => when(one.updatedAt), 'time'],
  ],
  action: (one) => pauseOf(`/v2/queues/${encodeURIComponent(one.name)}`, one.paused),
};

const SCHEDULES = {
  tab: '/console/queue/schedules',
  path: '/v2/schedules',
  name: (one) => one.scheduleId,
  none: () => empty(t('queue.noSchedules'), t('queue.noSchedulesText'), `curl -i BASE/v2/schedules/https://worker.example/nightly \\\n  -H 'Upstash-Cron: 0 3 * * *'`),
  columns: [
    [() => t('label.name'), (one) => h('code', null, one.scheduleId)],
    [() => t('label.cron'), (one) => h('code', null, one.cron)],
    [() => t('label.destination'), (one) => one.destination],
    [() => t('label.state'), (one) => badge(one.isPaused ? 'paused' : 'active')],
    [() => t('queue.last'), (one) => when(one.lastScheduleTime), 'time'],
    [() => t('queue.next'), (one) => when(one.nextScheduleTime), 'time'],
    [() => t('label.error'), (one) => one.error ?? '—'],
  ],
  action: (one) => pauseOf(`/v2/schedules/${encodeURIComponent(one.scheduleId)}`, one.isPaused),
};

const FLOWS = {
  tab: '/console/queue/flow-control',
  path: '/v2/flowControl',
  name: (one) => one.flowControlKey,
  none: () => empty(t('queue.noFlows'), t('queue.noFlowsText'), `curl -i BASE/v2/publish/https://worker.example/jobs \\\n  -H 'Upstash-Flow-Control-Key: partner-a' -H 'Upstash-Flow-Control-Value: parallelism=2,rate=10' -d '{}'`),
  columns: [
    [() => t('label.flowKey'), (one) => h('code', null, one.flowControlKey)],
    [() => t('queue.waiting'), (one) => number(one.waitListSize), 'number'],
    [() => t('label.parallelism'), (one) => `${number(one.parallelismCount)} / ${one.parallelismMax ?? '∞'}`, 'number'],
    [() => t('label.rate'), (one) => `${number(one.rateCount)} / ${one.rateMax ?? '∞'} (${one.ratePeriod} ${t('unit.s')})`, 'number'],
    [() => t('label.state'), (one) => badge(one.isPaused ? 'paused' : 'active')],
  ],
  action: (one) => pauseOf(`/v2/flowControl/${encodeURIComponent(one.flowControlKey)}`, one.isPaused),
};

/** Things that are few: one table, no pages. */
async function table(view, kind, which) {
  const place = h('div', null, loading());
  put(view.root, header(t('nav.queue'), { lead: t('queue.lead') }), queueTabs(kind.tab), place);
  async function load() {
    const all = await get(kind.path, { signal: view.signal });
    const shown = which ? all.filter((one) => kind.name(one) === which) : all;
    if (shown.length === 0) {
      put(place, kind.none());
      return;
    }
    put(place, h('div', { class: 'list-wrap' }, h('table', { class: 'list' },
      h('thead', null, h('tr', null, kind.columns.map(([label, , cls]) => h('th', { scope: 'col', class: cls }, label())), h('th', { scope: 'col' }, t('label.action')))),
      h('tbody', null, shown.map((one) => {
        const { title, consequence, path } = kind.action(one);
        return h('tr', null, kind.columns.map(([label, cell, cls]) => h('td', { class: cls, data: { label: label() } }, cell(one))),
          h('td', { data: { label: t('label.action') } }, button(title, async () => {
            if (!(await confirm({ title: `${title}: ${kind.name(one)}`, consequence, label: title }))) return;
            try {
              await post(path);
              toast(t('message.done'));
            } catch (error) {
              toast(describe(error), 'bad');
            }
            await load();
          }, { tone: 'small', disabled: !view.mayAct })));
      })))));
  }
  view.onChange(['queue'], load);
  await load();
}
