/** One comparison with a peer, both measured in the same run. */
export interface Row {
  readonly name: string;
  /** B,H,Hkv,Sq,Skv,D */
  readonly shape: string;
  /** Median time in milliseconds, or a size. */
  readonly ours: number;
  /** Median time of quantising the operands, which `ours` leaves out. */
  readonly quantise?: number;
  readonly peer: number;
  /** Default: ms. */
  readonly unit?: 'ms' | 'MiB';
  readonly peerName: string;
  /** peer / ours. */
  readonly ratio: number;
  /** Of the arithmetic that the work needs, against the machine's measured peak for that arithmetic. */
  readonly percentOfPeak?: number;
}

/** What a benchmark writes to out/bench. */
export interface BenchmarkResult {
  readonly machine: Readonly<Record<string, string | number>>;
  readonly rows: readonly Row[];
}

export type Benchmark = () => Promise<BenchmarkResult>;
