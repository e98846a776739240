// The conformance suite imports fs.globSync, which Node.js 22 brought, for a
// command that coffer's tests do not use. On an older Node.js this gives the
// suite's import of "fs" that one name more, so that the suite loads at all:
//
//	node --import ./node20.mjs node_modules/@modelcontextprotocol/conformance/dist/index.js …
import fs from 'node:fs';
import { register } from 'node:module';

const fsAndGlob = `
export * from 'node:fs';
export { default } from 'node:fs';
export function globSync() { throw new Error('fs.globSync needs Node.js 22'); }
`;

const hooks = `
export async function resolve(specifier, context, next) {
  if (specifier === 'fs' && /[/]@modelcontextprotocol[/]conformance[/]/.test(context.parentURL ?? '')) {
    return { url: 'data:text/javascript,' + encodeURIComponent(${JSON.stringify(fsAndGlob)}), shortCircuit: true };
  }
  return next(specifier, context);
}
`;

if (!fs.globSync) {
  register('data:text/javascript,' + encodeURIComponent(hooks));
}
