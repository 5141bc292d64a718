// What pages are made of.

import { ApiError } from './api.js';
import { h, put, s } from './dom.js';
import { dateTime, exactTime, named, relative, t } from './i18n.js';

/** Which colour a state has: what it means for whoever looks. */
const TONES = {
  good: ['succeeded', 'success', 'CAPTURED', 'delivered', 'DELIVERED', 'resolved', 'confirmed', 'sent', 'active', 'done', 'intact', 'succeeded_part', 'completed', 'finished', 'ok'],
  busy: ['pending', 'sending', 'PENDING', 'queued', 'throttled', 'ready', 'ACTIVE', 'CREATED', 'RETRY', 'running', 'hold', 'processing', 'free', 'early_payment', 'AUTHORIZED', 'in_progress', 'accepted'],
  warn: ['failed_retry', 'failed', 'ERROR', 'warning', 'in_doubt', 'skipped', 'past_due', 'possibly_sent', 'possiblySent', 'open', 'acknowledged', 'paused'],
  bad: ['aborted', 'FAILED', 'firing', 'critical', 'high', 'expired', 'broken', 'canceled_bad', 'given_up'],
};
const TONE_OF = new Map(Object.entries(TONES).flatMap(([tone, states]) => states.map((state) => [state, tone])));

export function badge(value, group = 'status') {
  const tone = TONE_OF.get(value) ?? 'quiet';
  return h('span', { class: `badge ${tone}` }, named(group, value));
}

export function when(value, exact = false) {
  if (!value) return h('span', { class: 'quiet' }, '—');
  const iso = typeof value === 'number' ? new Date(value).toISOString() : value;
  return h('time', { datetime: iso, title: relative(value) }, exact ? exactTime(value) : dateTime(value));
}

/** An id with a button that copies it. */
export function id(value, { short = false } = {}) {
  if (!value) return h('span', { class: 'quiet' }, '—');
  const shown = short && value.length > 13 ? `${value.slice(0, 8)}…${value.slice(-4)}` : value;
  const copy = h('button', { type: 'button', class: 'copy', title: t('action.copy'), 'aria-label': `${t('action.copy')} ${value}` }, s('svg', { viewBox: '0 0 16 16', width: 14, height: 14, 'aria-hidden': 'true' }, s('path', { class: 'icon', d: 'M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z' })));
  copy.addEventListener('click', async (event) => {
    event.preventDefault();
    event.stopPropagation();
    await navigator.clipboard?.writeText(value).catch(() => {});
    toast(t('message.copied'));
  });
  return h('span', { class: 'id' }, h('code', { title: value }, shown), copy);
}

export const link = (href, ...children) => h('a', { href }, ...children);

/** Label and value pairs; what has no value is left out. */
export function facts(pairs) {
  const list = h('dl', { class: 'facts' });
  for (const [label, value] of pairs) {
    if (value === undefined || value === null || value === '' || value === false) continue;
    list.append(h('div', null, h('dt', null, label), h('dd', null, value)));
  }
  return list;
}

export function header(title, { back, actions = [], badges = [], lead } = {}) {
  return h(
    'header',
    { class: 'page-header' },
    back && h('a', { class: 'back', href: back.href }, `‹ ${back.label}`),
    h('div', { class: 'title-row' }, h('h1', { tabindex: '-1' }, title), ...badges, h('div', { class: 'actions' }, ...actions)),
    lead && h('p', { class: 'lead' }, lead),
  );
}

export function panel(title, ...children) {
  return h('section', { class: 'panel' }, title && h('h2', null, title), ...children);
}

/** A place where nothing is: what would be there, and how to get something there. */
export function empty(title, text, command) {
  return h(
    'div',
    { class: 'empty' },
    h('p', { class: 'empty-title' }, title),
    text && h('p', null, text),
    command && example(command),
  );
}

/** A command to copy. */
export function example(command) {
  const text = command.replaceAll('BASE', location.origin);
  const copy = h('button', { type: 'button', class: 'small' }, t('action.copy'));
  copy.addEventListener('click', async () => {
    await navigator.clipboard?.writeText(text).catch(() => {});
    toast(t('message.copied'));
  });
  return h('div', { class: 'example' }, h('pre', { tabindex: '0', 'aria-label': t('label.command') }, h('code', null, text)), copy);
}

export function json(value) {
  return h('pre', { class: 'json', tabindex: '0', 'aria-label': 'JSON' }, h('code', null, typeof value === 'string' ? value : JSON.stringify(value, null, 2)));
}

/** What went wrong, in words. */
export function failure(error, retry) {
  const offline = error instanceof ApiError && error.status === 0;
  const box = h(
    'div',
    { class: 'failure', role: 'alert' },
    h('p', { class: 'empty-title' }, offline ? t('error.offline') : t('error.title')),
    !offline && h('p', null, describe(error)),
    error.requestId && h('p', { class: 'quiet' }, `${t('label.requestId')}: `, h('code', null, error.requestId)),
  );
  if (retry) box.append(h('button', { type: 'button', on: { click: retry } }, t('action.retry')));
  return box;
}

