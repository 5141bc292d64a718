// Words, numbers and times in the reader's language.

import en from './words/en.js';
import ja from './words/ja.js';

const WORDS = { en, ja };
const KEPT = 'tashika.language';

let current = (() => {
  try {
    const kept = localStorage.getItem(KEPT);
    if (kept in WORDS) return kept;
  } catch {
    // Without storage the browser's language is used.
  }
  return navigator.languages.find((tag) => /^(ja|en)\b/i.test(tag))?.slice(0, 2).toLowerCase() ?? 'en';
})();
document.documentElement.lang = current;

export const language = () => current;

export function setLanguage(tag) {
  current = tag in WORDS ? tag : 'en';
  document.documentElement.lang = current;
  try {
    localStorage.setItem(KEPT, current);
  } catch {
    // It holds until the page is left.
  }
}

/** A text, with what belongs between its braces. */
export function t(key, values = {}) {
  const text = WORDS[current][key] ?? WORDS.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** What a value of an enumeration is called; the value itself where nobody has named it. */
export function named(group, value) {
  if (value === undefined || value === null || value === '') return '—';
  return WORDS[current][`${group}.${value}`] ?? WORDS.en[`${group}.${value}`] ?? String(value);
}

const locale = () => (current === 'ja' ? 'ja-JP' : 'en-GB');

export const number = (value) => new Intl.NumberFormat(locale()).format(value);

/** An amount in the currency's smallest unit. */
export function money(amount, currency) {
  if (amount === undefined || amount === null) return '—';
  try {
    const format = new Intl.NumberFormat(locale(), { style: 'currency', currency, currencyDisplay: 'code' });
    const digits = format.resolvedOptions().maximumFractionDigits;
    return format.format(amount / 10 ** digits);
  } catch {
    return `${number(amount)} ${currency ?? ''}`;
  }
}

const moment = (value) => (typeof value === 'number' ? new Date(value) : new Date(String(value)));

export function date(value, options) {
  const at = moment(value);
  if (Number.isNaN(at.getTime())) return String(value);
  return new Intl.DateTimeFormat(locale(), options).format(at);
}

export const dateTime = (value) =>
  date(value, { year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });

/** For lines that follow each other within a second. */
export const exactTime = (value) =>
  date(value, { year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3, hour12: false });

export const clock = (value) => date(value, { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });

export const hourMinute = (value) => date(value, { hour: '2-digit', minute: '2-digit', hour12: false });

/** How long ago, or how long until, in one unit. */
export function relative(value) {
  const seconds = (moment(value).getTime() - Date.now()) / 1000;
  if (Number.isNaN(seconds)) return '';
  const format = new Intl.RelativeTimeFormat(locale(), { numeric: 'auto', style: 'short' });
  const size = Math.abs(seconds);
  if (size < 60) return format.format(Math.round(seconds), 'second');
  if (size < 3600) return format.format(Math.round(seconds / 60), 'minute');
  if (size < 86400) return format.format(Math.round(seconds / 3600), 'hour');
  return format.format(Math.round(seconds / 86400), 'day');
}

/** A duration in milliseconds, with as much precision as one can use. */
export function duration(ms) {
  if (ms === undefined || ms === null || Number.isNaN(ms)) return '—';
  const size = Math.abs(ms);
  const round = (value, unit) => `${new Intl.NumberFormat(locale(), { maximumFractionDigits: value < 10 ? 1 : 0 }).format(value)} ${unit}`;
  if (size < 1000) return round(ms, 'ms');
  if (size < 60_000) return round(ms / 1000, t('unit.s'));
  if (size < 3_600_000) return round(ms / 60_000, t('unit.min'));
  if (size < 86_400_000) return round(ms / 3_600_000, t('unit.h'));
  return round(ms / 86_400_000, t('unit.d'));
}
