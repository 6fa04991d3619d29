import { constant, MxattnError, type PrecisionName, precision, recipes, Schedule } from '@mxattn/core';
import { precisionInput } from '../model/fused-operator.js';
import { DataType, type ModelProto, smallTensor } from '../model/index.js';
import { copy } from '../model/messages.js';
import { tensorProto } from '../model/tensors.js';

/**
 * A converted model that says itself which precision each layer is computed in, unless a session is told otherwise.
 *
 * @throws MxattnError for a schedule that depends on more than the layer, which a model cannot hold.
 */
export function withPrecisions(model: ModelProto, plan: Schedule): ModelProto {
  if (plan.needsStep || plan.rules.some((rule) => rule.phase)) {
    throw new MxattnError(
      `a model holds one precision for each layer, and this schedule depends on the ${plan.needsStep ? 'step' : 'phase'}; ` +
        'give it to the session instead: createSession(model, { schedule })',
    );
  }
  const layers = Number(storedTensor(model)?.dims[0] ?? 0);
  const ids = Array.from({ length: layers }, (_, layer) => precision(plan.precisionAt({ layer, layers })).id);
  const graph = model.graph!;
  return copy(model, {
    graph: copy(graph, {
      initializer: graph.initializer.map((tensor) =>
        tensor.name === precisionInput ? tensorProto(DataType.INT32, [layers], ids, precisionInput) : tensor,
      ),
    }),
  });
}

/** The precisions that a model says its layers are computed in; f32 where it says nothing. */
export function storedSchedule(model: ModelProto): Schedule {
  const tensor = storedTensor(model);
  const names = (tensor && smallTensor(tensor))?.values.map(nameOf) ?? [];
  if (new Set(names).size < 2) return constant(names[0] ?? 'f32');
  const rules = names.map((precision, layer) => ({ layers: [layer, layer] as const, precision }));
  return new Schedule({ default: 'f32', rules });
}

function storedTensor(model: ModelProto) {
  return model.graph?.initializer.find(({ name }) => name === precisionInput);
}

function nameOf(id: number): PrecisionName {
  const found = Object.entries(recipes).find(([, recipe]) => recipe.id === id);
  if (!found) throw new MxattnError(`the model asks for the precision of id ${id}, which is not known`);
  return found[0] as PrecisionName;
}
