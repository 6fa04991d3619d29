import { writeFileSync } from 'node:fs';
import { MxattnError } from '@mxattn/core';
import { convertModel, type TargetName, writeModel } from '@mxattn/ort-op';
import { Command } from 'commander';
import { printReport } from './inspect.js';
import { printJson } from './output.js';

/** `mxattn convert IN OUT` */
export function convertCommand(): Command {
  return new Command('convert')
    .description('Replaces the attention of a model and writes the model.')
    .argument('<in>', 'an ONNX file')
    .argument('<out>', 'where the converted model goes; keep external data beside it')
    .option(
      '--target <name>',
      "fused: FusedAttention; contrib: ONNX Runtime's own; attention: ONNX Attention-23",
      'fused',
    )
    .option('--cross-attention', 'also replace cross-attention')
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  mxattn convert model.onnx fused.onnx\n  mxattn convert model.onnx web.onnx --target contrib',
    )
    .action(
      (
        source: string,
        out: string,
        options: { target: string; crossAttention?: boolean; json?: boolean },
      ) => {
        const { model, report } = convertModel(source, {
          target: options.target as TargetName,
          crossAttention: options.crossAttention ?? false,
        });
        try {
          writeFileSync(out, writeModel(model));
        } catch (error) {
          throw new MxattnError(`cannot write ${out}: ${(error as Error).message}`);
        }
        if (options.json) printJson({ model: source, written: out, ...report });
        else printReport(report);
      },
    );
}
