#!/bin/sh
# Run by the Dockerfile: installs the wheel into /opt/sparklag, lists all packages there as CycloneDX
# (sbom.cdx.json), and leaves nothing in it that another build of the same sources would not have.
set -eu
tools=/opt/tools/bin
cd /opt/sparklag

$tools/uv pip install --python bin/python --no-deps --no-cache /wheel/*.whl
# Where a package was installed from, and when.
find lib -path '*.dist-info/*' \( -name direct_url.json -o -name uv_cache.json \) -delete
sed -i '/\/direct_url\.json,/d; /\/uv_cache\.json,/d' lib/python3*/site-packages/*.dist-info/RECORD
find lib -path '*/site-packages/*/tests' -prune -exec rm -rf {} +
rm -f bin/activate* bin/Activate.ps1 .lock
$tools/cyclonedx-py environment --output-reproducible --validate --output-file sbom.cdx.json bin/python
# Nothing is compiled in a read-only container. Hashes instead of times; a set's order is its seed's.
PYTHONHASHSEED=0 bin/python -m compileall -q --invalidation-mode unchecked-hash lib
find . -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
