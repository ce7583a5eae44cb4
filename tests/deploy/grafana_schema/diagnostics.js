// Dashboards by Grafana's own types: prints, as JSON, what TypeScript finds wrong in each of the
// files that are given.
const fs = require("node:fs");
const path = require("node:path");
const ts = require("typescript");

const options = {
  lib: ["lib.es2022.d.ts"],
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  noEmit: true,
  skipLibCheck: true,
  strict: true,
  target: ts.ScriptTarget.ES2022,
  types: [],
};

// By the kind of a panel.
const TYPES = {
  stat: "stat/panelcfg/x/StatPanelCfg_types.gen.d.ts",
  "state-timeline": "statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen.d.ts",
  table: "table/panelcfg/x/TablePanelCfg_types.gen.d.ts",
  timeseries: "timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen.d.ts",
};

// JSON has the values of enumerations, not their members.
const HEAD = `
import type { Dashboard } from "@grafana/schema";
type AsJson<T> = T extends string ? \`\${T}\`
  : T extends (infer Item)[] ? AsJson<Item>[]
  : T extends object ? { [Key in keyof T]: AsJson<T[Key]> }
  : T;
`;

function source(dashboard) {
  const lines = [HEAD, `const dashboard: AsJson<Dashboard> = ${JSON.stringify(dashboard)};`];
  const shown = dashboard.panels.filter((panel) => panel.type !== "row");
  for (const { id, type, options = {}, fieldConfig } of shown) {
    const types = `import("@grafana/schema/dist/types/raw/composable/${TYPES[type]}")`;
    const own = fieldConfig.defaults.custom;
    lines.push(`const o${id}: AsJson<Partial<${types}.Options>> = ${JSON.stringify(options)};`);
    if (own) {
      lines.push(`const f${id}: AsJson<Partial<${types}.FieldConfig>> = ${JSON.stringify(own)};`);
    }
  }
  return lines.join("\n");
}

function diagnostics(file) {
  const folder = path.dirname(process.env.NODE_PATH);
  const name = path.join(folder, `${path.basename(file)}.ts`);
  const text = source(JSON.parse(fs.readFileSync(file, "utf8")));
  const host = ts.createCompilerHost(options);
  const { fileExists, getSourceFile } = host;
  host.fileExists = (asked) => asked === name || fileExists(asked);
  host.getSourceFile = (asked, ...rest) =>
    asked === name ? ts.createSourceFile(name, text, ...rest) : getSourceFile(asked, ...rest);
  return ts.getPreEmitDiagnostics(ts.createProgram([name], options, host)).map((each) => {
    const about = text.slice(each.start, each.start + each.length).slice(0, 60);
    return `${about}: ${ts.flattenDiagnosticMessageText(each.messageText, "\n")}`;
  });
}

const found = process.argv.slice(2).map((file) => [path.basename(file), diagnostics(file)]);
process.stdout.write(JSON.stringify(Object.fromEntries(found)));
