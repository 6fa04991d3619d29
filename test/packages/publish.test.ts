import { fileURLToPath } from 'node:url';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { describe, expect, it } from 'vitest';

const PACKAGES = fileURLToPath(new URL('../../packages/', import.meta.url));

describe.each(['core', 'ort-op', 'transformers-patch'])('@mxattn/%s', (name) => {
  it('publishes cleanly', async () => {
    const { messages, pkg } = await publint({ pkgDir: `${PACKAGES}${name}`, pack: 'npm', strict: true });
    expect(messages.map((message) => formatMessage(message, pkg!))).toEqual([]);
  });
});
