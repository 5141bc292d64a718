import { call, get, post } from '../api.js';
import { h, put } from '../dom.js';
import { number, t } from '../i18n.js';
import { list } from '../list.js';
import { button, confirm, describe, empty, facts, header, id, json, link, loading, panel, toast, when, withProgress } from '../ui.js';
import { events, queueTabs } from './queue.js';

/** Letters that one request sends again. */
const BATCH = 50;

export default async function deadletters(view) {
  const [which] = view.params;
  if (which) return detail(view, which);
  const chosen = button(t('dlq.replayChosen', { count: 0 }), () => replay([...selection]), { tone: 'primary', disabled: true });
  const drop = button(t('dlq.dropChosen'), () => remove([...selection]), { tone: 'danger', disabled: true });
  const all = button(t('dlq.replayAll'), replayAll, { disabled: !view.mayAct });
  let selection = new Set();
  const found = list(view, {
    path: '/v2/dlq',
    caption: t('queue.deadLetters'),
    parts: ['queue'],
    paging: (cursor) => ({ count: 50, cursor }),
    items: (answer) => answer.messages,
    cursor: (answer) => answer.cursor,
    filters: [
      { name: 'host', label: t('label.host'), placeholder: 'worker.example' },
      { name: 'queueName', label: t('label.queue') },
      { name: 'responseStatus', label: t('label.answer'), placeholder: '500' },
    ],
    select: (one) => one.dlqId,
    chosen: (keys) => {
      selection = keys;
      put(chosen, t('dlq.replayChosen', { count: number(keys.size) }));
      chosen.disabled = !view.mayAct || keys.size === 0;
      drop.disabled = chosen.disabled;
    },
    columns: [
      { label: t('label.message'), cell: (one) => h('code', { title: one.messageId }, `${one.messageId.slice(0, 12)}…${one.messageId.slice(-4)}`) },
      { label: t('label.destination'), class: 'grow', cell: (one) => `${one.method} ${one.url}` },
      { label: t('label.answer'), class: 'number', cell: (one) => one.responseStatus || '—' },
      { label: t('label.said'), class: 'grow', cell: (one) => (one.responseBody ?? '').slice(0, 120) || '—' },
      { label: t('label.created'), class: 'time', cell: (one) => when(one.createdAt) },
    ],
    href: (one) => `/console/queue/dead-letters/${encodeURIComponent(one.dlqId)}`,
    none: () => empty(t('dlq.none'), t('dlq.noneText')),
    tools: h('div', { class: 'tools' }, chosen, drop, all),
  });
  put(view.root, header(t('nav.queue'), { lead: t('dlq.lead') }), queueTabs('/console/queue/dead-letters'), found.node);

  async function replay(ids) {
    const answer = await confirm({ title: t('dlq.replay'), consequence: t('dlq.replayText', { count: number(ids.length) }), label: t('dlq.replay') });
    if (!answer) return;
    await inBatches(t('dlq.replay'), ids, async (part) => (await post('/v2/dlq/retry', { dlqIds: part })).responses.length, 'dlq.replayed');
  }
  async function remove(ids) {
    const answer = await confirm({ title: t('dlq.drop'), consequence: t('dlq.dropText', { count: number(ids.length) }), label: t('dlq.drop'), danger: true });
    if (!answer) return;
    await inBatches(t('dlq.drop'), ids, async (part) => (await call('DELETE', '/v2/dlq', { body: { dlqIds: part } })).deleted, 'dlq.dropped');
  }
  async function inBatches(title, ids, work, said) {
    let done = 0;
    try {
      await withProgress(title, async ({ step, stopped }) => {
        for (let at = 0; at < ids.length && !stopped(); at += BATCH) {
          step(at, ids.length);
          done += await work(ids.slice(at, at + BATCH));
        }
      });
      toast(t(said, { count: number(done) }));
    } catch (error) {
      toast(describe(error), 'bad');
    }
    await found.reload();
  }
  async function replayAll() {
    const answer = await confirm({ title: t('dlq.replayAll'), consequence: t('dlq.replayAllText'), label: t('dlq.replayAll') });
    if (!answer) return;
    const { host, queueName, responseStatus } = found.values();
    const chosenBy = new URLSearchParams(Object.entries({ host, queueName, responseStatus }).filter(([, value]) => value));
    let done = 0;
    try {
      const { counts } = await get('/console/api/overview');
      const total = chosenBy.size === 0 ? counts.deadLetters : 0;
      await withProgress(t('dlq.replayAll'), async ({ step, stopped }) => {
        let cursor = '';
        do {
          step(done, total, t('dlq.replayed', { count: number(done) }));
          const part = new URLSearchParams(chosenBy);
          part.set('count', String(BATCH));
          if (cursor) part.set('cursor', cursor);
          const sent = await post(`/v2/dlq/retry?${part}`);
          done += sent.responses.length;
          cursor = sent.cursor ?? '';
        } while (cursor && !stopped());
      });
      toast(t('dlq.replayed', { count: number(done) }));
    } catch (error) {
      toast(describe(error), 'bad');
    }
    await found.reload();
  }
}

async function detail(view, which) {
  put(view.root, loading());
  const path = `/v2/dlq/${encodeURIComponent(which)}`;
  const one = await get(path, { signal: view.signal });
  const log = await get(`/v2/events?messageId=${one.messageId}&order=earliestFirst&count=200`, { signal: view.signal });
  const replay = button(t('dlq.replay'), async () => {
    if (!(await confirm({ title: t('dlq.replay'), consequence: t('dlq.replayText', { count: 1 }), label: t('dlq.replay') }))) return;
    try {
      const sent = await post(`/v2/dlq/retry/${encodeURIComponent(which)}`);
      toast(t('dlq.replayed', { count: 1 }));
      view.navigate(`/console/queue/messages/${sent.messageId}`);
    } catch (error) {
      toast(describe(error), 'bad');
    }
  }, { tone: 'primary', disabled: !view.mayAct });
  const drop = button(t('dlq.drop'), async () => {
    if (!(await confirm({ title: t('dlq.drop'), consequence: t('dlq.dropText', { count: 1 }), label: t('dlq.drop'), danger: true }))) return;
    try {
      await call('DELETE', path);
      toast(t('dlq.dropped', { count: 1 }));
      view.navigate('/console/queue/dead-letters');
    } catch (error) {
      toast(describe(error), 'bad');
    }
  }, { tone: 'danger', disabled: !view.mayAct });
  put(view.root,
    header(t('dlq.letter'), { back: { href: '/console/queue/dead-letters', label: t('queue.deadLetters') }, actions: [replay, drop] }),
    panel(t('label.facts'), facts([[t('label.message'), link(`/console/queue/messages/${one.messageId}`, one.messageId)], [t('label.id'), id(one.dlqId)], [t('label.destination'), `${one.method} ${one.url}`], [t('label.answer'), one.responseStatus ? String(one.responseStatus) : t('dlq.noAnswer')], [t('label.retries'), String(one.maxRetries)], [t('label.queue'), one.queueName], [t('label.created'), when(one.createdAt)]])),
    panel(t('dlq.lastAnswer'), one.responseBody ? json(one.responseBody) : h('p', { class: 'quiet' }, t('label.nothing')), one.responseHeader && h('details', null, h('summary', null, t('label.headers')), json(one.responseHeader))),
    panel(t('queue.log'), events(log.events)),
    panel(t('label.payload'), one.body ?? one.bodyBase64 ? json(one.body ?? one.bodyBase64) : h('p', { class: 'quiet' }, t('label.nothing'))));
}
