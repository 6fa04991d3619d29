// A static model of the attention kernels on CDNA4 (gfx950): what the instructions of the inner loop take at least, by the
// rates of LLVM's model of the machine. No GPU is asked; memory and waiting are left out.
//   node tools/hip/model.mjs [--json]
import { assemble, compilerFor } from './compilers.mjs';
import { codeOf } from './kernels.mjs';

const HEAD = 128;
const QUERIES = 32; // of a wave
const KEYS = 64; // of a tile
const CLOCK = 2.4e9;
const MULTIPROCESSORS = 256;
const SIMDS = 4;
/** Bytes that a multiprocessor reads from shared memory in a clock, for its four SIMDs together. */
const SHARED_RATE = 256;

/** Of the problem that papers report: (batch, heads, kvHeads, queries, keys, head size) = (1, 5, 5, 75600, 75600, 128). */
const WORKGROUPS = 5 * Math.ceil(75600 / 256);

/** Tflop/s of AITER's kernels, as published. */
const PUBLISHED = { bf16: 1200, mxfp4: 4000, 'mxfp6-direct': 3450 };
/** How much faster than BF16 the paper has them. */
const PAPER = { mxfp4: 3.2, mxfp6: 2.8 };

/** `kernel`: how the names of its kernels call the recipe. */
const recipes = [
  { id: 3, name: 'mxfp8', kernel: 'mxfp8' },
  { id: 1, name: 'mxfp6', kernel: 'mxfp6' },
  { id: 10, name: 'mxfp6-direct', kernel: 'mxfp6_direct' },
  { id: 2, name: 'mxfp4', kernel: 'mxfp4' },
];

/** Basic blocks in order, with where each may go next. */
function blocksOf(code) {
  const blocks = [];
  let current = { label: 'entry', instructions: [], next: [], open: true };
  const begin = (label) => {
    if (current.open) current.next.push(label);
    blocks.push(current);
    current = { label, instructions: [], next: [], open: true };
  };
  for (const line of code.split('\n')) {
    const label = /^(\.LBB\w+):/.exec(line)?.[1];
    const [instruction, operand] = line.trim().split(/[\s,]+/);
    if (label) begin(label);
    else if (/^\s+[sdv]_|^\s+(ds|global|flat|scratch)_/.test(line)) {
      if (!current.open) begin(`after ${blocks.length}`);
      current.instructions.push(line.trim());
      if (instruction.startsWith('s_cbranch')) {
        current.next.push(operand);
        begin(`after ${blocks.length}`);
      } else if (instruction === 's_branch' || instruction === 's_endpgm') {
        if (instruction === 's_branch') current.next.push(operand);
        current.open = false;
      }
    }
  }
  blocks.push(current);
  return new Map(blocks.map((block) => [block.label, block]));
}

const count = (instructions, pattern) => instructions.filter((each) => pattern.test(each)).length;

/**
 * The instructions of one turn of the loop as a tile usually takes it: the shortest way around that has both products, loads
 * the next tile and stores it. Ways with more redo the tile. Ways to a block are told apart only by what they have of that.
 */
function usualTurn(blocks, products) {
  const start = [...blocks.values()].findLast(({ instructions }) => count(instructions, /^s_barrier/) > 0);
  const head = start.next.find((label) => reaches(blocks, label, start.label));
  const merits = (instructions) =>
    [/^v_mfma/, /^(global|flat)_load/, /^ds_write/].map((pattern, i) =>
      i === 0 ? count(instructions, pattern) : Math.min(1, count(instructions, pattern)),
    );
  const shortest = new Map();
  const queue = [{ label: head, instructions: [] }];
  while (queue.length > 0) {
    queue.sort((a, b) => b.instructions.length - a.instructions.length);
    const { label, instructions } = queue.pop();
    const now = [...instructions, ...blocks.get(label).instructions];
    const found = merits(now);
    const key = `${label} ${found}`;
    if (found[0] > products || shortest.has(key)) continue;
    shortest.set(key, now.length);
    if (label === start.label) {
      if (`${found}` === `${[products, 1, 1]}`) return now;
      continue;
    }
    for (const next of blocks.get(label).next) {
      if (blocks.has(next)) queue.push({ label: next, instructions: now });
    }
  }
  return null;
}

function reaches(blocks, from, to) {
  const seen = new Set();
  const waiting = [from];
  while (waiting.length > 0) {
    const label = waiting.pop();
    if (label === to) return true;
    if (seen.has(label) || !blocks.has(label)) continue;
    seen.add(label);
    waiting.push(...blocks.get(label).next);
  }
  return false;
}

