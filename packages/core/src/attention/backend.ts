import { MxattnError } from '../errors.js';
import type { Recipe } from '../precision/recipes.js';
import { wasmBackend } from '../wasm/backend.js';
import { emulateAttention } from './emulation.js';
import { referenceAttention } from './reference.js';
import type { AttentionSpec } from './spec.js';
import type { AttentionTensors } from './tensors.js';

/** Something that can compute attention. */
export interface Backend {
  readonly name: string;
  /** Among the backends that support a call, `auto` takes the one with the highest priority. */
  readonly priority: number;
  /** True, or the reason why not, as the end of a sentence that starts with the backend's name. */
  supports(spec: AttentionSpec, recipe: Recipe): true | string;
  /** Computes the output, in the layout of the query. The tensors fit the spec and must not be modified. */
  attention(
    tensors: AttentionTensors,
    spec: AttentionSpec,
    recipe: Recipe,
  ): Float32Array | Promise<Float32Array>;
}

const backends = new Map<string, Backend>();

/** Makes a backend available under its name; a backend of the same name is replaced. */
export function registerBackend(backend: Backend): void {
  backends.set(backend.name, backend);
}

/** Names of the registered backends, highest priority first. */
export function backendNames(): string[] {
  return ranked().map(({ name }) => name);
}

function ranked(): Backend[] {
  return [...backends.values()].sort((a, b) => b.priority - a.priority);
}

/**
 * The backend of that name, or for `auto` the supporting one of highest priority.
 *
 * @throws MxattnError if the name is unknown or the backend does not support the call.
 */
export function findBackend(name: string, spec: AttentionSpec, recipe: Recipe): Backend {
  if (name !== 'auto') {
    const backend = backends.get(name);
    if (!backend) {
      throw new MxattnError(`unknown backend "${name}"; known: auto, ${backendNames().join(', ')}`);
    }
    const supported = backend.supports(spec, recipe);
    if (supported !== true) throw new MxattnError(`backend "${name}" ${supported}`);
    return backend;
  }
  // The emulation supports everything, so that there always is one.
  return ranked().find((backend) => backend.supports(spec, recipe) === true)!;
}

registerBackend({
  name: 'reference',
  priority: 1,
  supports: (_spec, recipe) => recipe.name === 'f32' || `computes in float64 only, not ${recipe.name}`,
  attention: (tensors, spec) => referenceAttention(tensors, spec),
});

registerBackend({
  name: 'emulation',
  priority: 0,
  supports: () => true,
  attention: (tensors, spec, recipe) => emulateAttention(tensors, spec, recipe),
});

registerBackend(wasmBackend());
