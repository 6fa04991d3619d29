#!/usr/bin/env node
import { MxattnError } from '@mxattn/core';
import { Command, CommanderError } from 'commander';
import { calibrateCommand } from './calibrate.js';
import { compareCommand } from './compare.js';
import { convertCommand } from './convert.js';
import { doctorCommand } from './doctor.js';
import { inspectCommand } from './inspect.js';

/** Exit codes, as those of diff: 0; 1 where `compare` finds a difference; 2 for bad input and other trouble. */
const TROUBLE = 2;

const program = new Command('mxattn')
  .description('Finds, replaces, compares and runs the attention of ONNX models.')
  .addCommand(inspectCommand())
  .addCommand(convertCommand())
  .addCommand(compareCommand())
  .addCommand(calibrateCommand())
  .addCommand(doctorCommand())
  .exitOverride()
  .configureOutput({ outputError: () => {} });
for (const command of program.commands) command.exitOverride().configureOutput({ outputError: () => {} });

try {
  await program.parseAsync();
} catch (error) {
  const help = error instanceof CommanderError && error.exitCode === 0;
  if (!help) {
    console.error(explained(error));
    process.exitCode = TROUBLE;
  }
}

/** One line for what a user can mend; all there is to know of what only we can. */
function explained(error: unknown): unknown {
  if (!(error instanceof MxattnError || error instanceof CommanderError)) return error;
  const message = error.message.replace(/^error: /, '').replace(/\s*\n\s*/g, ' ');
  return message === '(outputHelp)' ? 'mxattn: name a command; see mxattn --help' : `mxattn: ${message}`;
}
