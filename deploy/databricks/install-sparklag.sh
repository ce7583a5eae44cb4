#!/bin/bash
# A cluster-scoped init script: sparklag in the Python of the cluster's notebooks and jobs.
# No release is on PyPI yet: instead of the name, use the path of a wheel (pip wheel --no-deps ./sparklag).
set -euo pipefail
/databricks/python/bin/pip install sparklag
