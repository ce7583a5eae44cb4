// The accessibility category of Lighthouse, on the Chromium that listens on a port of this machine.
// Arguments: the port, the address of the page. Prints the score, 0 to 100, and what took from it.

const { pathToFileURL } = require("node:url");

async function main([port, url]) {
  const { default: lighthouse } = await import(pathToFileURL(require.resolve("lighthouse")));
  const { lhr } = await lighthouse(url, {
    port: Number(port),
    onlyCategories: ["accessibility"],
    logLevel: "error",
    // A live stream keeps the network busy for ever.
    maxWaitForLoad: 15_000,
  });
  if (lhr.runtimeError) throw new Error(lhr.runtimeError.message);
  const category = lhr.categories.accessibility;
  const failing = category.auditRefs
    .filter(({ id, weight }) => weight > 0 && lhr.audits[id].score < 1 && lhr.audits[id].score !== null)
    .map(({ id }) => `${id}: ${lhr.audits[id].title}`);
  console.log(JSON.stringify({ score: Math.round(category.score * 100), failing }));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
