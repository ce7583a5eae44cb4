/** What each figure is called and means: the words of docs/program/words.md, on every page. */

interface Definition {
  name: string;
  means: string;
}

export const DEFINITIONS = {
  query: { name: "Query", means: "The query's name, or its id where it has no name." },
  status: { name: "Status", means: "The state of the query, by rules on its last batches. The worst comes first." },
  lag: { name: "Lag", means: "Records in Kafka that the query has not processed yet." },
  time_lag: { name: "Time lag", means: "Age of the first record that the query has not processed yet." },
  trend: { name: "Trend", means: "The lag over the last 30 minutes, and its change per second now." },
  catch_up: { name: "Catch-up", means: "Time until the lag is gone, at the present rates." },
  headroom: { name: "Headroom", means: "Time, or records, before retention deletes records that the query has not processed yet." },
  running_batch: { name: "Running batch", means: "How long the running batch has taken, and how many of its tasks are done." },
  last_measured: { name: "Last measured", means: "When the latest offsets were last read from Kafka." },
  partition: { name: "Partition", means: "The partition's number in its topic." },
  log: { name: "Log", means: "The partition from its earliest to its latest offset, and the query's positions in it." },
  rates: { name: "Records per second", means: "Input: records that arrive in the topics. Processed: records that the query completes." },
  batch: { name: "Batch, by phase", means: "How long the batches took: planning, processing and commit, as Spark reports them." },
  topic: { name: "Topic", means: "A Kafka topic that at least one query or consumer group reads." },
  readers: { name: "Readers", means: "Queries and consumer groups that read the topic." },
  lag_of_readers: { name: "Lag of readers", means: "Sum of the lags of these readers, in all the topics that each of them reads." },
  retained: { name: "Records retained", means: "Records from the earliest to the latest offset of every partition." },
  produced: { name: "Produced", means: "Records per second that arrived since this page was opened." },
  instance: { name: "Instance", means: "A process of the service, by its setting `instance`, or its host and port." },
  share: { name: "Share", means: "The queries that the instance measures, of all queries on this page." },
} satisfies Record<string, Definition>;

export type Figure = keyof typeof DEFINITIONS;
