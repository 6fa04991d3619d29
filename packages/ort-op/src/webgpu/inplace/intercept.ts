/// <reference types="@webgpu/types" />
import { type Program, readProgram } from './program.js';

/** A dispatch that is about to be recorded. */
export interface Dispatch {
  readonly program: Program;
  readonly workgroups: readonly [number, number, number];
  /** What is bound under a name of the program's declarations, if it is a buffer. */
  buffer(name: string): GPUBufferBinding | undefined;
  /** The value of a scalar uniform; undefined where it is not known. */
  uniform(name: string): number | undefined;
}

/** The part of a compute pass that replacements record on. */
export type PassRecorder = Pick<GPUComputePassEncoder, 'setPipeline' | 'setBindGroup' | 'dispatchWorkgroups'>;

/**
 * Decides about the dispatches of one program.
 *
 * @param record Records dispatches in the place of the original one; the pass's own state is put back after it.
 * @returns Whether it has recorded what replaces the dispatch. If not, the original one runs.
 */
export type Replacement = (
  dispatch: Dispatch,
  record: (encode: (pass: PassRecorder) => void) => void,
) => boolean;

/** Programs by the label of their shader module. */
export type Replacements = Readonly<Record<string, Replacement>>;

/** A device whose dispatches are looked at. */
export interface Interception {
  /** Takes the replacements off; with the last ones the device is as it was. */
  release(): void;
}

/**
 * Lets replacements stand in for compute programs of somebody else, who records them on this device: the caller of
 * `dispatchWorkgroups` notices nothing, and the kernels of a replacement run in the middle of its pass, on its buffers.
 *
 * Only this device object, its queue and the encoders it makes are wrapped, not the prototypes that other devices share.
 * Programs that were compiled before are not seen. Where several replacements are for one label, the latest is asked first.
 */
export function interceptDispatches(device: GPUDevice, replacements: Replacements): Interception {
  let wrapped = wrappers.get(device);
  if (!wrapped) {
    wrapped = new WrappedDevice(device);
    wrappers.set(device, wrapped);
  }
  return wrapped.add(replacements);
}

const wrappers = new WeakMap<GPUDevice, WrappedDevice>();

/** Puts methods over those of an object, until they are taken off. */
class Wrapping<T extends object> {
  private readonly names: (keyof T)[] = [];

  constructor(private readonly target: T) {}

  wrap<K extends keyof T>(name: K, around: (original: T[K]) => T[K]): this {
    const original = this.target[name] as unknown as (...args: unknown[]) => unknown;
    const bound = ((...args: unknown[]) => original.apply(this.target, args)) as unknown as T[K];
    Object.defineProperty(this.target, name, { value: around(bound), configurable: true, writable: true });
    this.names.push(name);
    return this;
  }

  undo(): void {
    for (const name of this.names) delete this.target[name];
  }
}

class WrappedDevice {
  private readonly added: Replacements[] = [];
  private readonly wrappings: { undo(): void }[] = [];
  private readonly programs = new WeakMap<GPUShaderModule, Program>();
  private readonly pipelines = new WeakMap<GPUComputePipeline, Program>();
  private readonly bindGroups = new WeakMap<GPUBindGroup, ReadonlyMap<number, GPUBufferBinding>>();
  /** What was last written to uniform buffers: the values of a dispatch's uniforms when it is recorded. */
  private readonly uniforms = new WeakMap<GPUBuffer, DataView>();

  constructor(private readonly device: GPUDevice) {}

  add(replacements: Replacements): Interception {
    if (this.added.length === 0) this.wrap();
    this.added.unshift(replacements);
    return {
      release: () => {
        const index = this.added.indexOf(replacements);
        if (index < 0) return;
        this.added.splice(index, 1);
        if (this.added.length > 0) return;
        for (const wrapping of this.wrappings.splice(0)) wrapping.undo();
      },
    };
  }

