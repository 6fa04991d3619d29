import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findChromium, openPage, type Page } from '@mxattn/browser';
import { buildPage, serveBuiltPage, servePage } from '@mxattn/example-browser';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const executable = findChromium();
if (!executable) console.warn('skipped: no Chromium found; MXATTN_CHROMIUM can name one');

describe.skipIf(!executable)('the browser page', () => {
  let server: Awaited<ReturnType<typeof servePage>>;

  beforeAll(async () => {
    server = await servePage();
  });

  afterAll(() => server.close());

  const open = (query: string, use: (page: Page) => Promise<void>) =>
    openPage(executable!, `${server.urls[0]}${query}`, async (page) => {
      await page.locator('#run:enabled').waitFor();
      await use(page);
    });

  it('has a schedule that is edited by click, key and text', async () => {
    await open('?model=image&steps=6', async (page) => {
      const text = page.getByLabel('As text');
      const cells = page.getByRole('toolbar', { name: 'Schedule' }).getByRole('button');
      const shown = () => text.inputValue();
      expect(await shown()).toBe('1:mxfp6/4:mxfp4/1:mxfp6');

      await page.getByRole('button', { name: 'step 3 of 6: mxfp4' }).click();
      expect(await shown()).toBe('1:mxfp6/1:mxfp4/1:f32/2:mxfp4/1:mxfp6');
      expect(await page.locator('select[name=preset]').inputValue()).toBe('custom');

      await page.keyboard.press('ArrowRight');
      await page.keyboard.press('Enter');
      expect(await shown()).toBe('1:mxfp6/1:mxfp4/2:f32/1:mxfp4/1:mxfp6');
      await page.keyboard.press('End');
      await page.keyboard.press('Space');
      expect(await shown()).toBe('1:mxfp6/1:mxfp4/2:f32/2:mxfp4');
      expect(await page.locator('#strip [tabindex="0"]').count()).toBe(1);

      await text.fill('2:mxfp8/4:mxfp6');
      await text.press('Tab');
      expect(await cells.nth(1).getAttribute('aria-label')).toBe('step 2 of 6: mxfp8');
      await text.fill('7:mxfp6');
      await text.press('Tab');
      expect(await page.getByRole('alert').textContent()).toContain('has 7 steps, but there are 6');

      await page.getByLabel('Steps', { exact: true }).first().fill('12');
      await page.keyboard.press('Tab');
      expect(await shown()).toBe('4:mxfp8/8:mxfp6');
      await page.getByLabel('Text: story-llama').check();
      expect(await cells.count()).toBe(8);
    });
    await open('?model=image&steps=4&schedule=1:f32/3:mxfp4', async (page) => {
      expect(await page.getByRole('button', { name: 'step 1 of 4: f32' }).count()).toBe(1);
    });
  });

  it('writes a story in place', async () => {
    const tokens = process.env.MXATTN_SCREENSHOTS ? 8 : 3;
    await open(`?tokens=${tokens}&mxfp4=0`, async (page) => {
      await page.locator('#run').focus();
      await page.keyboard.press('Enter');
      await finish(page);
      expect(await reports(page)).toEqual([
        ['stock', 'stock', '0'],
        ['schedule', 'inplace', '8'],
      ]);
      const stories = await page.locator('.story').allTextContents();
      for (const story of stories) expect(story).toMatch(/^Once upon a time there was a little \w+/);
      expect(await page.locator('article').last().textContent()).toMatch(/Speed-up[\d.]+×/);
      expect(await page.locator('#working').evaluate((bar: { value: number }) => bar.value)).toBe(tokens);
      await screenshot(page, 'browser-text');
    });
  }, 300_000);

  it('names a word that the picture model does not know', async () => {
    await open('?model=image&word1=purpel', async (page) => {
      await page.locator('#run').click();
      await page.getByRole('alert').filter({ hasText: 'does not know the word "purpel"' }).waitFor();
    });
  });

  it('paints the difference of two pictures, amplified', async () => {
    await open('', async (page) => {
      const pixels = await page.evaluate(`(async () => {
        const { paintDifference, pictureCanvas } = await import('/src/canvas.ts');
        const canvas = pictureCanvas('');
        const changed = new Float32Array(3 * 64 * 64);
        changed[1] = 0.1;
        paintDifference(canvas, new Float32Array(3 * 64 * 64), changed, 8);
        return [...canvas.getContext('2d').getImageData(0, 0, 2, 1).data];
      })()`);
      // 0.1 of 2 is 12 or 13 of 255.
      expect(pixels).toEqual([0, 0, 0, 255, expect.closeTo(8 * 12.5, -1), 0, 0, 255]);
    });
  });

  it('fits a phone', async () => {
    await open('?model=image', async (page) => {
      await page.setViewportSize({ width: 320, height: 640 });
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(320);
    });
  });

  // On a processor it takes minutes: MXATTN_LONG_TESTS=1 runs it.
  it.skipIf(!process.env.MXATTN_LONG_TESTS)(
    'draws pictures in place, and their differences',
    async () => {
      const steps = process.env.MXATTN_PAGE_STEPS ?? '1';
      await open(`?model=image&steps=${steps}`, async (page) => {
        await page.locator('#run').click();
        await finish(page);
        expect(await reports(page)).toEqual([
          ['stock', 'stock', '0'],
          ['schedule', 'inplace', '8'],
          ['mxfp4', 'inplace', '8'],
        ]);
        const colors = await colorCounts(page);
        expect(colors).toHaveLength(5);
        for (const count of colors) expect(count).toBeGreaterThan(20);
      });
    },
    3_600_000,
  );

  it('is built, and works without WebGPU and says so', async () => {
    await buildPage();
    const built = await serveBuiltPage();
    try {
      await openPage(executable!, `${built.url}?device=wasm&tokens=6&mxfp4=0`, async (page) => {
        await page.locator('#run:enabled').click();
        await finish(page);
        expect(await page.locator('#environment').textContent()).toContain("mxattn's WebAssembly kernel");
        expect(await reports(page)).toEqual([
          ['stock', 'stock', '0'],
          ['schedule', 'split', '8'],
        ]);
        for (const story of await page.locator('.story').allTextContents()) {
          expect(story).toMatch(/^Once upon a time there was a little \w+/);
        }
      });
      const steps = process.env.MXATTN_SCREENSHOTS ? 20 : 2;
      await openPage(executable!, `${built.url}?device=wasm&model=image&steps=${steps}`, async (page) => {
        await page.locator('#run:enabled').click();
        await finish(page);
        expect(await reports(page)).toEqual([
          ['stock', 'stock', '0'],
          ['schedule', 'split', '8'],
          ['mxfp4', 'split', '8'],
        ]);
        const colors = await colorCounts(page);
        expect(colors).toHaveLength(5);
        for (const count of colors) expect(count).toBeGreaterThan(20);
        await screenshot(page, 'browser-pictures');
      });
    } finally {
      await built.close();
    }
  }, 300_000);
});

