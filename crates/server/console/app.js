// The console: who is there, which page, and what holds for all of them.

import { get, live, post, query, useSession } from './api.js';
import { h, put } from './dom.js';
import { language, setLanguage, t } from './i18n.js';
import { moveRow } from './list.js';
import { failure, toast } from './ui.js';
import alerts from './pages/alerts.js';
import audit from './pages/audit.js';
import billing from './pages/billing.js';
import cases from './pages/cases.js';
import deadletters from './pages/deadletters.js';
import login from './pages/login.js';
import mail from './pages/mail.js';
import orders from './pages/orders.js';
import overview from './pages/overview.js';
import payments from './pages/payments.js';
import queue from './pages/queue.js';
import reservations from './pages/reservations.js';
import search from './pages/search.js';
import settings from './pages/settings.js';
import webhooks from './pages/webhooks.js';

const BASE = '/console';
/** Pages look by themselves so often, whatever the hints say. */
const PERIOD = 15_000;

/** Name, path, key after g, page. */
const NAV = [
  ['watch', [['overview', '', 'o'], ['cases', '/cases', 'c'], ['alerts', '/alerts', 'a']]],
  ['work', [['payments', '/payments', 'p'], ['reservations', '/reservations', 'r'], ['webhooks', '/webhooks', 'w'], ['queue', '/queue', 'q'], ['orders', '/orders', 'x'], ['mail', '/mail', 'm'], ['billing', '/billing', 'b']]],
  ['server', [['audit', '/audit', 'u'], ['settings', '/settings', 's']]],
];

const ROUTES = [
  [/^$/, 'overview', overview],
  [/^\/cases(?:\/([^/]+))?$/, 'cases', cases],
  [/^\/alerts(?:\/([^/]+))?$/, 'alerts', alerts],
  [/^\/payments(?:\/([^/]+))?$/, 'payments', payments],
  [/^\/reservations(?:\/([^/]+))?$/, 'reservations', reservations],
  [/^\/renders(?:\/([^/]+))?$/, 'reservations', reservations],
  [/^\/webhooks(?:\/([^/]+))?$/, 'webhooks', webhooks],
  [/^\/queue\/dead-letters(?:\/([^/]+))?$/, 'queue', deadletters],
  [/^\/queue(?:\/(messages|queues|schedules|flow-control))?(?:\/([^/]+))?$/, 'queue', queue],
  [/^\/orders(?:\/([^/]+))?$/, 'orders', orders],
  [/^\/mail(?:\/(batches|deliveries|inbox))?(?:\/([^/]+))?$/, 'mail', mail],
  [/^\/billing(?:\/([^/]+))?$/, 'billing', billing],
  [/^\/audit$/, 'audit', audit],
  [/^\/settings$/, 'settings', settings],
  [/^\/search$/, 'search', search],
];

const root = document.querySelector('#app');
let session = null;
let page = null;

async function start() {
  try {
    session = await get('/console/api/session');
  } catch (error) {
    put(root, h('main', { class: 'alone' }, failure(error, start)));
    return;
  }
  useSession(session, () => {
    if (session?.authenticated) {
      session = null;
      start();
    }
  });
  if (session.authenticated) shell();
  else showLogin();
}

function showLogin() {
  leave();
  put(root, h('div', { id: 'toasts' }), login(session, start, toggles()));
  document.title = `${t('login.title')} · Tashika`;
  root.querySelector('input')?.focus();
}

/** The chosen theme: light, dark, or the system's. */
function theme() {
  return document.documentElement.dataset.theme ?? 'auto';
}

function setTheme(next) {
  if (next === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === 'auto') localStorage.removeItem('tashika.theme');
    else localStorage.setItem('tashika.theme', next);
  } catch {
    // It holds until the page is left.
  }
}

function toggles() {
  const words = h('button', {
    type: 'button',
    class: 'ghost',
    lang: language() === 'ja' ? 'en' : 'ja',
    on: { click: () => { setLanguage(language() === 'ja' ? 'en' : 'ja'); if (session?.authenticated) shell(); else showLogin(); } },
  }, language() === 'ja' ? 'English' : '日本語');
  const dark = h('select', { 'aria-label': t('label.theme'), class: 'ghost', on: { change: (event) => setTheme(event.target.value) } },
    ['auto', 'light', 'dark'].map((choice) => h('option', { value: choice, selected: theme() === choice }, t(`theme.${choice}`))));
  return [words, dark];
}

