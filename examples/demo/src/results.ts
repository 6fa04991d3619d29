export interface LlmResult {
  readonly text: string;
  readonly msPerToken: number;
  readonly perplexity: number;
}

export interface DiffusionResult {
  /** Median over all steps of all pictures. */
  readonly msPerStep: number;
  /** Mean over the pictures, in dB against stock; null for stock itself. */
  readonly psnr: number | null;
}

/** The contents of demo.json; `llm` and `diffusion` by variant. */
export interface DemoResults {
  readonly llm: Record<string, LlmResult>;
  readonly diffusion: Record<string, DiffusionResult>;
  /** Attentions that mxattn replaced. */
  readonly replaced: { readonly llm: number; readonly diffusion: number };
  /** Tokens behind the perplexities. */
  readonly perplexityTokens: number;
  readonly machine: { readonly cpu: string; readonly threads: number; readonly isa: string };
}

/** PNG files by picture and variant. */
export type Pictures = ReadonlyMap<string, ReadonlyMap<string, Uint8Array>>;
