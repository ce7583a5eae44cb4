#!/bin/bash
# A cluster-scoped init script: sparklag in the Python of the cluster's notebooks and jobs.
set -euo pipefail
/databricks/python/bin/pip install sparklag
