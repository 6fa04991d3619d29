import { MxattnError, type Schedule } from '@mxattn/core';
import { convertModel, readModel, type TargetName, withPrecisions, writeModel } from '@mxattn/ort-op';
import { Command } from 'commander';
import { checkExternalFiles, writeFile } from './files.js';
import { printReport } from './inspect.js';
import { planOf } from './options.js';
import { printJson } from './output.js';

interface ConvertCommandOptions {
  readonly target: string;
  readonly crossAttention?: boolean;
  readonly precision?: string;
  readonly schedule?: string;
  readonly json?: boolean;
}

/** `mxattn convert IN OUT` */
export function convertCommand(): Command {
  return new Command('convert')
    .description('Replaces the attention of a model and writes the model.')
    .argument('<in>', 'an ONNX file')
    .argument(
      '<out>',
      'where the converted model goes: into the same folder, if its weights are in files of their own',
    )
    .option(
      '--target <name>',
      "fused: FusedAttention; contrib: ONNX Runtime's own; attention: ONNX Attention-23",
      'fused',
    )
    .option('--cross-attention', 'also replace cross-attention')
    .option('--precision <name>', 'what sessions compute the layers in unless told otherwise (default: f32)')
    .option('--schedule <schedule>', 'the same by layer, as JSON')
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  mxattn convert model.onnx fused.onnx\n  mxattn convert model.onnx web.onnx --target contrib\n' +
        '  mxattn convert model.onnx small.onnx --precision mxfp4',
    )
    .action((source: string, out: string, options: ConvertCommandOptions) => {
      const original = readModel(source);
      checkExternalFiles(original, source, out);
      const { model, report } = convertModel(original, {
        target: options.target as TargetName,
        crossAttention: options.crossAttention ?? false,
      });
      const plan = storedPlan(options);
      if (plan && report.replaced.length === 0) {
        throw new MxattnError(`${source} has no attention to replace, so none to give a precision`);
      }
      writeFile(out, writeModel(plan ? withPrecisions(model, plan) : model));
      if (options.json) printJson({ model: source, written: out, ...report });
      else printReport(report);
    });
}

/** The precisions to store in the model, if any. */
function storedPlan(options: ConvertCommandOptions): Schedule | undefined {
  if (options.precision === undefined && options.schedule === undefined) return undefined;
  if (options.target !== 'fused') {
    throw new MxattnError(`target ${options.target} computes in f32 alone; precisions need --target fused`);
  }
  return planOf(options);
}