async function finish(page: Page): Promise<void> {
  await page
    .locator('#status')
    .filter({ hasText: /Done|Failed/ })
    .waitFor({ timeout: 3_600_000 });
  expect(await page.locator('#error').textContent()).toBe('');
}

/** Variant, backend and number of replaced attentions of every card. */
function reports(page: Page): Promise<(string | undefined)[][]> {
  return page
    .locator('article')
    .evaluateAll((cards: { dataset: Record<string, string | undefined> }[]) =>
      cards.map(({ dataset: { variant, backend, replaced } }) => [variant, backend, replaced]),
    );
}

/** Different colours in every canvas. */
function colorCounts(page: Page): Promise<number[]> {
  return page.evaluate(`[...document.querySelectorAll('canvas')].map((canvas) => {
    const { width, height } = canvas;
    const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
    return new Set(new Uint32Array(data.buffer)).size;
  })`);
}

/** A picture for the documentation, if MXATTN_SCREENSHOTS asks for it. */
async function screenshot(page: Page, name: string): Promise<void> {
  if (!process.env.MXATTN_SCREENSHOTS) return;
  const folder = fileURLToPath(new URL('../../docs/images', import.meta.url));
  mkdirSync(folder, { recursive: true });
  await page.setViewportSize({ width: 900, height: 900 });
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
}
