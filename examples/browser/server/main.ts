import { parseArgs } from 'node:util';
import { buildPage, servePage } from './index.js';

const USAGE = `npm run demo:browser -- [options]

  --build        build the page into out/browser instead of serving it
  --port <n>     default: 5173, or the next free one
  --host <name>  default: 127.0.0.1, this machine only; browsers give WebGPU to localhost and https alone
  --help`;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      build: { type: 'boolean', default: false },
      port: { type: 'string', default: '5173' },
      host: { type: 'string', default: '127.0.0.1' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    return;
  }
  if (values.build) {
    console.log(`built: ${await buildPage()}`);
    return;
  }
  const port = Number(values.port);
  if (!Number.isInteger(port) || port < 0 || port > 65535) throw new Error(`--port is ${values.port}`);
  const { urls } = await servePage({ host: values.host, port });
  console.log(`The page is at ${urls.join(' and ')}; Ctrl+C ends it.`);
}

main().catch((error: unknown) => {
  console.error(`${error instanceof Error ? error.message : error}\n\n${USAGE}`);
  process.exit(1);
});