/** Clocks of a product of 32 x 32 x 64: twice as many if an operand has 8 bits, the formats numbered 0 and 1. */
function productClocks(instruction) {
  const format = (field) => Number(new RegExp(`${field}:(\\d)`).exec(instruction)?.[1] ?? 0);
  return format('cbsz') < 2 || format('blgp') < 2 ? 64 : 32;
}

/** Clocks of a SIMD for one wave's tile. */
function clocksOf(instructions) {
  const matrix = instructions
    .filter((each) => each.startsWith('v_mfma'))
    .reduce((sum, each) => sum + productClocks(each), 0);
  const vector = instructions.filter((each) => each.startsWith('v_') && !each.startsWith('v_mfma'));
  // A conversion of 32 elements takes as long as 4 others; an exponential, too.
  const long = count(vector, /^v_cvt_scalef32_pk32|^v_exp/);
  const reads = { b128: 16, b96: 12, b64: 8, b32: 4, u8: 4 };
  const bytes = Object.entries(reads).reduce(
    (sum, [suffix, each]) =>
      sum + 64 * each * count(instructions, new RegExp(`^ds_(read|write)\\w*_${suffix}`)),
    0,
  );
  return {
    matrix,
    vector: (vector.length + 3 * long) * 4,
    // Shared with the other SIMDs of the multiprocessor.
    shared: (bytes / SHARED_RATE) * SIMDS,
    scalar: instructions.filter((each) => each.startsWith('s_')).length,
    bytes,
  };
}

/** Tflop/s if a wave's tile takes so many clocks of its SIMD. */
function speed(clocks) {
  const perTile = 4 * QUERIES * KEYS * HEAD;
  const rounds = WORKGROUPS / MULTIPROCESSORS;
  const busy = rounds / Math.ceil(rounds);
  return ((perTile * SIMDS * MULTIPROCESSORS * CLOCK) / clocks / 1e12) * busy;
}

async function model() {
  const rows = [];
  for (const { id, name, kernel } of recipes) {
    const defines = [`MXATTN_RECIPE=${id}`, 'MXATTN_HEAD_BLOCKS=4', 'MXATTN_VALUE_BLOCKS=4'];
    const { assembly } = await assemble('gfx950', defines);
    // Scores: two halves of the keys, two steps along the head; outputs: four groups of channels, and the sum.
    const code = codeOf(assembly, `attend_matrix_${kernel}_4x4`);
    const instructions = usualTurn(blocksOf(code), 2 * 2 + 4 + 1);
    if (!instructions) throw new Error(`the inner loop of ${name} is not where it is looked for`);
    const clocks = clocksOf(instructions);
    rows.push({
      name,
      instructions: instructions.length,
      ...clocks,
      overlapped: speed(Math.max(clocks.matrix, clocks.vector, clocks.shared)),
      serial: speed(clocks.matrix + clocks.vector),
      published: PUBLISHED[name] ?? null,
    });
  }
  return rows;
}

/** A markdown table, padded so that it is one on a terminal, too. */
function print(head, rows) {
  const widths = head.map((_, i) => Math.max(...[head, ...rows].map((row) => String(row[i]).length)));
  const line = (cells) => console.log(`| ${cells.map((c, i) => String(c).padEnd(widths[i])).join(' | ')} |`);
  line(head);
  line(widths.map((width) => '-'.repeat(width)));
  rows.forEach(line);
}

const range = ({ serial, overlapped }, digits, unit = 1) =>
  `${(serial / unit).toFixed(digits)} to ${(overlapped / unit).toFixed(digits)}`;

if (!compilerFor('gfx950')) {
  console.error(
    'hip-model: no clang here that knows gfx950: install Zig (pip install ziglang), or clang 20 or later',
  );
  process.exitCode = 2;
} else {
  const rows = await model();
  if (process.argv.includes('--json')) {
    console.log(JSON.stringify({ rows, bf16: PUBLISHED.bf16 }));
  } else {
    console.log(
      'Clocks of a SIMD for 32 queries x 64 keys of 128, and Tflop/s at (1, 5, 5, 75600, 75600, 128) from them,',
    );
    console.log('from one after the other to all at once; no GPU is asked.');
    print(
      ['recipe', 'matrix', 'vector', 'shared memory', 'Tflop/s', 'published by AITER'],
      rows.map((r) => [r.name, r.matrix, r.vector, r.shared.toFixed(0), range(r, 0), r.published ?? '']),
    );
    print(
      ['over BF16', `model, over AITER's ${PUBLISHED.bf16}`, 'paper'],
      Object.entries(PAPER).map(([name, ratio]) => [
        name,
        range(
          rows.find((r) => r.name === name),
          1,
          PUBLISHED.bf16,
        ),
        ratio,
      ]),
    );
  }
}
