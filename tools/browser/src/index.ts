import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { chromium, type Page } from 'playwright-core';
import { type Site, serve } from './serve.js';

export type { Page } from 'playwright-core';
export { useLavapipe } from './lavapipe.js';
export type { Site } from './serve.js';
export { useSoftwareVulkan } from './software-vulkan.js';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'chrome', 'chrome.exe'];

// No sandbox: containers that run as root have none. Nothing of the network is needed.
const FLAGS = [
  '--no-sandbox',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // WebGPU without a GPU: on the processor.
  '--enable-unsafe-webgpu',
  '--use-webgpu-adapter=swiftshader',
];

/** A Chromium on this machine: the one that MXATTN_CHROMIUM names or the first in PATH. */
export function findChromium(): string | undefined {
  const named = process.env.MXATTN_CHROMIUM;
  if (named) return named;
  const directories = (process.env.PATH ?? '').split(delimiter);
  return NAMES.flatMap((name) => directories.map((directory) => join(directory, name))).find(existsSync);
}

/** Opens a page of this site in Chromium, its modules loaded, for as long as `use` runs. */
export async function withPage<T>(
  executablePath: string,
  site: Site,
  use: (page: Page) => Promise<T>,
): Promise<T> {
  const server = await serve(site);
  try {
    return await openPage(executablePath, server.url, async (page) => {
      await page.waitForFunction('globalThis.ready');
      return use(page);
    });
  } finally {
    server.close();
  }
}

/** Opens an address in Chromium for as long as `use` runs. */
export async function openPage<T>(
  executablePath: string,
  url: string,
  use: (page: Page) => Promise<T>,
): Promise<T> {
  const browser = await chromium.launch({ executablePath, args: FLAGS });
  try {
    const page = await browser.newPage();
    await page.goto(url);
    return await use(page);
  } finally {
    await browser.close();
  }
}
