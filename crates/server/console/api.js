// The API, as everybody else calls it, with the session's cookie.

import { language } from './i18n.js';

let csrf = '';
let expired = () => {};

/** Who has logged in: its token goes with every request that changes something. */
export function useSession(session, whenExpired) {
  csrf = session.csrf ?? '';
  expired = whenExpired;
}

export class ApiError extends Error {
  constructor(status, body) {
    super(body?.detail ?? body?.error ?? `HTTP ${status}`);
    this.status = status;
    this.code = body?.code ?? '';
    this.title = body?.title ?? '';
    this.requestId = body?.request_id ?? '';
    this.fields = body?.errors ?? [];
  }

  /** There is no such endpoint: this server has no such feature, which is not the same as "nothing found". */
  get absent() {
    return this.status === 404 && this.code === 'NOT_FOUND';
  }
}

export async function call(method, path, { body, headers = {}, signal } = {}) {
  const init = { method, headers: { 'Accept-Language': language(), ...headers }, signal, credentials: 'same-origin', cache: 'no-store' };
  if (body !== undefined) {
    init.headers['Content-Type'] = 'application/json';
    init.body = JSON.stringify(body);
  }
  if (method !== 'GET' && csrf) init.headers['X-CSRF-Token'] = csrf;
  let response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, { code: 'OFFLINE', detail: '' });
  }
  const text = await response.text();
  let found = null;
  try {
    found = text ? JSON.parse(text) : null;
  } catch {
    found = null;
  }
  if (!response.ok) {
    const error = new ApiError(response.status, found);
    if (response.status === 401 && !path.startsWith('/console/api/log')) expired();
    // A failed payment is answered with the payment itself.
    error.body = found;
    throw error;
  }
  return found;
}

export const get = (path, options) => call('GET', path, options);
export const post = (path, body, options) => call('POST', path, { body, ...options });

/** A path with a query; what is empty is left out. */
export function query(path, values) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== '') search.set(name, value);
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

/** A result, or `null` where there is none. Anything else that is wrong stays an error. */
export async function maybe(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof ApiError && (error.status === 404 || error.status === 400)) return null;
    throw error;
  }
}

/** Before a connection that the browser has given up is opened again. */
const REOPEN = 5_000;

/**
 * Tells about changes until it is stopped. Calls `state` with whether the connection stands. A connection that breaks is
 * the browser's to open again; one that was refused (too many listeners, a server that is starting) is ours.
 */
export function live(changed, state) {
  let source = null;
  let timer = 0;
  let stopped = false;
  const begin = () => {
    source = listener(changed, state, () => {
      if (!stopped) timer = setTimeout(begin, REOPEN);
    });
  };
  begin();
  return () => {
    stopped = true;
    clearTimeout(timer);
    source.close();
  };
}

function listener(changed, state, refused) {
  const source = new EventSource('/console/api/live');
  source.addEventListener('hello', () => state(true));
  source.addEventListener('change', (event) => {
    try {
      changed(new Set(JSON.parse(event.data).parts));
    } catch {
      // The next one will do.
    }
  });
  source.onerror = () => {
    state(false);
    if (source.readyState === EventSource.CLOSED) refused();
  };
  return source;
}
