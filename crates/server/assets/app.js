// The pages' script: copy buttons everywhere, and the API browser on /docs. No libraries, no network but this
// server. Text from the API's description or from answers is only ever set as text, never as markup.
'use strict';

const ja = document.documentElement.lang === 'ja';
const TEXT = {
  errors: ['Errors', 'エラー'],
  copy: ['Copy', 'コピー'],
  copied: ['Copied', 'コピーしました'],
  filter: ['Filter', '絞り込み'],
  token: ['API token (stays in this page)', 'API トークン（このページ内だけで使用）'],
  other: ['Other', 'その他'],
  schemas: ['Schemas', 'スキーマ'],
  parameters: ['Parameters', 'パラメーター'],
  body: ['Request body', 'リクエスト本文'],
  responses: ['Responses', 'レスポンス'],
  tryIt: ['Try it', '試す'],
  send: ['Send', '送信'],
  sending: ['Sending…', '送信中…'],
  name: ['Name', '名前'],
  type: ['Type', '型'],
  meaning: ['Meaning', '説明'],
  required: ['required', '必須'],
  nothing: ['Nothing matches.', '一致するものがありません。'],
  failed: ['The description could not be read: ', 'API 記述を読み込めません: '],
  noAnswer: ['No answer: ', '応答がありません: '],
};
const t = (key) => TEXT[key][ja ? 1 : 0];

/** Makes an element; children are elements or text. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'on') for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** A sentence with what stands between backticks as code. */
const rich = (text) => (text || '').split('`').map((part, index) => (index % 2 ? el('code', {}, part) : part));

function copyButton(pre) {
  const button = el('button', { type: 'button' }, t('copy'));
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(pre.querySelector('code').textContent);
    button.textContent = t('copied');
    setTimeout(() => { button.textContent = t('copy'); }, 1500);
  });
  // Browsers offer the clipboard only to secure origins, of which localhost is one.
  if (navigator.clipboard) pre.append(button);
}

const code = (text) => {
  const pre = el('pre', {}, el('code', {}, text));
  copyButton(pre);
  return pre;
};

// ---- Schemas ---------------------------------------------------------------------------------

let spec = {};

function resolve(schema) {
  for (let hops = 0; schema && schema.$ref && hops < 8; hops += 1) {
    schema = schema.$ref.split('/').slice(1).reduce((node, key) => (node || {})[key], spec);
  }
  return schema || {};
}

function typeName(schema) {
  if (schema.$ref) return schema.$ref.split('/').pop();
  const parts = schema.oneOf || schema.anyOf || schema.allOf;
  if (parts) return parts.map(typeName).join(schema.allOf ? ' & ' : ' | ');
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const types = [].concat(schema.type || 'any');
  return types.map((type) => (type === 'array' ? `${typeName(schema.items || {})}[]` : type)).join(' | ');
}

/** A value that fits the schema, for people to change. */
function sample(schema, depth = 0) {
  if (schema.example !== undefined) return schema.example;
  if (Array.isArray(schema.examples) && schema.examples.length) return schema.examples[0];
  schema = resolve(schema);
  if (schema.example !== undefined) return schema.example;
  if (Array.isArray(schema.examples) && schema.examples.length) return schema.examples[0];
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.const !== undefined) return schema.const;
  if (depth > 5) return null;
  if (schema.allOf) return Object.assign({}, ...schema.allOf.map((part) => sample(part, depth + 1)));
  const choice = (schema.oneOf || schema.anyOf || []).find((part) => part.type !== 'null');
  if (choice) return sample(choice, depth + 1);
  const type = [].concat(schema.type || (schema.properties ? 'object' : 'string')).find((name) => name !== 'null');
  if (type === 'object') {
    const wanted = schema.required || Object.keys(schema.properties || {});
    return Object.fromEntries(wanted.map((name) => [name, sample((schema.properties || {})[name] || {}, depth + 1)]));
  }
  if (type === 'array') return [];
  if (type === 'integer' || type === 'number') return schema.minimum || 1;
  if (type === 'boolean') return false;
  return '';
}

function fieldTable(rows) {
  const head = el('tr', {}, el('th', {}, t('name')), el('th', {}, t('type')), el('th', {}, t('meaning')));
  const body = rows.map(({ name, type, required, about }) => el('tr', {},
    el('td', {}, el('code', {}, name), required ? ` (${t('required')})` : ''),
    el('td', {}, el('code', {}, type)),
    el('td', {}, ...rich(about))));
  return el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, head), el('tbody', {}, ...body)));
}