function shell() {
  const links = NAV.map(([group, items]) => h('div', { class: 'nav-group' }, h('p', { class: 'nav-title', id: `nav-${group}` }, t(`nav.${group}`)),
    h('ul', { 'aria-labelledby': `nav-${group}` }, items.map(([name, path, key]) => h('li', null, h('a', { href: BASE + path, data: { nav: name }, 'aria-keyshortcuts': `g ${key}` }, h('span', null, t(`nav.${name}`)), h('span', { class: 'count', data: { count: name }, hidden: true })))))));
  const field = h('input', { type: 'search', id: 'search', name: 'q', placeholder: t('search.placeholder'), 'aria-label': t('search.label'), autocomplete: 'off', spellcheck: 'false', 'aria-keyshortcuts': '/' });
  const find = h('form', { class: 'search', role: 'search', on: { submit: (event) => { event.preventDefault(); if (field.value.trim()) navigate(query(`${BASE}/search`, { q: field.value.trim() })); } } }, field, h('kbd', { 'aria-hidden': 'true' }, '/'));
  const menu = h('button', { type: 'button', class: 'menu', 'aria-expanded': 'false', 'aria-controls': 'nav' }, t('nav.menu'));
  menu.addEventListener('click', () => menu.setAttribute('aria-expanded', String(document.body.classList.toggle('menu-open'))));
  const state = h('span', { class: 'live', id: 'live', role: 'status' }, h('span', { class: 'pulse', 'aria-hidden': 'true' }), h('span', { class: 'live-text' }, t('live.connecting')));
  const who = h('span', { class: 'who' }, session.open ? t('session.open') : session.name, h('span', { class: 'role' }, t(`role.${session.role}`)));
  const out = !session.open && h('button', { type: 'button', class: 'ghost', on: { click: logout } }, t('session.logout'));
  put(root,
    h('a', { class: 'skip', href: '#main' }, t('nav.skip')),
    h('header', { class: 'top' }, menu, h('a', { class: 'brand', href: BASE }, h('b', null, 'Tashika'), ' ', h('span', { lang: 'ja' }, '確か')), find, h('div', { class: 'top-end' }, state, toggles(), who, out)),
    h('nav', { class: 'side', id: 'nav', 'aria-label': t('nav.label') }, links,
      h('p', { class: 'nav-help' }, h('button', { type: 'button', class: 'ghost', on: { click: help } }, `${t('keys.title')} `, h('kbd', null, '?')))),
    h('main', { id: 'main', tabindex: '-1' }),
    h('div', { id: 'toasts', 'aria-live': 'polite' }));
  listen();
  route();
}

async function logout() {
  try {
    await post('/console/api/logout');
  } catch (error) {
    toast(error.message, 'bad');
  }
  stopListening();
  await start();
}

let stopListening = () => {};

function listen() {
  stopListening();
  const stop = live(changed, (up) => {
    const node = document.querySelector('#live');
    if (!node) return;
    // What happened while nobody listened was not told.
    if (up && node.dataset.lost) changed(null);
    if (up) delete node.dataset.lost;
    else node.dataset.lost = 'true';
    node.classList.toggle('up', up);
    put(node.querySelector('.live-text'), up ? t('live.on') : t('live.off'));
  });
  const timer = setInterval(() => { if (!document.hidden) changed(null); }, PERIOD);
  stopListening = () => {
    stop();
    clearInterval(timer);
  };
  counts();
  page?.watchers.forEach(([, act]) => act());
}

/** Numbers beside the navigation: what waits for somebody. */
async function counts() {
  try {
    const answer = await get('/console/api/overview');
    for (const [name, value] of [['cases', answer.counts.openCases], ['alerts', answer.counts.firingAlerts], ['queue', answer.counts.deadLetters], ['orders', answer.counts.abortedEffects], ['webhooks', answer.counts.failedWebhooks]]) {
      const node = document.querySelector(`[data-count="${name}"]`);
      if (!node) continue;
      node.hidden = value === 0;
      put(node, value >= answer.countMax ? `${answer.countMax}+` : String(value), h('span', { class: 'sr' }, ` ${t('nav.waiting')}`));
    }
  } catch {
    // The page itself says what is wrong.
  }
}

/** `parts` is `null` when it is time to look anyway. */
function changed(parts) {
  if (!parts || ['cases', 'alerts', 'queue', 'outbox', 'webhooks'].some((part) => parts.has(part))) counts();
  page?.watchers.forEach(([wanted, act]) => {
    if (!parts || wanted.some((part) => parts.has(part))) act();
  });
}

function leave() {
  page?.abort.abort();
  page = null;
}

export function navigate(href, replace = false) {
  if (replace) history.replaceState(null, '', href);
  else history.pushState(null, '', href);
  document.body.classList.remove('menu-open');
  document.querySelector('.menu')?.setAttribute('aria-expanded', 'false');
  route(true);
}

