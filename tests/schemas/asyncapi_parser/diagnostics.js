// diagnostics.js DOCUMENT…: what AsyncAPI's own parser says of each, as JSON: a list for each.
const { readFileSync } = require("node:fs");
const { AvroSchemaParser } = require("@asyncapi/avro-schema-parser");
const { Parser } = require("@asyncapi/parser");

async function diagnostics(source) {
  const parser = new Parser({ schemaParsers: [AvroSchemaParser()] });
  // Unlike validate(), this converts schemas of other formats, as tools that open it do.
  const { diagnostics } = await parser.parse(readFileSync(source, "utf8"), { source });
  return diagnostics.map(({ code, message, path, severity }) => ({
    code, message, path: path.join("."), severity,
  }));
}

Promise.all(process.argv.slice(2).map(diagnostics)).then((found) => {
  process.stdout.write(JSON.stringify(found));
});
