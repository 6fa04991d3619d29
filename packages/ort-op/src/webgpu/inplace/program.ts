/** A storage or uniform buffer that a program reads or writes. */
export interface ProgramBinding {
  readonly binding: number;
  readonly space: 'storage, read' | 'storage, read_write' | 'uniform';
  readonly name: string;
  readonly type: string;
}

/** A scalar of a program's uniform struct. */
export interface ProgramUniform {
  readonly name: string;
  readonly type: string;
  /** Bytes from the start of the struct. */
  readonly offset: number;
}

/** What a compute program says about itself: its label and what its WGSL declares. */
export interface Program {
  readonly label: string;
  readonly code: string;
  readonly bindings: readonly ProgramBinding[];
  /** Members of `struct Uniforms`, as far as they are scalars; none from the first other member on. */
  readonly uniforms: readonly ProgramUniform[];
  /** Module constants with a plain number as their value. */
  readonly constants: ReadonlyMap<string, number>;
}

/** Reads the interface of a WGSL module as ONNX Runtime writes them: all bindings in group 0, uniforms in one struct. */
export function readProgram(label: string, code: string): Program {
  const bindings = [
    ...code.matchAll(/@group\(0\)\s*@binding\((\d+)\)\s*var<([^>]*)>\s*(\w+)\s*:\s*([^;]+);/g),
  ].map(([, binding, space, name, type]) => ({
    binding: Number(binding),
    space: space!.replace(/\s*,\s*/, ', ') as ProgramBinding['space'],
    name: name!,
    type: type!.replaceAll(/\s+/g, ''),
  }));
  const constants = new Map(
    [...code.matchAll(/^const\s+(\w+)\s*(?::\s*\w+\s*)?=\s*(\d+)u?;/gm)].map(([, name, value]) => [
      name!,
      Number(value),
    ]),
  );
  return { label, code, bindings, uniforms: readUniforms(code), constants };
}

function readUniforms(code: string): ProgramUniform[] {
  const [, members = ''] = /struct Uniforms\s*\{([^}]*)\}/.exec(code) ?? [];
  const uniforms: ProgramUniform[] = [];
  for (const [, name, type] of members.matchAll(/(\w+)\s*:\s*([^,]+)(?:,|$)/g)) {
    const scalar = type!.trim();
    if (!['u32', 'i32', 'f32'].includes(scalar)) break;
    uniforms.push({ name: name!, type: scalar, offset: 4 * uniforms.length });
  }
  return uniforms;
}

/**
 * What a program's interface is, in one line: the bindings in order with their address spaces and types, and the uniforms. Two
 * versions of a program with the same fingerprint take the same buffers for the same purpose.
 */
export function fingerprint({ bindings, uniforms }: Program): string {
  const buffers = bindings.map(({ space, name, type }) => `${name}: ${space} ${type}`);
  return `${buffers.join('; ')} | ${uniforms.map(({ name, type }) => `${name} ${type}`).join(', ')}`;
}
