// One attention, as every kernel sees it. Sizes that kernels are not specialised for come as uniforms, so that a pipeline
// serves all lengths.

struct Problem {
  heads: u32,
  kvHeads: u32,
  queryLength: u32,
  keyLength: u32,
  // Keys before and after a query's position that it sees, not counting the position itself.
  windowLeft: u32,
  windowRight: u32,
  // In log2 units; used only where SOFTCAP is set.
  softcap: f32,
  // log2(e) times the scale of the scores.
  fold: f32,
  // Elements from one batch, head, query and key of the bias to the next.
  biasStrides: vec4<u32>,
  // Elements from one batch, head and token of query, key, value and output to the next.
  queryStrides: vec4<u32>,
  keyStrides: vec4<u32>,
  valueStrides: vec4<u32>,
  outputStrides: vec4<u32>,
  // Rows of a head of the packed keys; blocks of tokens of a head of the packed values.
  keyRows: u32,
  valueBlocks: u32,
  // Where the scales of the packed values begin, in 16 bytes.
  valueScales: u32,
  batch: u32,
  // See weightExponent.
  weightCarry: u32,
}

const LOG2E = 1.4426950408889634f;

/** Query rows that share a key/value head, one query head after another. */
fn groupRows(p: Problem) -> u32 {
  return p.heads / p.kvHeads * p.queryLength;
}