function schemaView(schema) {
  const full = resolve(schema);
  const rows = Object.entries(full.properties || {}).map(([name, property]) => ({
    name,
    type: typeName(property),
    required: (full.required || []).includes(name),
    about: property.description || resolve(property).description,
  }));
  return rows.length ? fieldTable(rows) : el('p', {}, el('code', {}, typeName(schema)));
}

// ---- Operations ------------------------------------------------------------------------------

/** One key per form: in the header and in the body, where an operation wants both. */
const freshKey = () => `docs-${Array.from(crypto.getRandomValues(new Uint8Array(8)), (n) => n.toString(16).padStart(2, '0')).join('')}`;

function jsonBody(operation) {
  const content = (resolve(operation.requestBody) || {}).content || {};
  const type = Object.keys(content).find((name) => name.includes('json'));
  return type ? { type, schema: content[type].schema || {}, example: content[type].example } : null;
}

function tryForm(method, path, operation, parameters, token) {
  const key = freshKey();
  const inputs = parameters.map((parameter) => {
    const isKey = parameter.name.toLowerCase() === 'idempotency-key';
    const given = parameter.example !== undefined ? parameter.example : sample(parameter.schema || {});
    const value = isKey ? key : (parameter.required ? given : '');
    return { parameter, input: el('input', { value: value === null ? '' : value, required: parameter.required }) };
  });
  const body = jsonBody(operation);
  let editor = null;
  if (body) {
    const start = body.example !== undefined ? structuredClone(body.example) : sample(body.schema);
    if (start && typeof start === 'object' && 'idempotency_key' in start) start.idempotency_key = key;
    editor = el('textarea', { spellcheck: 'false' });
    editor.value = JSON.stringify(start, null, 2);
  }

  const request = () => {
    let url = path;
    const query = new URLSearchParams();
    const headers = {};
    for (const { parameter, input } of inputs) {
      if (parameter.in === 'path') url = url.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (!input.value) continue;
      else if (parameter.in === 'query') query.append(parameter.name, input.value);
      else if (parameter.in === 'header') headers[parameter.name] = input.value;
    }
    if (body) headers['Content-Type'] = body.type;
    if (token.value) headers.Authorization = `Bearer ${token.value}`;
    return { url: query.size ? `${url}?${query}` : url, headers, body: editor ? editor.value : undefined };
  };
  const curl = () => {
    const { url, headers, body: text } = request();
    const quote = (value) => `'${String(value).replaceAll("'", `'\\''`)}'`;
    const lines = [`curl -i -X ${method.toUpperCase()} ${quote(location.origin + url)}`];
    for (const [name, value] of Object.entries(headers)) {
      const shown = name === 'Authorization' ? '"Authorization: Bearer $TASHIKA_TOKEN"' : quote(`${name}: ${value}`);
      lines.push(`-H ${shown}`);
    }
    if (text !== undefined) lines.push(`-d ${quote(text)}`);
    return lines.join(' \\\n  ');
  };

  const answer = el('div', { 'aria-live': 'polite' });
  const button = el('button', { class: 'go', type: 'submit' }, t('send'));
  const send = async (event) => {
    event.preventDefault();
    button.disabled = true;
    button.textContent = t('sending');
    answer.replaceChildren(await exchange(method, request()));
    button.disabled = false;
    button.textContent = t('send');
  };
  const shown = code('');
  const refresh = () => { shown.querySelector('code').textContent = curl(); };
  const form = el('form', { on: { submit: send, input: refresh } },
    ...inputs.map(({ parameter, input }) => el('label', {}, `${parameter.name} (${parameter.in})`, input)),
    editor ? el('label', {}, t('body'), editor) : null,
    button);
  token.addEventListener('input', refresh);
  refresh();
  return el('div', {}, el('h3', {}, t('tryIt')), form, shown, answer);
}

async function exchange(method, { url, headers, body }) {
  const since = performance.now();
  try {
    const response = await fetch(url, { method: method.toUpperCase(), headers, body, credentials: 'omit' });
    const text = await response.text();
    const elapsed = Math.round(performance.now() - since);
    let shown = text;
    try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON: shown as it is */ }
    const lines = Array.from(response.headers, ([name, value]) => `${name}: ${value}`).join('\n');
    return el('div', {},
      el('p', { class: response.ok ? 'ok' : 'bad' }, `${response.status} ${response.statusText} · ${elapsed} ms`),
      code(`${lines}\n\n${shown}`));
  } catch (error) {
    return el('p', { class: 'bad' }, t('noAnswer') + error.message);
  }
}

function operationView(method, path, item, operation, token) {
  const parameters = [...(item.parameters || []), ...(operation.parameters || [])].map(resolve);
  const inside = el('div');
  const view = el('details', { id: `${method}-${path}` },
    el('summary', {}, el('span', { class: `method ${method}` }, method.toUpperCase()), el('code', {}, path),
      el('span', { class: 'quiet' }, ...rich(operation.summary))),
    inside);
  // Filled when it is first opened: a long description costs nothing until somebody looks.
  view.addEventListener('toggle', () => {
    if (!view.open || inside.childElementCount) return;
    const body = jsonBody(operation);
    if (operation.description) inside.append(el('p', {}, ...rich(operation.description)));
    if (parameters.length) {
      inside.append(el('h3', {}, t('parameters')), fieldTable(parameters.map((parameter) => ({
        name: parameter.name,
        type: `${parameter.in}: ${typeName(parameter.schema || {})}`,
        required: parameter.required,
        about: parameter.description,
      }))));
    }
    if (body) inside.append(el('h3', {}, t('body')), schemaView(body.schema));
    inside.append(el('h3', {}, t('responses')), fieldTable(Object.entries(operation.responses || {}).map(([status, given]) => {
      const response = resolve(given);
      const types = Object.entries(response.content || {}).map(([type, { schema }]) => `${type}: ${typeName(schema || {})}`);
      return { name: status, type: types.join(', '), about: response.description };
    })));
    inside.append(tryForm(method, path, operation, parameters, token));
  });
  return view;
}

// ---- The page --------------------------------------------------------------------------------

function browse(main) {
  const token = el('input', { type: 'password', autocomplete: 'off' });
  const filter = el('input', { type: 'search' });
  const list = el('div');
  const groups = new Map();
  for (const [path, item] of Object.entries(spec.paths || {})) {
    for (const method of ['get', 'post', 'put', 'patch', 'delete']) {
      const operation = item[method];
      if (!operation) continue;
      const tag = (operation.tags || [t('other')])[0];
      const words = `${method} ${path} ${operation.summary || ''} ${tag}`.toLowerCase();
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push({ words, view: operationView(method, path, item, operation, token) });
    }
  }
  const schemas = Object.keys((spec.components || {}).schemas || {}).map((name) => ({
    words: name.toLowerCase(),
    view: el('details', {}, el('summary', {}, el('code', {}, name)),
      el('div', {}, schemaView({ $ref: `#/components/schemas/${name}` }))),
  }));
  if (schemas.length) groups.set(t('schemas'), schemas);

  const show = () => {
    const wanted = filter.value.trim().toLowerCase();
    list.replaceChildren();
    for (const [tag, entries] of groups) {
      const views = entries.filter(({ words }) => words.includes(wanted)).map(({ view }) => view);
      if (views.length) list.append(el('h2', {}, tag), ...views);
    }
    if (!list.childElementCount) list.append(el('p', { class: 'quiet' }, t('nothing')));
  };
  filter.addEventListener('input', show);
  const info = spec.info || {};
  main.replaceChildren(
    el('h1', {}, `${info.title || 'API'} `, el('span', { class: 'quiet' }, info.version || '')),
    el('p', {}, ...rich(info.description)),
    el('form', { class: 'tools', on: { submit: (event) => event.preventDefault() } },
      el('label', {}, t('filter'), filter), el('label', {}, t('token'), token)),
    list);
  show();
  const linked = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (linked) linked.open = true;
}

async function start() {
  document.querySelectorAll('[data-text]').forEach((node) => { node.textContent = t(node.dataset.text); });
  document.querySelectorAll('pre[data-copy]').forEach(copyButton);
  const main = document.getElementById('api');
  if (!main) return;
  try {
    const response = await fetch('/openapi.json', { credentials: 'omit' });
    spec = await response.json();
    browse(main);
  } catch (error) {
    main.replaceChildren(el('p', { class: 'bad' }, t('failed') + error.message));
  }
}

start();
