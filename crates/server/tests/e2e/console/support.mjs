// What every story about the console stands on: a browser that forgives nothing.
//
// A page may ask this origin only, and must not write to its own console; whatever else it does wrong
// ends the story. Screenshots go to CONSOLE_SCREENSHOTS.

import { createRequire } from 'node:module';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const packages = process.env.CONSOLE_PACKAGES;
const require = createRequire(join(packages, 'package.json'));
const puppeteer = require('puppeteer-core');
const axe = readFileSync(join(packages, 'node_modules/axe-core/axe.min.js'), 'utf8');

export const base = process.env.TASHIKA_URL;
const shots = process.env.CONSOLE_SCREENSHOTS;

export function check(truth, what) {
  if (!truth) throw new Error(`not so: ${what}`);
}

export function same(found, wanted, what) {
  check(JSON.stringify(found) === JSON.stringify(wanted), `${what}: ${JSON.stringify(found)}, expected ${JSON.stringify(wanted)}`);
}

export async function browser(work) {
  const chromium = await puppeteer.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    headless: true,
    // The tests run as root in containers, where Chromium's own sandbox does not start.
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking', '--disable-component-update', '--no-first-run'],
  });
  try {
    await work(chromium);
  } finally {
    await chromium.close();
  }
}

/** A page of its own context: cookies and storage of nobody else. */
export async function open(chromium, { width = 1360, height = 900, language = 'en', theme = 'light', phone = false } = {}) {
  const context = await chromium.createBrowserContext();
  const page = await context.newPage();
  const wrong = [];
  page.on('console', (message) => {
    // The browser itself reports answers that are errors; the stories look at those themselves.
    if (!message.text().startsWith('Failed to load resource')) wrong.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => wrong.push(`page error: ${error.message}`));
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(`${base}/`) && !url.startsWith('data:image/svg+xml')) wrong.push(`request elsewhere: ${url}`);
  });
  page.on('response', (response) => {
    if (response.status() >= 500) wrong.push(`${response.status()} ${response.url()}`);
  });
  await page.setViewport({ width, height, isMobile: phone, hasTouch: phone, deviceScaleFactor: 1 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: theme }]);
  await page.evaluateOnNewDocument((tag) => {
    if (!localStorage.getItem('tashika.language')) localStorage.setItem('tashika.language', tag);
  }, language);
  return { page, wrong, context };
}

/** The page has drawn what it has asked for. */
export async function settled(page) {
  await page.waitForFunction(() => document.querySelector('h1') && !document.querySelector('.loading'));
}

export async function go(page, path) {
  await page.goto(base + path, { waitUntil: 'domcontentloaded' });
  await settled(page);
}

export const text = (page, selector) => page.$eval(selector, (node) => node.textContent);

export async function until(page, what, condition, ...args) {
  await page.waitForFunction(condition, {}, ...args).catch((error) => {
    throw new Error(`waiting for ${what}: ${error.message}`);
  });
}

/** The button, or the link, that is called so. */
export async function press(page, label, inside = 'body') {
  await until(page, `a button called ${label}`, (name, place) => [...(document.querySelector(place)?.querySelectorAll('button, a') ?? [])].some((node) => node.textContent.trim() === name && !node.disabled), label, inside);
  const handle = await page.evaluateHandle((name, place) => [...document.querySelector(place).querySelectorAll('button, a')].find((node) => node.textContent.trim() === name && !node.disabled), label, inside);
  await handle.click();
}

export async function screenshot(page, name) {
  mkdirSync(shots, { recursive: true });
  // What was put there a moment ago is laid out first: the picture is as long as the page is now.
  await page.evaluate(() => new Promise((resolve) => { requestAnimationFrame(() => requestAnimationFrame(resolve)); }));
  await page.screenshot({ path: join(shots, `${name}.png`), fullPage: true });
}

/** What axe-core finds that is serious. */
export async function barriers(page) {
  // The policy of the page allows no script from elsewhere; the debugger's own world is not asked.
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
  return violations
    .filter((one) => ['serious', 'critical'].includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => `${node.target} ${node.any[0]?.message ?? ''}`).join(' | ')}`);
}

export async function api(path, { method = 'GET', body, headers = {} } = {}) {
  const token = process.env.TASHIKA_TOKEN;
  const response = await fetch(base + path, {
    method,
    headers: { ...(token && { Authorization: `Bearer ${token}` }), ...(body !== undefined && { 'Content-Type': 'application/json' }), ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const found = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${found}`);
  return found ? JSON.parse(found) : null;
}

/** Asks until something is there. */
export async function there(path, fits) {
  for (;;) {
    const found = fits(await api(path));
    if (found) return found;
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
}

/** Logs in through the form. */
export async function logIn(page, name, password) {
  await page.waitForSelector('#login-name');
  await page.type('#login-name', name);
  await page.type('#login-password', password);
  await press(page, 'Log in', 'form.login');
  await page.waitForSelector('#main');
}