  private wrap(): void {
    const { device } = this;
    const onDevice = new Wrapping(device)
      .wrap('createShaderModule', (create) => (descriptor) => {
        const module = create(descriptor);
        const { label, code } = descriptor;
        if (label && this.added.some((each) => label in each))
          this.programs.set(module, readProgram(label, code));
        return module;
      })
      .wrap(
        'createComputePipeline',
        (create) => (descriptor) => this.remember(descriptor, create(descriptor)),
      )
      .wrap(
        'createComputePipelineAsync',
        (create) => async (descriptor) => this.remember(descriptor, await create(descriptor)),
      )
      .wrap('createBindGroup', (create) => (descriptor) => {
        const group = create(descriptor);
        const entries = [...descriptor.entries].flatMap(({ binding, resource }) => {
          if ('buffer' in resource) return [[binding, resource] as const];
          return 'mapState' in resource ? [[binding, { buffer: resource }] as const] : [];
        });
        this.bindGroups.set(group, new Map(entries));
        return group;
      })
      .wrap('createCommandEncoder', (create) => (descriptor) => {
        const encoder = create(descriptor);
        new Wrapping(encoder).wrap('beginComputePass', (begin) => (pass) => this.wrapPass(begin(pass)));
        return encoder;
      });
    const onQueue = new Wrapping(device.queue).wrap(
      'writeBuffer',
      (write) => (buffer, offset, data, start?: number, size?: number) => {
        write(buffer, offset, data, start, size);
        if (buffer.usage & GPUBufferUsage.UNIFORM && offset === 0) {
          this.uniforms.set(buffer, copyOf(data as ArrayBuffer | ArrayBufferView, start, size));
        }
      },
    );
    this.wrappings.push(onDevice, onQueue);
  }

  private remember(descriptor: GPUComputePipelineDescriptor, made: GPUComputePipeline): GPUComputePipeline {
    const program = this.programs.get(descriptor.compute.module);
    if (program) this.pipelines.set(made, program);
    return made;
  }

  private wrapPass(pass: GPUComputePassEncoder): GPUComputePassEncoder {
    let current: GPUComputePipeline | null = null;
    const groups = new Map<number, unknown[]>();
    // The methods as they were, for replacements and for putting the caller's state back.
    const setPipeline = pass.setPipeline.bind(pass);
    const setBindGroup: PassRecorder['setBindGroup'] = pass.setBindGroup.bind(pass);
    const dispatchWorkgroups = pass.dispatchWorkgroups.bind(pass);
    const original: PassRecorder = { setPipeline, setBindGroup, dispatchWorkgroups };
    new Wrapping(pass)
      .wrap('setPipeline', (set) => (pipeline) => {
        current = pipeline;
        set(pipeline);
      })
      .wrap(
        'setBindGroup',
        (set) =>
          ((...args: unknown[]) => {
            groups.set(args[0] as number, args);
            (set as (...args: unknown[]) => void)(...args);
          }) as GPUComputePassEncoder['setBindGroup'],
      )
      .wrap('dispatchWorkgroups', (dispatch) => (x, y = 1, z = 1) => {
        const program = current && this.pipelines.get(current);
        if (
          !program ||
          !this.replace(program, groups.get(0)?.[1] as GPUBindGroup, [x, y, z], (encode) => {
            encode(original);
            setPipeline(current!);
            for (const args of groups.values())
              setBindGroup(...(args as Parameters<PassRecorder['setBindGroup']>));
          })
        ) {
          dispatch(x, y, z);
        }
      });
    return pass;
  }

  private replace(
    program: Program,
    group: GPUBindGroup | undefined,
    workgroups: readonly [number, number, number],
    record: (encode: (pass: PassRecorder) => void) => void,
  ): boolean {
    const entries = group && this.bindGroups.get(group);
    if (!entries) return false;
    const buffer = (name: string) => {
      const declared = program.bindings.find((each) => each.name === name);
      return declared && entries.get(declared.binding);
    };
    const uniform = (name: string) => {
      const declared = program.uniforms.find((each) => each.name === name);
      const struct = program.bindings.find(({ space }) => space === 'uniform');
      const bound = struct && entries.get(struct.binding);
      const data = bound && this.uniforms.get(bound.buffer);
      if (!declared || !data || declared.offset + 4 > data.byteLength || (bound.offset ?? 0) > 0)
        return undefined;
      if (declared.type === 'f32') return data.getFloat32(declared.offset, true);
      return declared.type === 'i32'
        ? data.getInt32(declared.offset, true)
        : data.getUint32(declared.offset, true);
    };
    const dispatch = { program, workgroups, buffer, uniform };
    return this.added.some((each) => each[program.label]?.(dispatch, record) ?? false);
  }
}

/** The part of the data that `writeBuffer` takes: offset and size count elements of a typed array, else bytes. */
function copyOf(data: ArrayBuffer | ArrayBufferView, start = 0, size?: number): DataView {
  const isView = ArrayBuffer.isView(data);
  const unit = isView && 'BYTES_PER_ELEMENT' in data ? (data.BYTES_PER_ELEMENT as number) : 1;
  const bytes = isView ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data);
  const copy = bytes.slice(start * unit, size === undefined ? undefined : (start + size) * unit);
  return new DataView(copy.buffer);
}
