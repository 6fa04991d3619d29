import type { MxattnSessionOptions } from '@mxattn/ort-op';

/** A precision and the format of the cache that it reads. */
export type Attention = Required<Pick<MxattnSessionOptions, 'precision' | 'kvCacheFormat'>>;

/** What decoding is measured with. */
export const attentions: readonly Attention[] = [
  { precision: 'mxfp4', kvCacheFormat: 'mxfp4' },
  { precision: 'mxfp6', kvCacheFormat: 'mxfp4' },
  { precision: 'mxfp6', kvCacheFormat: 'mxfp6' },
  { precision: 'mxfp8', kvCacheFormat: 'mxfp8' },
  { precision: 'f32', kvCacheFormat: 'f16' },
  { precision: 'f32', kvCacheFormat: 'f32' },
];

/** As rows name it. */
export function attentionName({ precision, kvCacheFormat }: Attention): string {
  return precision === kvCacheFormat ? precision : `${precision} on a cache of ${kvCacheFormat}`;
}