export function describe(error) {
  if (!(error instanceof ApiError)) return String(error?.message ?? error);
  if (error.status === 0) return t('error.offline');
  const fields = error.fields.map((field) => `${field.field}: ${field.problem}`);
  return [error.message, ...fields].join(' · ');
}

export const loading = () => h('p', { class: 'loading', role: 'status' }, t('message.loading'));

/** A message that goes by itself. */
export function toast(text, tone = 'good') {
  const place = document.querySelector('#toasts');
  if (!place) return;
  const node = h('div', { class: `toast ${tone}`, role: tone === 'bad' ? 'alert' : 'status' }, text);
  place.append(node);
  setTimeout(() => node.remove(), tone === 'bad' ? 9000 : 4000);
}

export function button(label, click, { tone = '', disabled = false, title } = {}) {
  return h('button', { type: 'button', class: tone, disabled, title, on: { click } }, label);
}

/**
 * Asks before something is done: says what will happen in words, and takes a note where one is kept.
 * Answers `null`, or `{note}`.
 */
export function confirm({ title, consequence, label, needsNote = false, danger = false, extra }) {
  return new Promise((resolve) => {
    const note = h('textarea', { rows: '3', id: 'note', required: needsNote, maxlength: '500' });
    const yes = h('button', { type: 'submit', class: danger ? 'danger' : 'primary' }, label);
    const no = h('button', { type: 'button' }, t('action.cancel'));
    const dialog = h(
      'dialog',
      { 'aria-labelledby': 'dialog-title' },
      h(
        'form',
        { method: 'dialog' },
        h('h2', { id: 'dialog-title' }, title),
        h('p', { class: 'consequence' }, consequence),
        extra,
        needsNote && h('div', { class: 'field' }, h('label', { for: 'note' }, t('label.note')), note, h('p', { class: 'hint' }, t('label.noteHint'))),
        h('div', { class: 'dialog-actions' }, no, yes),
      ),
    );
    let answer = null;
    no.addEventListener('click', () => dialog.close());
    dialog.querySelector('form').addEventListener('submit', (event) => {
      event.preventDefault();
      if (needsNote && !note.value.trim()) {
        note.focus();
        return;
      }
      answer = { note: note.value.trim() };
      dialog.close();
    });
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
    (needsNote ? note : no).focus();
  });
}

/**
 * Something that takes long, with its progress, and a button that ends it early.
 * `work` gets `{step(done, total, text), stopped()}`.
 */
export async function withProgress(title, work) {
  const bar = h('progress', { max: '1' });
  const text = h('p', { role: 'status' });
  let stopped = false;
  const stop = h('button', { type: 'button', on: { click: () => { stopped = true; } } }, t('action.stop'));
  const dialog = h('dialog', { class: 'progress', 'aria-labelledby': 'progress-title' }, h('h2', { id: 'progress-title' }, title), bar, text, h('div', { class: 'dialog-actions' }, stop));
  dialog.addEventListener('cancel', (event) => {
    event.preventDefault();
    stopped = true;
  });
  bar.setAttribute('aria-label', title);
  document.body.append(dialog);
  dialog.showModal();
  try {
    return await work({
      step(done, total, said) {
        if (total) {
          bar.max = total;
          bar.value = done;
        } else {
          bar.removeAttribute('value');
        }
        put(text, said ?? (total ? `${done} / ${total}` : String(done)));
      },
      stopped: () => stopped,
    });
  } finally {
    dialog.close();
    dialog.remove();
  }
}

/** How far something is, by how it went: `parts` are `[count, tone]`, and what is left is not done yet. */
export function bar(parts, total, label) {
  const done = parts.reduce((sum, [count]) => sum + count, 0);
  const share = (count) => (count / Math.max(total, 1)) * 100;
  let from = 0;
  const pieces = parts.filter(([count]) => count > 0).map(([count, tone]) => {
    const piece = s('rect', { class: tone, x: share(from), y: 0, width: share(count), height: 8 });
    from += count;
    return piece;
  });
  return h('div', { class: 'bar', role: 'progressbar', 'aria-label': label, 'aria-valuemin': '0', 'aria-valuemax': String(total), 'aria-valuenow': String(done) },
    s('svg', { viewBox: '0 0 100 8', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, pieces));
}

/** Races, what they were about and how they ended. */
export function raceTable(all, subject) {
  return h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': t('reservations.races') }, h('table', { class: 'plain' },
    h('thead', null, h('tr', null, [t('label.time'), t('label.scenario'), subject && t('label.subject'), t('label.resolution')].filter(Boolean).map((label) => h('th', { scope: 'col' }, label)))),
    h('tbody', null, all.map((one) => h('tr', null, h('td', { class: 'time' }, when(one.detectedAt)), h('td', { title: one.scenario }, named('race', one.scenario)), subject && h('td', null, subject(one)), h('td', { title: one.resolution }, named('raceResolution', one.resolution)))))));
}

/** Links that are parts of one page. */
export function tabs(items, here) {
  return h(
    'nav',
    { class: 'tabs', 'aria-label': t('label.sections') },
    items.map(([href, label]) => h('a', { href, 'aria-current': here === href ? 'page' : null }, label)),
  );
}
