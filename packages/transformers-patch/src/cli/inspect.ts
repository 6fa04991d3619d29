import { type AttentionSummary, convertModel, type LeftAttention } from '@mxattn/ort-op';
import { Command } from 'commander';
import { printJson, printTable } from './output.js';

/** `mxattn inspect MODEL` */
export function inspectCommand(): Command {
  return new Command('inspect')
    .description('Lists every attention of a model, and what is left alone and why.')
    .argument('<model>', 'an ONNX file')
    .option('--cross-attention', 'count cross-attention among what can be replaced')
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  mxattn inspect model.onnx\n  mxattn inspect model.onnx --json | jq .left',
    )
    .action(
      (path: string, { json, crossAttention = false }: { json?: boolean; crossAttention?: boolean }) => {
        const { report } = convertModel(path, { crossAttention });
        if (json) {
          printJson({ model: path, ...report });
          return;
        }
        printReport(report);
      },
    );
}

/** Tables of what is replaced and what is not. */
export function printReport(report: {
  readonly replaced: readonly AttentionSummary[];
  readonly left: readonly LeftAttention[];
}): void {
  const { replaced, left } = report;
  printTable(
    'attention',
    replaced.map((each) => ({
      layer: each.layer,
      heads: each.heads,
      'KV heads': each.kvHeads,
      'head size': each.headSize,
      'value head size': each.valueHeadSize,
      scale: each.scale,
      mask: each.maskKind,
      cache: each.hasCache,
      kind: each.selfAttention ? 'self' : 'cross',
      node: each.nodes.at(-1),
    })),
  );
  printTable(
    'left alone',
    left.map(({ node, reason }) => ({ node, reason })),
  );
  console.log(`${replaced.length} can be replaced, ${left.length} left alone`);
}