async function route(moved = false) {
  leave();
  const path = location.pathname.replace(/\/+$/, '');
  const here = path.startsWith(BASE) ? path.slice(BASE.length) : '';
  const main = document.querySelector('#main');
  if (!main) return;
  const found = ROUTES.find(([pattern]) => pattern.test(here));
  for (const node of document.querySelectorAll('[data-nav]')) {
    if (node.dataset.nav === found?.[1]) node.setAttribute('aria-current', 'page');
    else node.removeAttribute('aria-current');
  }
  const title = found ? t(`nav.${found[1]}`) : t('error.noPage');
  document.title = `${title} · Tashika`;
  const own = { abort: new AbortController(), watchers: [] };
  page = own;
  const content = h('div', { class: 'page' });
  put(main, content);
  scrollTo(0, 0);
  if (!found) {
    put(content, h('h1', null, t('error.noPage')), h('p', null, h('a', { href: BASE }, t('nav.overview'))));
    return;
  }
  const view = {
    root: content,
    path: location.pathname,
    query: new URLSearchParams(location.search),
    params: here.match(found[0]).slice(1).map((part) => (part === undefined ? undefined : decodeURIComponent(part))),
    signal: own.abort.signal,
    session,
    mayAct: session.role === 'operator',
    navigate,
    reload: () => route(),
    title: (text) => { document.title = `${text} · Tashika`; },
    onChange: (parts, act) => own.watchers.push([parts, later(act, own.abort.signal)]),
  };
  try {
    await found[2](view);
  } catch (error) {
    if (error.name !== 'AbortError' && page === own) put(content, failure(error, () => route()));
  }
  // For those who hear the page: a new one begins at its heading.
  if (moved && page === own) content.querySelector('h1')?.focus({ preventScroll: true });
}

/** At most once in a second, and never two at a time. */
function later(act, signal) {
  let waiting = false;
  let running = false;
  return async () => {
    if (waiting) return;
    waiting = true;
    await new Promise((resolve) => { setTimeout(resolve, 400); });
    waiting = false;
    if (signal.aborted || running || document.hidden) return;
    running = true;
    try {
      await act();
    } catch {
      // What is shown stays; the next look may do better.
    } finally {
      running = false;
    }
  };
}

function help() {
  const keys = [['/', t('keys.search')], ['j  k', t('keys.rows')], ['Enter', t('keys.open')], ['?', t('keys.help')], ...NAV.flatMap(([, items]) => items.map(([name, , key]) => [`g ${key}`, t(`nav.${name}`)]))];
  const dialog = h('dialog', { class: 'help', 'aria-labelledby': 'help-title' }, h('h2', { id: 'help-title' }, t('keys.title')),
    h('dl', { class: 'keys' }, keys.map(([key, text]) => h('div', null, h('dt', null, key.split('  ').map((one) => h('kbd', null, one))), h('dd', null, text)))),
    h('form', { method: 'dialog', class: 'dialog-actions' }, h('button', { class: 'primary' }, t('action.close'))));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

let prefix = 0;

document.addEventListener('keydown', (event) => {
  if (!session?.authenticated || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const typing = event.target.closest?.('input:not([type=checkbox]), textarea, select, dialog');
  if (event.key === 'Escape' && event.target.id === 'search') event.target.blur();
  if (typing) return;
  if (Date.now() - prefix < 1500) {
    prefix = 0;
    const item = NAV.flatMap(([, items]) => items).find(([, , key]) => key === event.key);
    if (item) {
      event.preventDefault();
      navigate(BASE + item[1]);
    }
    return;
  }
  if (event.key === 'g') prefix = Date.now();
  else if (event.key === '/') { event.preventDefault(); document.querySelector('#search')?.focus(); }
  else if (event.key === '?') { event.preventDefault(); help(); }
  else if (event.key === 'j' || event.key === 'k') { event.preventDefault(); moveRow(event.key === 'j' ? 1 : -1); }
});

document.addEventListener('click', (event) => {
  const anchor = event.target.closest?.('a[href]');
  if (!anchor || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const url = new URL(anchor.href, location.href);
  if (anchor.classList.contains('skip')) {
    event.preventDefault();
    document.querySelector('#main')?.focus();
    return;
  }
  if (url.origin !== location.origin || !`${url.pathname}/`.startsWith(`${BASE}/`) || anchor.target) return;
  event.preventDefault();
  navigate(url.pathname + url.search);
});

// A page that nobody sees does not listen: browsers allow few connections to one server.
document.addEventListener('visibilitychange', () => {
  if (!session?.authenticated) return;
  if (document.hidden) stopListening();
  else listen();
});

addEventListener('popstate', () => { if (session?.authenticated) route(); });

start();
