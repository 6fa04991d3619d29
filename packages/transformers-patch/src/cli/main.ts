#!/usr/bin/env node
import { MxattnError } from '@mxattn/core';
import { Command, CommanderError } from 'commander';
import { calibrateCommand } from './calibrate.js';
import { compareCommand } from './compare.js';
import { convertCommand } from './convert.js';
import { doctorCommand } from './doctor.js';
import { inspectCommand } from './inspect.js';

/** Exit codes: 0; 1 where `compare` finds a difference; 2 for bad input. */
const BAD_INPUT = 2;

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
    if (!(error instanceof MxattnError || error instanceof CommanderError)) throw error;
    const message = error.message.replace(/^error: /, '');
    console.error(
      message === '(outputHelp)' ? 'mxattn: name a command; see mxattn --help' : `mxattn: ${message}`,
    );
    process.exitCode = BAD_INPUT;
  }
}
