import { type Page, type Site, withPage } from '@mxattn/browser';
import { afterAll, beforeAll } from 'vitest';

/**
 * Keeps a page open for the tests of a suite.
 *
 * @param site Called when the suite begins.
 * @param prepare Called once, with the page open.
 * @returns The page, while tests run.
 */
export function suitePage(
  executable: string,
  site: () => Site,
  prepare: (page: Page) => Promise<void>,
): () => Page {
  let page: Page;
  let done: () => void;
  let closed: Promise<void>;

  beforeAll(async () => {
    const opened = new Promise<Page>((resolve, reject) => {
      closed = withPage(executable, site(), async (newPage) => {
        resolve(newPage);
        await new Promise<void>((finish) => {
          done = finish;
        });
      });
      closed.catch(reject);
    });
    page = await opened;
    await prepare(page);
  });

  afterAll(async () => {
    done();
    await closed;
  });

  return () => page;
}
