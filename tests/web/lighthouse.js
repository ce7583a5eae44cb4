// Two categories of Lighthouse, on the Chromium that listens on a port of this machine.
// Arguments: the port, the address of the page. Prints what took from 100 in either of them.

const { pathToFileURL } = require("node:url");

async function main([port, url]) {
  const { default: lighthouse } = await import(pathToFileURL(require.resolve("lighthouse")));
  const { lhr } = await lighthouse(url, {
    port: Number(port),
    onlyCategories: ["accessibility", "best-practices"],
    logLevel: "error",
    // A live stream keeps the network busy for ever.
    maxWaitForLoad: 15_000,
  });
  if (lhr.runtimeError) throw new Error(lhr.runtimeError.message);
  const failing = Object.values(lhr.categories)
    .flatMap((category) => category.auditRefs)
    .filter(({ id, weight }) => weight > 0 && lhr.audits[id].score < 1 && lhr.audits[id].score !== null)
    .map(({ id }) => [`${id}: ${lhr.audits[id].title}`, ...itemsOf(lhr.audits[id])].join(" | "));
  if (Object.values(lhr.categories).some(({ score }) => score === null)) throw new Error("a category has no score");
  console.log(JSON.stringify(failing));
}

function itemsOf({ details }) {
  return (details?.items ?? []).slice(0, 3).map(({ node }) => node?.snippet ?? "");
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
