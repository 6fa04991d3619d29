import type { SessionReport } from '@mxattn/ort-op/web';
import { make } from './elements.js';

const backends: Readonly<Record<SessionReport['backend'], string>> = {
  inplace: "in place: mxattn's kernels inside ONNX Runtime's runs",
  split: "split: mxattn's kernels between parts of the model",
  carrier: "carrier: ONNX Runtime's own fused attention",
  stock: 'stock: the model unchanged',
  native: "native: mxattn's CPU kernel",
};

/** What a session did with its model, and why. */
export function reportList({ backend, reason, replaced, left }: SessionReport): HTMLElement {
  const reasons = [...(reason ? [reason] : []), ...left.map(({ node, reason }) => `${node}: ${reason}`)];
  const list = make(
    'dl',
    {},
    make('dt', {}, 'Attention'),
    make('dd', {}, backends[backend]),
    make('dt', {}, 'Replaced'),
    make('dd', {}, `${replaced.length}${left.length > 0 ? `, ${left.length} left` : ''}`),
  );
  if (reasons.length === 0) return list;
  const details = make('details', { className: 'reasons' }, make('summary', {}, 'Reasons'));
  details.append(make('ul', {}, ...reasons.map((each) => make('li', {}, each))));
  return make('div', {}, list, details);
}
