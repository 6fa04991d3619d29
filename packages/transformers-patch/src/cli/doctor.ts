import { createRequire } from 'node:module';
import { cpus } from 'node:os';
import { addonStatus, customOpLibrary, findRuntime, gpuCompiler, listGpus } from '@mxattn/ort-op';
import { inplaceStatus, type WebSessionOptions } from '@mxattn/ort-op/web';
import { describeGpu, openGpu, webRuntime } from '@mxattn/ort-op/webgpu-node';
import { Command } from 'commander';
import { printJson, printTable } from './output.js';

/** One thing that mxattn needs or can use. */
interface Finding {
  readonly what: string;
  readonly works: boolean;
  readonly found: string;
  /** What to do about it where it does not work. */
  readonly remedy: string;
}

/** `mxattn doctor` */
export function doctorCommand(): Command {
  return new Command('doctor')
    .description('Shows what of mxattn works on this machine, and what to do about the rest.')
    .option('--json', 'print JSON')
    .addHelpText('after', '\nExamples:\n  mxattn doctor\n  mxattn doctor --json')
    .action(async ({ json }: { json?: boolean }) => {
      const findings = [
        node(),
        runtime(),
        addon(),
        nativeGpu(),
        await webGpu(),
        await inPlace(),
        transformers(),
      ];
      if (json) printJson(findings);
      else
        printTable(
          `mxattn on ${cpus()[0]?.model}, ${cpus().length} threads`,
          findings.map((each) => ({ ...each })),
        );
    });
}

function node(): Finding {
  const [major, minor] = process.versions.node.split('.').map(Number) as [number, number];
  const works = major > 20 || (major === 20 && minor >= 17);
  return {
    what: 'Node.js',
    works,
    found: `${process.versions.node}, ${process.platform}-${process.arch}`,
    remedy: works ? '' : 'install Node.js 20.17 or newer',
  };
}

function runtime(): Finding {
  try {
    const { libraryPath, ort } = findRuntime();
    const version = ort.env.versions.node ?? ort.env.versions.common;
    return { what: 'onnxruntime-node', works: true, found: `${version}, ${libraryPath}`, remedy: '' };
  } catch (error) {
    return {
      what: 'onnxruntime-node',
      works: false,
      found: (error as Error).message,
      remedy: 'npm install onnxruntime-node',
    };
  }
}

function addon(): Finding {
  const { error, isaLevels = [] } = addonStatus();
  return {
    what: 'CPU kernel',
    works: error === undefined,
    found:
      error?.split('. ')[0] ??
      `builds for ${isaLevels.join(', ')}; ${isaLevels[0]} is used; for other programs: ${customOpLibrary()}`,
    remedy:
      error === undefined ? '' : 'npx node-gyp rebuild in the folder of @mxattn/ort-op, with a C++ compiler',
  };
}

/** The GPU of device 'gpu' in Node.js. */
function nativeGpu(): Finding {
  const what = 'GPU kernels (HIP, CUDA)';
  if (addonStatus().error !== undefined) {
    return { what, works: false, found: 'not looked for, without the addon', remedy: 'build the addon' };
  }
  const { gpus, why } = listGpus();
  if (gpus.length === 0) {
    const remedy = "install the driver of the GPU; without one sessions run on the CPU kernel (device 'cpu')";
    return { what, works: false, found: why, remedy };
  }
  const found = gpus.map(
    ({ name, architecture, driver, memory, multiprocessors }, index) =>
      `GPU ${index}: ${name}, ${architecture}, ${driver}, ${multiprocessors} multiprocessors, ` +
      `${(memory / 2 ** 30).toFixed(0)} GiB`,
  );
  const { compiler, error } = gpuCompiler();
  if (error !== undefined) {
    const [problem, ...remedy] = error.split('; ');
    return { what, works: false, found: `${found.join('; ')}; ${problem}`, remedy: remedy.join('; ') };
  }
  return { what, works: true, found: `${found.join('; ')}; compiled by ${compiler}`, remedy: '' };
}

async function webGpu(): Promise<Finding> {
  const description = await describeGpu();
  if (typeof description === 'string') {
    const remedy = description.includes('npm install')
      ? 'npm install webgpu, to use a GPU from Node.js'
      : 'install the driver of the GPU with its Vulkan loader (libvulkan1); without a GPU the CPU kernel is used';
    return { what: 'WebGPU', works: false, found: description, remedy };
  }
  const { name, features, matrixProducts, kernels } = description;
  const matrices = matrixProducts.length > 0 ? matrixProducts.join(', ') : 'none';
  const used = Object.entries(kernels).map(([precision, kernel]) => `${precision}: ${kernel}`);
  return {
    what: 'WebGPU',
    works: true,
    found: `${name}; ${used.join('; ')}; matrix units: ${matrices}; features: ${features.join(', ')}`,
    remedy: '',
  };
}

/** Whether the kernels can take over what onnxruntime-web dispatches, tried in Node.js. */
async function inPlace(): Promise<Finding> {
  const what = 'In place in onnxruntime-web';
  const description = await describeGpu();
  if (typeof description === 'string' || description.software) {
    const found = 'not tried, without a GPU behind WebGPU';
    return { what, works: false, found, remedy: 'in a browser the report of a session tells' };
  }
  try {
    const ort = (await webRuntime()) as unknown as WebSessionOptions['ort'];
    const { adapter, device } = await openGpu();
    const obstacle = await inplaceStatus(ort, { device, adapterInfo: adapter.info });
    const version = `onnxruntime-web ${ort.env.versions.web ?? ort.env.versions.common}`;
    const remedy = "ONNX Runtime's own kernel runs; versions 1.30 and 1.31-dev are known";
    return {
      what,
      works: obstacle === undefined,
      found: obstacle ? `${version}: ${obstacle}` : version,
      remedy: obstacle ? remedy : '',
    };
  } catch (error) {
    const found = (error as Error).message;
    return { what, works: false, found, remedy: 'npm install onnxruntime-web, to use it in Node.js' };
  } finally {
    // With it the process would not end.
    Reflect.deleteProperty(globalThis, 'navigator');
  }
}

function transformers(): Finding {
  const require = createRequire(import.meta.url);
  try {
    const path = require.resolve('@huggingface/transformers');
    const { version } = require(path.replace(/dist\/[^/]*$/, 'package.json')) as { version: string };
    return { what: '@huggingface/transformers', works: true, found: version, remedy: '' };
  } catch {
    return {
      what: '@huggingface/transformers',
      works: false,
      found: 'not installed',
      remedy: 'npm install @huggingface/transformers, if patch() is to be used',
    };
  }
}
