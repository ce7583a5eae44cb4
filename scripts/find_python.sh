#!/bin/sh
# Prints the Python to build .venv with: "$1" where given, else python3 where its version is
# supported, else the newest supported python3.N on the PATH. Exits 1 with one line where none is.
set -u

supported='(3, 10) <= sys.version_info[:2] <= (3, 14)'

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }
is_supported() { "$1" -c "import sys; sys.exit(not ($supported))" 2>/dev/null; }

chosen=""
if [ -n "${1:-}" ]; then
    version=$(version_of "$1") || { echo "PYTHON=$1 does not run." >&2; exit 1; }
    is_supported "$1" || {
        echo "PYTHON=$1 is Python $version; sparklag needs 3.10 to 3.14." >&2
        exit 1
    }
    chosen=$1
else
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        if is_supported "$candidate"; then
            chosen=$candidate
            break
        fi
    done
fi
if [ -z "$chosen" ]; then
    found=$(version_of python3) && found="python3 is $found" || found="there is no python3"
    echo "sparklag needs Python 3.10 to 3.14, and $found: install one, or name it with PYTHON=." >&2
    exit 1
fi
echo "$chosen"
